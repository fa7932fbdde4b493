"""The parts with which the watchdog changes what a box serves so that no client sees a failure; `run.py` orders them.

`serve` and `restore` change servers the way `make rollback` does (`serving/restore.py`); speculation is switched off by
the release's baseline arm. `Door` is the gateway's (`templates/gateway/Caddyfile.j2`): closing it creates the file
`closed` and removes the link `open`, which points to the gateway's own socket. Caddy then dials the missing `open` and
tries again until the link is back, so requests wait instead of failing, and nothing of them was sent. Without a gateway
there is no door: requests that come while the server starts are refused.
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
    """The gateway's door; ``folder`` is empty where there is none."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder) if folder else None

    @property
    def there(self) -> bool:
        """Whether the gateway has a door: it made the socket."""
        return self.folder is not None and (self.folder / SOCKET).is_socket()

    @property
    def is_closed(self) -> bool:
        """Whether requests are held."""
        return self.folder is not None and (self.folder / CLOSED).exists()

    def close(self) -> None:
        """Hold the requests that come from now on."""
        if self.folder is not None:
            (self.folder / OPEN).unlink(missing_ok=True)
            (self.folder / CLOSED).touch(mode=0o644)

    def open(self) -> None:
        """Let those go on that are held, then all others."""
        if self.folder is None or not self.is_closed:
            return
        with contextlib.suppress(FileExistsError):
            (self.folder / OPEN).symlink_to(SOCKET)
        (self.folder / CLOSED).unlink()


def serve(home: Path, phase: str, why: str) -> None:
    """Have the box serve what a phase of the watch asks for; return once it has answered a real request.

    Where it does not, what served before comes back. Raises DrafthouseError then, with both reasons.
    """
    switch_arm(home, BASELINE if phase == OFF else SPECULATIVE, why)


def restore(home: Path) -> None:
    """Have the box serve what is recorded, after a change that was broken off. Raises DrafthouseError."""
    put_back_current(home)


def is_measured(home: Path, locks: str | None = None) -> bool:
    """Tell whether a measurement of ours is under way: somebody holds its lock."""
    return is_held(home / "benchmark.lock", locks)


def is_held(file: Path, locks: str | None = None) -> bool:
    """Tell whether a process holds the lock of a file, by the kernel's list.

    Trying the lock instead would hold it for a moment, and a run that clears up would take this process for an orphaned
    one and kill it. Only inodes are compared: overlay file systems give `stat` another device than the kernel's list.
    """
    try:
        inode = file.stat().st_ino
        text = Path("/proc/locks").read_text("utf-8") if locks is None else locks
    except OSError:
        return False
    return any(line.split()[1:2] == ["FLOCK"] and f":{inode} " in line for line in text.splitlines())
