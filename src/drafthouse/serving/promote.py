"""Record which server the box should run, after checks: it answers and, if it replaces another, stays up for a while.

Standard library only, Python 3.10: it runs on the box.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DrafthouseError, one_problem
from .containers import record_of_present
from .first_request import REQUEST_S
from .history import ENDED, SERVED, add_event, facts_of, put_ballast
from .releases import KEEP, current_server, identity_of, keep_release, prune_releases, read_release
from .restore import ignore, wait_for
from .runtimes import State, is_same_start, process_age_of, runtime_of
from .supervisor import Supervisor

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.serving.containers import ArmRecord
    from drafthouse.serving.history import ServerFacts

# Seconds that a server must stay up before it replaces another one.
LIVES_S = 30.0
_LAST_LINES = 15  # of the engine's log, in a message


def accept(
    home: str | Path,
    resolved: ResolvedProfile,
    arm: str,
    why: str,
    keep: int = KEEP,
    lives_s: float = 0.0,
    tell: Tell = ignore,
) -> ServerFacts | None:
    """Record a running ``arm``, which has answered a request, as the server that should run from now on.

    If it replaces another release's server, wait until it has run for ``lives_s`` seconds (0: do not wait) and answers
    then. Keep its release and the ``keep`` - 1 before it. ``why``: the reason, for the history. Return its facts, None
    if it was recorded before. Raises DrafthouseError.
    """
    if lives_s and current_server(home) and not _is_current_release(home, resolved):
        _outlive(Path(home), resolved, arm, lives_s, tell)
    record_of_arm = _present_record(Path(home), resolved, arm)
    release = keep_release(home, resolved, arm, record_of_arm)
    facts = release.facts(arm)
    server = current_server(home)
    if server and facts_of(server) == facts:
        return None
    add_event(home, SERVED, **facts, why=why)
    prune_releases(home, keep)
    put_ballast(home)
    return facts


def would_accept(home: str | Path, resolved: ResolvedProfile, arm: str) -> bool:
    """True if `accept` would record a change: no server, another arm, or another release should run so far."""
    server = current_server(home)
    return not server or server.get("arm") != arm or not _is_current_release(home, resolved)


def _is_current_release(home: str | Path, resolved: ResolvedProfile) -> bool:
    """True if the server that should run is an arm of exactly this resolved profile."""
    server = current_server(home)
    if server is None:
        return False
    try:
        release = read_release(home, str(server["release"]))
    except DrafthouseError:
        return False
    return release.resolved.get("identity") == identity_of(resolved)


def _outlive(home: Path, resolved: ResolvedProfile, arm: str, lives_s: float, tell: Tell) -> None:
    """Wait until an arm has run for ``lives_s`` seconds without a restart, and answers a request then.

    The answers before are not enough: some engines die a while after their first request. Raises DrafthouseError if
    the arm dies or does not answer.
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


def _age_of(state: State, most_s: float) -> float:
    """Seconds since an arm's start: its process's age or, if that is not visible (in a container), the wall clock's.

    A wall clock that was set gives any age, so its value is limited to 0 to ``most_s``: that limits the wait of
    `_outlive`.
    """
    age_s = process_age_of(state)
    if age_s is not None:
        return age_s
    if not state.started:
        return 0.0
    return min(max(0.0, time.time() - state.started), most_s)


def record_end(home: str | Path, why: str) -> ServerFacts | None:
    """Record that no server should run any more; return the facts of the one that should, None if there was none."""
    server = current_server(home)
    if server is None:
        return None
    facts = facts_of(server)
    add_event(home, ENDED, **facts, why=why)
    return facts


def _present_record(home: Path, resolved: ResolvedProfile, arm: str) -> ArmRecord:
    """How the arm runs at this moment; `put_back` restores it from this record."""
    if resolved["site"]["runtime"] == "docker":
        return record_of_present(resolved, arm)
    return {"configuration": Supervisor(home / "supervisor").present_configuration()}
