"""Change what a box serves so that no client sees a failure: in a quiet moment, behind a closed door.

What is put in the place of what, and how in either runtime, is `serving/restore.py`'s: the watchdog changes servers the
way `make rollback` does. Speculation is switched off by the release's baseline arm (`restart`), or by a release of the
same profile whose engine chooses the drafted tokens by batch size (`schedule`).

The door is the gateway's (`templates/gateway/Caddyfile.j2`). Where the file `closed` stands in its folder, requests are
sent to a socket, `open`, that is not there, and Caddy tries again until it is: nothing of them was sent yet, so nothing
is lost. Behind the socket the gateway itself listens, and passes them on to the engine. Without a gateway there is no
door: then only the moment is chosen, and what comes while the server starts finds nobody.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import DrafthouseError, one_problem
from ...profiles.watchdog_settings import SCHEDULE
from ...serving.containers import of_image
from ...serving.history import SERVED, add_event
from ...serving.releases import Release, current, keep_release, read_release
from ...serving.restore import for_arm, put_back, put_back_current, said_of_return, switch_arm
from .decision import OFF
from .journal import FOLDER

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.serving.containers import Running
    from drafthouse.serving.history import Serving

CLOSED, OPEN, SOCKET = "closed", "open", "pass.sock"
#: The resolved profile with the switch by batch size, for the mode `schedule`.
SCHEDULED = "scheduled.json"
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


def serve(home: Path, mode: str, phase: str, why: str) -> None:
    """Have the box serve what a phase of the watch asks for; return once it has answered a real request.

    Where it does not, what served before comes back. Raises DrafthouseError then, with both reasons.
    """
    if mode == SCHEDULE:
        _serve_scheduled(home, why)
    else:
        switch_arm(home, BASELINE if phase == OFF else SPECULATIVE, why)


def restore(home: Path) -> None:
    """Have the box serve what is recorded, after a change that was broken off. Raises DrafthouseError."""
    put_back_current(home)


def _serve_scheduled(home: Path, why: str) -> None:
    """Serve the speculative arm of the release with the switch by batch size: there is no way back but a run."""
    now = current(home)
    if now is None:
        raise one_problem(
            "nothing-served", "no server is recorded as serving", "a running server", "make NAME", "release"
        )
    release = _scheduled_release(home, read_release(home, str(now["release"])))
    try:
        put_back(home, release.id, SPECULATIVE)
    except DrafthouseError as error:
        raise DrafthouseError([*error.problems, said_of_return(home)]) from error
    add_event(home, SERVED, **release.facts(SPECULATIVE), why=why)


def _scheduled_release(home: Path, before: Release) -> Release:
    """Return the release with the switch, which is made where it is not there; it has the plain one's paths."""
    resolved: ResolvedProfile = json.loads((home / FOLDER / SCHEDULED).read_text("utf-8"))
    kept = before.running[SPECULATIVE]
    if resolved["site"]["runtime"] == "docker":
        running: Running = of_image(kept["Image"], resolved, SPECULATIVE)
    else:
        script = next(file for file in resolved["arms"][SPECULATIVE]["files"] if file["path"] == "serve.sh")
        text = for_arm(kept["configuration"], SPECULATIVE, SPECULATIVE, script["content"].encode())
        running = {"configuration": text}
    return keep_release(home, {**resolved, "scheduled_from": before.id}, SPECULATIVE, running)


def phase_served(home: Path, now: Serving) -> bool:
    """Tell whether what serves drafts at every load: the speculative arm, without a switch by batch size of ours."""
    if now["arm"] != SPECULATIVE:
        return False
    with contextlib.suppress(DrafthouseError):
        return not read_release(home, str(now["release"])).resolved.get("scheduled_from")
    return True


def is_measured(home: Path, locks: str | None = None) -> bool:
    """Tell whether a measurement of ours is under way: somebody holds its lock."""
    return is_held(home / "benchmark.lock", locks)


def is_held(file: Path, locks: str | None = None) -> bool:
    """Tell whether a process holds the lock of a file.

    Read from the kernel's list: who tries the lock itself could be taken for an orphaned run, and ended.
    """
    try:
        inode = file.stat().st_ino
        text = Path("/proc/locks").read_text("utf-8") if locks is None else locks
    except OSError:
        return False
    return any(line.split()[1:2] == ["FLOCK"] and f":{inode} " in line for line in text.splitlines())
