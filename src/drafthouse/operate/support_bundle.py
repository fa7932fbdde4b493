"""Writes a support bundle on the controller: a .tar.gz of redacted texts from the box and about the profile."""

from __future__ import annotations

import gzip
import io
import json
import os
import platform
import subprocess
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.format import name_of
from ..core.places import INSTALLED, ROOT
from ..experiment.plan_text import plan_text
from ..report.archive import DATED, folders

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile

# Keys of the resolved profile: prompts are the user's own texts, and the box's facts have a file of their own.
_OMITTED_KEYS = ("suites", "prompts", "box")


def contents(
    resolved: ResolvedProfile, host: str, checks: Sequence[Mapping[str, str]], of_box: Mapping[str, str], reports: Path
) -> dict[str, str]:
    """By file name, all texts of the bundle. `write` redacts them; ``of_box`` comes redacted from the box.

    ``checks`` are the doctor's findings (`Finding.as_dict`). Of the reports in the folder ``reports`` the newest about
    this profile and ``host`` is included, if there is one.
    """
    texts = {
        "plan.txt": plan_text(resolved) + "\n",
        "resolved.json": _json({key: value for key, value in resolved.items() if key not in _OMITTED_KEYS}),
        "box.json": _json(resolved.get("box") or {}),
        "doctor.json": _json({"checks": list(checks)}),
        "controller.txt": _controller(),
        **of_box,
    }
    for arm, data in resolved["arms"].items():
        texts |= {f"rendered/{arm}/{file['path']}": file["content"] for file in data["files"]}
    for folder in folders(reports, resolved["profile"]):
        # Folders are named `<time>-<host>`; compare the host exactly, not the end of the name.
        if DATED.sub("", folder.name, count=1) == f"-{name_of(host)}":
            texts["report.json"] = (folder / "report.json").read_text("utf-8")
            break
    return texts


def _json(data: object) -> str:
    return json.dumps(data, indent=1, sort_keys=True, default=str, ensure_ascii=False) + "\n"


def _controller() -> str:
    """Versions of Drafthouse, Ansible and Python on the controller, without any user, host or folder name."""
    program = f"drafthouse {metadata.version('drafthouse')}" if INSTALLED else f"clone {_commit()}"
    from ansible.release import __version__  # noqa: PLC0415 (the controller has it; nothing else of this file needs it)

    system = f"{platform.system()} {platform.machine()}"
    return f"{program}\nansible-core {__version__}\npython {platform.python_version()}\nsystem {system}\n"


def _commit() -> str:
    """The clone's commit, with -dirty for changed files; "no git" where git cannot tell."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "no git"
    return done.stdout.strip() or "no git"


def write(folder: Path, host: str, texts: Mapping[str, str], redact: Callable[[str], str], now: float) -> Path:
    """Write the bundle, readable by its owner only, and return its path; ``now`` is in unix seconds."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"support-{name_of(host)}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, text in sorted(texts.items()):
            data = redact(text).encode()
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(data)
            entry.mode = 0o600
            entry.mtime = int(now)
            tar.addfile(entry, io.BytesIO(data))
    bundle = folder / f"{name}.tar.gz"
    # Created with this mode, so that nobody else can open it at any moment.
    with os.fdopen(os.open(bundle, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(gzip.compress(archive.getvalue(), mtime=0))
    return bundle
