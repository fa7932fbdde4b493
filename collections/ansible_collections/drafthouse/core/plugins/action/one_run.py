"""Take the lease that lets only one run work in our folder on a box, or fail before anything is changed."""

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
_LOOK_S = 1.0  # seconds between two looks at another run's lease


class ActionModule(Action):
    """`drafthouse.core.one_run`: ``resolved`` is the profile, ``phase`` is shown to a run that is refused.

    If our folder is missing, it is made with ``make``, and nothing is done without. Check mode only looks. A process
    beside ansible-playbook renews the lease every few seconds, and ends with it.
    """

    _VALID_ARGS = frozenset({"resolved", "phase", "make"})
    _NEEDED = ("resolved", "phase")

    def answer(self, variables: TaskVars) -> Answer:
        """Take the lease; a failure names the run that holds it."""
        given = self._task.args
        resolved = given["resolved"]
        home = str(resolved["site"]["home"])
        # Tasks are processes of their own, so their parent is ansible-playbook itself.
        mine = lease_of(os.getppid(), str(resolved["profile"]), str(given["phase"]))
        for _ in range(_TRIES):
            exists, touched, now, text = self._look(home)
            if not exists and not given.get("make"):
                return {"changed": False}
            held = read_lease(text)
            if held and held.token != mine.token and self._is_alive(held, home, touched, now):
                return failure(DrafthouseError(refused(held, home)))
            if self._task.check_mode:
                return {"changed": False}
            done = self._low_level_execute_command(take_command(home, mine, text))
            if done["rc"] == 0:
                if not held or held.token != mine.token:
                    self._start_heartbeats(home, mine)
                return {"changed": False}
            if done["rc"] != 3:
                # A full disk, or no right to write there: the next tasks explain that better.
                break
        return {"changed": False, "msg": "could not record that this run uses the box"}

    def _look(self, home: str) -> tuple[bool, int, int, str]:
        """State of the lease on the box, as of `parsed_look`."""
        answer = self._low_level_execute_command(f"{{ {look_command(home)}; }} 2>/dev/null")
        return parsed_look(str(answer.get("stdout") or ""))

    def _is_alive(self, held: Lease, home: str, touched: int, now: int) -> bool:
        """True if the run that holds the lease still runs, by its process, or else by its next heartbeat."""
        lives = held.lives()
        if lives is not None:
            return lives
        # Also watched if ``touched`` is in the future, because the clock was set back.
        if now - touched > SILENT_S:
            return False
        for _ in range(int(SILENT_S / _LOOK_S)):
            time.sleep(_LOOK_S)
            _, again, _, text = self._look(home)
            if again != touched:
                return bool(text)
        return False

    def _start_heartbeats(self, home: str, mine: Lease) -> None:
        """Start a process that renews the lease until ansible-playbook ends."""
        if os.fork() == 0:
            try:
                nowhere = os.open(os.devnull, os.O_RDWR)
                for number in range(3):  # a reader of the run's output must not wait for this process
                    os.dup2(nowhere, number)
                self._beat(home, mine)
            finally:
                os._exit(0)

    def _beat(self, home: str, mine: Lease) -> None:
        """Renew the lease by its file's modification time."""
        file = Path(lease_file(home))
        is_local = self._connection.transport == "local"

        def beat() -> None:
            if not is_local:
                self._low_level_execute_command(beat_command(home, mine))
            elif mine.start in file.read_text("utf-8"):  # no shell, which would disturb the measurement
                os.utime(file)

        beat_until(lambda: _ended(mine, BEAT_EVERY_S), beat)


def _ended(run: Lease, within_s: float) -> bool:
    """True if the run has ended; waits for its end, at most ``within_s`` seconds."""
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
