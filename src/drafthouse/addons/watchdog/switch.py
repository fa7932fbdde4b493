"""The operations with which the watchdog (`run.py`) changes a box's server, and the door that holds requests meanwhile.

`switch_to_phase` switches between the arms of the current release: speculation is off while its baseline serves.
`restore_recorded` puts back the server that the box has recorded. Both start servers as `make rollback` does
(`serving/restore.py`), and hold no requests: the caller closes the door before and opens it afterwards.

`Door` holds requests at the gateway (`templates/gateway/Caddyfile.j2`). While the file `closed` exists, Caddy asks the
socket at `open` before it passes a request on. `open` is a link to the socket `pass.sock`, on which Caddy itself
answers that the request may go on. A closed door has no such link, so Caddy tries again until the link is back, for
``hold_s`` seconds (a setting of the gateway) at most; no part of a held request has been sent to the engine. Without a
gateway, or with a ``hold_s`` of 0, there is no door, and requests during a start are refused.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ...core.locks import is_held
from ...serving.restore import put_back_current, switch_arm
from .decision import OFF

# The files of a door, in the gateway's folder for it (`gateway_door.door_folder`).
CLOSED_MARKER = "closed"  # exists while the door is closed
OPEN_LINK = "open"  # the link to the socket; exists while the door is open
SOCKET = "pass.sock"  # Caddy's own socket, which answers that a request may go on
# The arms of a release.
BASELINE = "baseline"
SPECULATIVE = "speculative"


class Door:
    """The gateway's door for requests: open, they pass to the engine; closed, they wait in the gateway.

    ``folder``: the folder of its files, '' without a gateway: ``exists`` is False then, and `open` and `close` do
    nothing.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder) if folder else None

    @property
    def exists(self) -> bool:
        """True if the gateway runs with a door: it has created the socket."""
        return self.folder is not None and (self.folder / SOCKET).is_socket()

    @property
    def is_closed(self) -> bool:
        """True if requests are held."""
        return self.folder is not None and (self.folder / CLOSED_MARKER).exists()

    def close(self) -> None:
        """Hold all further requests."""
        if self.folder is not None:
            # Remove the link before creating the marker, because a request that finds both would pass.
            (self.folder / OPEN_LINK).unlink(missing_ok=True)
            (self.folder / CLOSED_MARKER).touch(mode=0o644)

    def open(self) -> None:
        """Pass on the held requests, and do not hold further ones; if the door is open, do nothing."""
        if self.folder is None or not self.is_closed:
            return
        # Restore the link before removing the marker: if this program ends in between, the door still counts as closed,
        # and the next call completes the opening.
        with contextlib.suppress(FileExistsError):
            (self.folder / OPEN_LINK).symlink_to(SOCKET)
        (self.folder / CLOSED_MARKER).unlink()


def switch_to_phase(home: Path, phase: str, why: str) -> None:
    """Switch to the baseline for the phase OFF, else (ON, TRIAL) to the speculative arm; return once it has answered.

    ``why``: the reason, for the box's history. If the arm does not answer, the previous one is restored, and
    DrafthouseError says why the switch failed, and why the restore did if that failed too.
    """
    switch_arm(home, BASELINE if phase == OFF else SPECULATIVE, why)


def restore_recorded(home: Path) -> None:
    """Restore the recorded server after an interrupted change, unless it runs already. Raises DrafthouseError."""
    put_back_current(home)


def is_box_locked(home: Path, kernel_locks: str | None = None) -> bool:
    """True if a measurement, or another change of the server, holds the lock of the box (see `locks.is_held`)."""
    return is_held(home / "benchmark.lock", kernel_locks)
