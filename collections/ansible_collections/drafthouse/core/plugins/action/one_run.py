"""Be the only run on a box's home, or end before anything is changed."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

from ..module_utils.core.errors import DrafthouseError
from ..module_utils.core.procfs import start_of
from ..module_utils.core.run_lease import (
    BEAT_EVERY_S,
    SILENT_S,
    Lease,
    beat_command,
    lease_file,
    lease_of,
    look_command,
    parsed_look,
    read_lease,
    refused,
    take_command,
)
from ..plugin_utils.action import Action
from ..plugin_utils.beats import beat_until
from ..plugin_utils.words import Answer, TaskVars, failure

_TRIES = 5
_LOOK_S = 1.0


class ActionModule(Action):
    """`drafthouse.core.one_run`: ``resolved`` is the profile, ``phase`` what it is at, for who is refused.

    A home that is not there yet is made where ``make`` says so, otherwise nothing is done. In check mode it is only
    looked. A process of its own then says every few seconds that ansible-playbook lives, and ends with that.
    """

    _VALID_ARGS = frozenset({"resolved", "phase", "make"})
    _NEEDED = ("resolved", "phase")

    def answer(self, variables: TaskVars) -> Answer:
        """Take the lease, or fail with who holds it."""
        given = self._task.args
        resolved, home = given["resolved"], str(given["resolved"]["site"]["home"])
        # Tasks are processes of their own, so their parent is ansible-playbook itself.
        mine = lease_of(os.getppid(), str(resolved["profile"]), str(given["phase"]))
        for _ in range(_TRIES):
            there, touched, now, text = self._look(home)
            if not there and not given.get("make"):
                return {"changed": False}
            held = read_lease(text)
            if held and held.token != mine.token and self._lives(held, home, touched, now):
                return failure(DrafthouseError(refused(held, home)))
            if self._task.check_mode:
                return {"changed": False}
            done = self._low_level_execute_command(take_command(home, mine, text))
            if done["rc"] == 0:
                if not held or held.token != mine.token:
                    self._begin_to_beat(home, mine)
                return {"changed": False}
            if done["rc"] != 3:
                # A full disk, or a home that may not be written: what the run is about to do says that better.
                break
        return {"changed": False, "msg": "could not record that this run uses the box"}

    def _look(self, home: str) -> tuple[bool, int, int, str]:
        return parsed_look(
            str(self._low_level_execute_command(f"{{ {look_command(home)}; }} 2>/dev/null").get("stdout") or "")
        )

    def _lives(self, held: Lease, home: str, touched: int, now: int) -> bool:
        """Tell whether the run that holds the lease lives: by its process, or by its next sign of life."""
        lives = held.lives()
        if lives is not None:
            return lives
        # A clock that was set back leaves a file of the future: that one is watched, too.
        if now - touched > SILENT_S:
            return False
        for _ in range(int(SILENT_S / _LOOK_S)):
            time.sleep(_LOOK_S)
            _, again, _, text = self._look(home)
            if again != touched:
                return bool(text)
        return False

    def _begin_to_beat(self, home: str, mine: Lease) -> None:
        if os.fork() == 0:
            try:
                nowhere = os.open(os.devnull, os.O_RDWR)
                for number in range(3):  # whoever reads what the run prints waits for its end, not for ours
                    os.dup2(nowhere, number)
                self._beat(home, mine)
            finally:
                os._exit(0)

    def _beat(self, home: str, mine: Lease) -> None:
        file, local = Path(lease_file(home)), self._connection.transport == "local"

        def beat() -> None:
            if not local:
                self._low_level_execute_command(beat_command(home, mine))
            elif mine.start in file.read_text("utf-8"):  # without a shell beside what is measured
                os.utime(file)

        beat_until(lambda: _ended(mine, BEAT_EVERY_S), beat)


def _ended(run: Lease, within_s: float) -> bool:
    """Wait so long at most for the end of a run; tell whether it has ended."""
    end = time.monotonic() + within_s
    try:
        descriptor = os.pidfd_open(run.pid)
    except (OSError, AttributeError):  # gone, or no Linux
        time.sleep(within_s)
    else:
        select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        os.close(descriptor)
    if run.start:
        return start_of(run.pid) != run.start
    try:
        os.kill(run.pid, 0)
    except OSError:
        return True
    return False
