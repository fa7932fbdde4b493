"""What a server must have shown to be the last good one: it answered, and where it replaces another, it lived.

Standard library only, Python 3.10: it runs on the box.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DrafthouseError, one_problem
from .containers import record
from .first_request import REQUEST_S
from .history import ENDED, SERVED, add_event, facts_of, put_ballast
from .releases import KEEP, current, identity, keep_release, prune_releases, read_release
from .restore import silent, wait_for
from .runtimes import State, is_same_start, process_age_of, runtime_of
from .supervisor import Supervisor

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.serving.containers import Running
    from drafthouse.serving.history import ServerFacts

# How long a server must live before it replaces another one.
LIVES_S = 30.0
_LAST_LINES = 15


def accept(
    home: str | Path,
    resolved: ResolvedProfile,
    arm: str,
    why: str,
    keep: int = KEEP,
    lives_s: float = 0.0,
    tell: Tell = silent,
) -> ServerFacts | None:
    """Note that an arm which runs, and has answered, is from now on what should serve.

    Where another server would be replaced for it, it must have lived for ``lives_s``, and answer then. Returns the
    event's facts, None where that is so already. Raises DrafthouseError.
    """
    if lives_s and current(home) and not _is_release(home, resolved):
        _outlive(Path(home), resolved, arm, lives_s, tell)
    running = _running(Path(home), resolved, arm)
    release = keep_release(home, resolved, arm, running)
    facts, now = release.facts(arm), current(home)
    if now and facts_of(now) == facts:
        return None
    add_event(home, SERVED, **facts, why=why)
    prune_releases(home, keep)
    put_ballast(home)
    return facts


def would_accept(home: str | Path, resolved: ResolvedProfile, arm: str) -> bool:
    """Tell whether `accept` would note anything."""
    now = current(home)
    return not now or now.get("arm") != arm or not _is_release(home, resolved)


def _is_release(home: str | Path, resolved: ResolvedProfile) -> bool:
    """Tell whether what should serve is this very resolved profile, in either arm."""
    now = current(home)
    try:
        release = read_release(home, str(now and now["release"]))
    except DrafthouseError:
        return False
    return release.resolved.get("identity") == identity(resolved)


def _outlive(home: Path, resolved: ResolvedProfile, arm: str, lives_s: float, tell: Tell) -> None:
    """Wait until an arm has run for ``lives_s`` seconds without a new start, and then answers.

    Raises DrafthouseError. An engine that dies after a while has answered before: at its first request, or when it was
    measured.
    """
    runtime = runtime_of(resolved["site"]["runtime"], home)
    first = runtime.state(arm)
    begun_s = time.monotonic() - _age_of(first, lives_s)
    while True:
        state = runtime.state(arm)
        lived_s = time.monotonic() - begun_s
        if not state.running or not is_same_start(state, first):
            raise one_problem(
                "engine-died",
                f"the {arm} arm died {lived_s:.0f} s after its start ({state.why}); its last lines:\n"
                + runtime.tail(arm, _LAST_LINES),
                f"an engine that stays up for {lives_s:.0f} s before it replaces another one",
                f"read {runtime.log_name(arm)}",
            )
        if lived_s >= lives_s:
            wait_for(home, resolved, arm, tell, REQUEST_S)
            return
        tell({"text": f"checking that the {arm} arm stays up, {lived_s:.0f} of {lives_s:.0f} s"})
        time.sleep(min(1.0, lives_s - lived_s))


def _age_of(arm: State, most_s: float) -> float:
    """Seconds since an arm's start, by its process where that is visible.

    The wall clock comes second: an hour back would be an hour of waiting, an hour ahead no look at
    all, so that its answer lies between 0 and ``most_s``.
    """
    age_s = process_age_of(arm)
    if age_s is not None:
        return age_s
    if not arm.started:
        return 0.0
    return min(max(0.0, time.time() - arm.started), most_s)


def end(home: str | Path, why: str) -> ServerFacts | None:
    """Note that nothing should serve any more; None where nothing should."""
    now = current(home)
    if now is None:
        return None
    facts = facts_of(now)
    add_event(home, ENDED, **facts, why=why)
    return facts


def _running(home: Path, resolved: ResolvedProfile, arm: str) -> Running:
    """What holds an arm running at this moment, for `put_back`."""
    if resolved["site"]["runtime"] == "docker":
        return record(resolved, arm)
    return {"configuration": Supervisor(home / "supervisor").written()}
