"""Arm the rollback guard: the box restores its last known-good server by itself if this run dies."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from ..module_utils.core.box_archive import archive_file
from ..module_utils.serving.rollback_guard import BEAT_EVERY_S, beat_command, start_command
from ..plugin_utils.action import Action
from ..plugin_utils.beats import beat_until
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.guarded`: ``resolved`` is the profile with its run and its box.

    Starts the guard on the box, and a process here that sends it heartbeats while ansible-playbook runs. When
    they stop, the guard restores what should serve, if it does not, and puts a box of a fleet back into traffic
    that this run took out. Does nothing if nothing served before and the box is in no fleet.
    """

    _VALID_ARGS = frozenset({"resolved"})
    _NEEDED = ("resolved",)

    def answer(self, variables: TaskVars) -> Answer:
        """Start both; without a guard program on the box, the result says so in ``msg``."""
        resolved = self._task.args["resolved"]
        served = (resolved["box"].get("served") or {}).get("release")
        if self._task.check_mode or not (served or resolved["fleet"]):
            return {"changed": False}
        home = resolved["site"]["home"]
        if self._low_level_execute_command(start_command(home, archive_file(home)))["rc"] != 0:
            return {"changed": False, "msg": "this box has no guard yet: site.yml --tags host installs it"}
        # Tasks are processes of their own, so their parent is ansible-playbook itself.
        playbook = os.getppid()
        if os.fork() == 0:
            try:
                self._beat(playbook, beat_command(home))
            finally:
                os._exit(0)
        return {"changed": False}

    def _beat(self, playbook: int, command: str) -> None:
        """Run ``command`` on the box at intervals while the process ``playbook`` runs."""

        def ended() -> bool:
            time.sleep(BEAT_EVERY_S)
            return not _is_running(playbook)

        beat_until(ended, lambda: self._low_level_execute_command(command))


def _is_running(pid: int) -> bool:
    """True if the process runs; a zombie does not."""
    with contextlib.suppress(OSError):  # without /proc, as on macOS
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
