"""The operations with which the watchdog (`run.py`) changes a box's server, so that no client's request fails.

`serve` switches between the arms of the present release: speculation is off while its baseline serves. `restore` puts
back the server that the box has recorded. Both start servers as `make rollback` does (`serving/restore.py`).

`Door` holds requests at the gateway (`templates/gateway/Caddyfile.j2`). Closing it removes the link `open`, which leads
to the gateway's socket, and creates the file `closed`. Caddy then dials the missing `open` until the link is back:
requests wait, and no part of them has been sent to the engine. Without a gateway there is no door, and requests during
a start are refused.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ...serving.restore import put_back_current, switch_arm
from .decision import OFF

# The files of a door, in the gateway's folder for it (`gateway_door.door_folder`).
CLOSED_MARKER = "closed"  # exists while the door is closed
OPEN_LINK = "open"  # the link that Caddy dials for held requests; exists while the door is open
SOCKET = "pass.sock"  # Caddy's own socket, to which the link leads; it answers that a request may go on
# The arms of a release.
BASELINE = "baseline"
SPECULATIVE = "speculative"


class Door:
    """The gateway's door for requests: open, they pass to the engine; closed, they wait in the gateway.

    ``folder``: the folder of its files, '' without a gateway. Such a door does not exist, and opening or closing it
    does nothing.
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
            # Before the marker: a request that finds the marker must not find the link too, which would let it pass.
            (self.folder / OPEN_LINK).unlink(missing_ok=True)
            (self.folder / CLOSED_MARKER).touch(mode=0o644)

    def open(self) -> None:
        """Pass on the held requests, and do not hold further ones; nothing is done if the door is open."""
        if self.folder is None or not self.is_closed:
            return
        # Before the marker goes: if this program ends in between, the door still counts as closed, so that the next
        # call, which finds the link, completes the opening.
        with contextlib.suppress(FileExistsError):
            (self.folder / OPEN_LINK).symlink_to(SOCKET)
        (self.folder / CLOSED_MARKER).unlink()


def serve(home: Path, phase: str, why: str) -> None:
    """Serve the baseline for the phase OFF, else (ON, TRIAL) the speculative arm; return once it answered a request.

    ``why``: the reason, for the box's history. If the arm does not answer, the previous one is restored. Raises
    DrafthouseError then, with both reasons.
    """
    switch_arm(home, BASELINE if phase == OFF else SPECULATIVE, why)


def restore(home: Path) -> None:
    """Restore the recorded server after an interrupted change, unless it serves. Raises DrafthouseError."""
    put_back_current(home)


def is_box_locked(home: Path, kernel_locks: str | None = None) -> bool:
    """True if a measurement, or another change of the server, holds the lock of the box; see `is_held`."""
    return is_held(home / "benchmark.lock", kernel_locks)


def is_held(file: Path, kernel_locks: str | None = None) -> bool:
    """True if a process holds the lock (flock) of a file; False too if the file or the kernel's list cannot be read.

    ``kernel_locks``: the kernel's list of all locks, by default the content of /proc/locks. The list is read, because
    the only other test is to take the lock: a run that begins in that moment would take the process that holds it for
    a job left over from an earlier run, and kill it.
    """
    try:
        inode = file.stat().st_ino
        text = Path("/proc/locks").read_text("utf-8") if kernel_locks is None else kernel_locks
    except OSError:
        return False
    # A line: "1: FLOCK  ADVISORY  WRITE 4242 08:01:131099 0 EOF", with the pid and then device and inode of the file.
    # The device is not compared: on an overlay file system, `stat` and this list have different ones.
    return any(line.split()[1:2] == ["FLOCK"] and f":{inode} " in line for line in text.splitlines())
