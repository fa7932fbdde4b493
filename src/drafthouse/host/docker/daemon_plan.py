"""What Docker's daemon.json is to become: what is ours in it, what we would like, and what NVIDIA's toolkit adds."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import one_problem
from . import daemon_json
from .daemon_json import DAEMON_JSON, Settings

if TYPE_CHECKING:
    from drafthouse.core.documents import Json

_COMMAND_S = 60.0


@dataclass(frozen=True)
class Wishes:
    """What the file shall say. ``data_root`` "" leaves it to the user; ``max_file`` 0 leaves logs alone."""

    settings: Mapping[str, Json] = field(default_factory=dict)
    data_root: str = ""
    max_size: str = ""
    max_file: int = 0
    nvidia: bool = False
    reload_safe: bool = False


@dataclass(frozen=True)
class Plan:
    """The file before and after, and the part of it that will be ours."""

    before: str
    after: str
    ours: Settings
    left: tuple[str, ...]
    needed: bool  # False: only what we would like differs

    @property
    def differs(self) -> bool:
        """Whether the file is to be written."""
        return self.before != self.after


def make_plan(
    text: str, ours: Settings, wishes: Wishes, driver: str = "", where: str = DAEMON_JSON, ctk: str = ""
) -> Plan:
    """What the file shall become. `ctk` is the path of nvidia-ctk; without it NVIDIA's part is left out."""
    current = daemon_json.parse(text.encode(), where)
    users = daemon_json.without(current, ours)
    needs: dict[str, Json] = dict(wishes.settings)
    if wishes.data_root and not _same_folder(users.get("data-root"), wishes.data_root):
        needs["data-root"] = wishes.data_root
    likes: dict[str, Json] = {}
    if wishes.max_file:
        likes |= daemon_json.rotation(users, wishes.max_size, wishes.max_file, driver)
    if wishes.nvidia and wishes.reload_safe:
        # NVIDIA/nvidia-container-toolkit#48: with systemd's cgroup driver `systemctl daemon-reload` takes the
        # GPUs away from running containers; this is the workaround that NVIDIA names for Docker.
        likes["exec-opts"] = ["native.cgroupdriver=cgroupfs"]
    if wishes.nvidia and ctk:
        configured = nvidia_configured(ctk, daemon_json.render(current, text), where)
        needs = _with_groups(needs, daemon_json.nvidia_part(configured, users))
    elif not wishes.nvidia:  # a profile for the CPU: what is there for GPUs stays
        needs = _with_groups(needs, daemon_json.nvidia_part(daemon_json.without(current, users), users))
    merged = daemon_json.merge(current, needs, likes, ours, where)
    needed = bool(daemon_json.without(needs, current))
    return Plan(text, daemon_json.render(merged.settings, text), merged.ours, merged.left, needed)


def nvidia_configured(ctk: str, text: str, where: str = DAEMON_JSON) -> dict[str, Json]:
    """The settings that nvidia-ctk makes of ``text``, tried on a copy."""
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
        copy = Path(folder) / "daemon.json"
        copy.write_text(text, "utf-8")
        done = run([ctk, "runtime", "configure", "--runtime=docker", f"--config={copy}", "--cdi.enabled"])
        if done.returncode != 0:
            raise one_problem(
                "program-failed",
                f"nvidia-ctk refuses: {last_line(done.stderr or done.stdout)}",
                "the container engine configured for NVIDIA GPUs",
                "run `nvidia-ctk runtime configure --runtime=docker --dry-run` on the box",
                where,
            )
        return daemon_json.parse(copy.read_bytes(), where)


def run(command: Sequence[str], timeout_s: float = _COMMAND_S) -> subprocess.CompletedProcess[str]:
    """Run a program; one that is not there has failed."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess(list(command), 127, "", str(error))


def last_line(text: str) -> str:
    """The last line of a program's output, as a message shows it."""
    text = text.strip()
    if not text:
        return "(it said nothing)"
    return daemon_json.shown(text.splitlines()[-1].strip())[:500]


def _same_folder(theirs: Json, ours: str) -> bool:
    return isinstance(theirs, str) and os.path.normpath(theirs) == os.path.normpath(ours)


def _with_groups(needs: Mapping[str, Json], groups: Mapping[str, Json]) -> dict[str, Json]:
    """`needs` with the objects of `groups`; a group that stands in both has the keys of both."""
    made = dict(needs)
    for name, group in groups.items():
        present = made.get(name)
        if isinstance(present, Mapping) and isinstance(group, Mapping):
            made[name] = {**present, **group}
        else:
            made[name] = group
    return made
