"""Plan the change of Docker's daemon.json, and run programs for it.

Needs are settings that must hold, likes are those that give way to the user's; `daemon_json` merges both.
"""

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

_COMMAND_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Wishes:
    """The wanted settings, from the variables of the role container_engine: all are needs but the logs and the last."""

    settings: Mapping[str, Json] = field(default_factory=dict)  # keys of daemon.json with their values
    data_root: str = ""  # folder for images and containers; "" leaves the key to the user
    max_size: str = ""  # of a log file, as Docker writes it (50m)
    max_file: int = 0  # log files per container; 0 adds no log rotation
    nvidia: bool = False  # configure NVIDIA's runtime
    reload_safe: bool = False  # containers keep their GPUs at `systemctl daemon-reload`


@dataclass(frozen=True)
class Plan:
    """The planned change of the file."""

    before: str  # its text
    after: str  # its text after the change
    ours: Settings  # the settings in it that Drafthouse adds
    left: tuple[str, ...]  # dotted keys of the likes that give way to the user's settings
    needed: bool  # False: only likes differ, which may wait

    @property
    def differs(self) -> bool:
        """True if the file must be written."""
        return self.before != self.after


def make_plan(
    text: str, ours: Settings, wishes: Wishes, driver: str = "", where: str = DAEMON_JSON, ctk: str = ""
) -> Plan:
    """The plan for the file with this `text`.

    `ours` are the settings in it that an earlier run added. `driver` is the engine's log driver ("": unknown), `where`
    the file's path for messages. `ctk` is the path of nvidia-ctk; if "", NVIDIA's keys are left out.
    """
    current = daemon_json.parse(text.encode(), where)
    users = daemon_json.without(current, ours)
    needs: dict[str, Json] = dict(wishes.settings)
    # The user's own spelling of the same folder is no contradiction.
    if wishes.data_root and not _same_folder(users.get("data-root"), wishes.data_root):
        needs["data-root"] = wishes.data_root
    likes: dict[str, Json] = {}
    if wishes.max_file:
        likes |= daemon_json.rotation(users, wishes.max_size, wishes.max_file, driver)
    if wishes.nvidia and wishes.reload_safe:
        # NVIDIA/nvidia-container-toolkit#48: with systemd's cgroup driver, running containers lose their GPUs at
        # `systemctl daemon-reload`. NVIDIA recommends this workaround for Docker.
        likes["exec-opts"] = ["native.cgroupdriver=cgroupfs"]
    if wishes.nvidia and ctk:
        configured = nvidia_configured(ctk, daemon_json.render(current, text), where)
        needs = _with_groups(needs, daemon_json.nvidia_part(configured, users))
    elif not wishes.nvidia:  # for a CPU profile the GPU settings of an earlier run stay
        needs = _with_groups(needs, daemon_json.nvidia_part(daemon_json.without(current, users), users))
    merged = daemon_json.merge(current, needs, likes, ours, where)
    return Plan(
        before=text,
        after=daemon_json.render(merged.settings, text),
        ours=merged.ours,
        left=merged.left,
        needed=bool(daemon_json.without(needs, current)),
    )


def nvidia_configured(ctk: str, text: str, where: str = DAEMON_JSON) -> dict[str, Json]:
    """The settings after nvidia-ctk has edited a temporary copy of ``text``. Raises DrafthouseError if it fails."""
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
        copy = Path(folder) / "daemon.json"
        copy.write_text(text, "utf-8")
        completed = run([ctk, "runtime", "configure", "--runtime=docker", f"--config={copy}", "--cdi.enabled"])
        if completed.returncode != 0:
            found = f"nvidia-ctk refuses: {last_line(completed.stderr or completed.stdout)}"
            needed = "the container engine configured for NVIDIA GPUs"
            do = "run `nvidia-ctk runtime configure --runtime=docker --dry-run` on the box"
            raise one_problem("program-failed", found, needed, do, where)
        return daemon_json.parse(copy.read_bytes(), where)


def run(command: Sequence[str], timeout_s: float = _COMMAND_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run a program. A missing program counts as failed, with exit status 127."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess(list(command), 127, "", str(error))


def last_line(text: str) -> str:
    """The last line of a program's output for a message, without passwords and at most 500 characters long."""
    text = text.strip()
    if not text:
        return "(it said nothing)"
    return daemon_json.redacted(text.splitlines()[-1].strip())[:500]


def _same_folder(user_folder: Json, our_folder: str) -> bool:
    """True if both name one folder, apart from slashes and dots; False if the user names none."""
    return isinstance(user_folder, str) and os.path.normpath(user_folder) == os.path.normpath(our_folder)


def _with_groups(needs: Mapping[str, Json], groups: Mapping[str, Json]) -> dict[str, Json]:
    """`needs` with the objects of `groups`; an object in both gets the keys of both."""
    merged = dict(needs)
    for name, group in groups.items():
        needed = merged.get(name)
        if isinstance(needed, Mapping) and isinstance(group, Mapping):
            merged[name] = {**needed, **group}
        else:
            merged[name] = group
    return merged
