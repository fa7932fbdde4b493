"""The operations with which the watchdog (`run.py`) changes a box's server, so that no client's request fails.

`serve` and `restore` change servers like `make rollback` (`serving/restore.py`): to the release's baseline arm to
switch speculation off. `Door` holds requests at the gateway (`templates/gateway/Caddyfile.j2`). Closing it creates the
file `closed` and removes the link `open` to the gateway's socket. Caddy then dials the missing `open` until the link is
back: requests wait, and no part of them has been sent to the engine. Without a gateway there is no door, and requests
during a start are refused.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ...serving.restore import put_back_current, switch_arm
from .decision import OFF

#: In the gateway's folder: the marker of a closed door, the link that Caddy dials, and the socket that it points to.
CLOSED, OPEN, SOCKET = "closed", "open", "pass.sock"
BASELINE, SPECULATIVE = "baseline", "speculative"


class Door:
    """The gateway's door for requests; ``folder`` is '' without a gateway."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder) if folder else None

    @property
    def exists(self) -> bool:
        """True if the gateway runs with a door: it has created the socket."""
        return self.folder is not None and (self.folder / SOCKET).is_socket()

    @property
    def is_closed(self) -> bool:
        """True if requests are held."""
        return self.folder is not None and (self.folder / CLOSED).exists()

    def close(self) -> None:
        """Hold all further requests."""
        if self.folder is not None:
            (self.folder / OPEN).unlink(missing_ok=True)
            (self.folder / CLOSED).touch(mode=0o644)

    def open(self) -> None:
        """Pass on the held requests, and do not hold further ones."""
        if self.folder is None or not self.is_closed:
            return
        with contextlib.suppress(FileExistsError):
            (self.folder / OPEN).symlink_to(SOCKET)
        (self.folder / CLOSED).unlink()


def serve(home: Path, phase: str, why: str) -> None:
    """Serve the arm for a phase of the watch (baseline for OFF); return once it has answered a request.

    If it does not answer, the previous arm is restored. Raises DrafthouseError then, with both reasons.
    """
    switch_arm(home, BASELINE if phase == OFF else SPECULATIVE, why)


def restore(home: Path) -> None:
    """Restore the recorded server after an interrupted change. Raises DrafthouseError."""
    put_back_current(home)


def is_measured(home: Path, locks: str | None = None) -> bool:
    """True if a measurement, or another change of the server, holds the lock of the box."""
    return is_held(home / "benchmark.lock", locks)


def is_held(file: Path, locks: str | None = None) -> bool:
    """True if a process holds the lock of a file, by the kernel's list (``locks``, /proc/locks by default).

    Taking the lock as a test would hold it for a moment, and a new run kills a process that holds it as an orphaned
    job. Only inodes are compared: on an overlay file system, `stat` and the kernel's list have different devices.
    """
    try:
        inode = file.stat().st_ino
        text = Path("/proc/locks").read_text("utf-8") if locks is None else locks
    except OSError:
        return False
    return any(line.split()[1:2] == ["FLOCK"] and f":{inode} " in line for line in text.splitlines())
