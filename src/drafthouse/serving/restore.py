"""Serve a release again, on the box and without Ansible: files, supervisord or container, health, a real request.

For a run that failed, for `make rollback`, for the box's own start, and for whatever on the box changes arms. Standard
library only, Python 3.10: it also runs out of the archive of the box's programs (`core/box_archive.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.files import lay_out
from ..core.locks import only_one
from .containers import drifted as container_drifted
from .containers import look_for_image, of_image, ours, remove_of, run_alone
from .first_request import REQUEST_S
from .history import BALLAST_BYTES, ROLLED_BACK, SERVED, SWITCHED, add_event, facts_of, make_room, read_history
from .readiness import ready_file, wait_until_ready
from .releases import Release, current, earlier, read_release, release_ids
from .runtimes import runtime_of
from .supervisor import Supervisor

if TYPE_CHECKING:
    from drafthouse.core.progress import Event, Tell
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.serving.containers import Running
    from drafthouse.serving.history import ServerFacts


def silent(event: Event) -> None:
    """Tell nobody."""


# --- what serves --------------------------------------------------------------------------------


def drift(home: str | Path) -> str:
    """Why what runs is not what should serve; '' where it is, and where nothing should."""
    home, now = Path(home), current(home)
    if now is None:
        return ""
    arm = str(now["arm"])
    try:
        release = read_release(home, str(now["release"]))
        kept = release.running.get(arm)
        in_container = release.resolved["site"]["runtime"] == "docker"
        if in_container:
            beside = Supervisor(home / "supervisor").running()
        else:
            beside = sorted(name for name, runs in ours(home=home).items() if runs)
        if beside:
            why = f"{', '.join(beside)} also runs"
        elif in_container:
            why = container_drifted(arm, kept)
        else:
            why = _process_drifted(home, arm, kept)
    except DrafthouseError as error:
        return error.problems[0].found
    return why or _files_differ(home, release, arm)


def _process_drifted(home: Path, arm: str, kept: Running | None) -> str:
    supervisor = Supervisor(home / "supervisor")
    running = supervisor.running()
    if running != [arm]:
        return f"{' and '.join(running) or 'nothing'} runs instead of the {arm} arm"
    if kept and supervisor.written() != kept["configuration"]:
        return f"the {arm} arm runs with another configuration"
    return ""


def _files_differ(home: Path, release: Release, arm: str) -> str:
    for entry in _entries(home, release, arm):
        try:
            same = Path(entry["path"]).read_bytes() == entry["content"].encode()
        except OSError:
            same = False
        if not same:
            return f"{entry['path']} differs from the release's"
    return ""


# --- serve it again -----------------------------------------------------------------------------


def put_back(
    home: str | Path, release: str, arm: str, tell: Tell = silent, request_timeout_s: float = REQUEST_S
) -> float:
    """Make an arm of a release the one server of this box; return the seconds until it had answered a request.

    One that runs as it should is left alone. History is the caller's. Raises DrafthouseError.
    """
    home, begun = Path(home), time.monotonic()
    kept = read_release(home, release)
    resolved = kept.resolved
    if arm not in resolved["arms"]:
        known = ", ".join(resolved["arms"])
        raise one_problem(
            "no-such-release", f"no arm '{arm}' in release {release}", f"one of: {known}", "name one", "arm"
        )
    _check(kept, arm)
    if shutil.disk_usage(home).free < BALLAST_BYTES:
        make_room(home)
    tell({"text": f"restoring release {release}: {resolved['profile']}, the {arm} arm"})
    lay_out(_entries(home, kept, *resolved["arms"]))
    try:
        if resolved["site"]["runtime"] == "docker":
            Supervisor(home / "supervisor").shut_down()
            run_alone(arm, _container_of(kept, arm))
        else:
            remove_of(home)
            supervisor = Supervisor(home / "supervisor", home / "venv" / "bin" / "supervisord")
            supervisor.converge(_configuration_of(home, kept, arm), [arm], fresh=False)
    except OSError as error:
        raise one_problem(
            "server-not-restored",
            error.strerror or str(error),
            "a box that can start the last good server",
            "free some space, and check that drafthouse_home is writable",
            str(error.filename or home),
        ) from error
    wait_for(home, resolved, arm, tell, request_timeout_s)
    return time.monotonic() - begun


def _check(release: Release, arm: str) -> None:
    """Raise DrafthouseError where something that the release needs is gone, before anything else is ended for it."""
    resolved = release.resolved
    needed = [Path(item["path"]) for item in resolved.get("weights") or []] + [Path(resolved["key_file"])]
    if resolved["site"]["runtime"] == "process":
        needed.append(Path(resolved["engine"]["home"]))
    gone = [str(path) for path in needed if not path.exists()]
    if gone:
        do = f"run make {resolved['profile']}, which installs them again"
        found = f"release {release.id} needs missing files: {', '.join(gone)}"
        raise one_problem("release-incomplete", found, "the weights, engine and key it served with", do, "rollback")
    if resolved["site"]["runtime"] == "docker":
        look_for_image(_container_of(release, arm))


def _entries(home: Path, release: Release, *arms: str) -> list[dict[str, str]]:
    """The rendered files of arms at their places, as `lay_out` takes them."""
    folder = f"{home}/serve/{release.resolved['profile']}"
    entries = []
    for arm in arms:
        for file in release.resolved["arms"][arm]["files"]:
            path = f"{folder}/{arm}/{file['path']}"
            entries.append({"path": path, "mode": file["mode"], "content": file["content"]})
    return entries


def _container_of(release: Release, arm: str) -> Running:
    kept = release.running.get(arm)
    if kept:
        return kept
    return of_image(_one_of(release)["Image"], release.resolved, arm)


def _configuration_of(home: Path, release: Release, arm: str) -> str:
    kept = release.running.get(arm)
    if kept:
        return kept["configuration"]
    other = next(iter(release.running))
    script = home / "serve" / release.resolved["profile"] / arm / "serve.sh"
    return for_arm(_one_of(release)["configuration"], other, arm, script.read_bytes())


def _one_of(release: Release) -> Running:
    if not release.running:
        found = f"release {release.id} does not record how it was run"
        raise one_problem(
            "release-incomplete", found, "a running-ARM.json in its folder", "serve its profile again", release.id
        )
    return next(iter(release.running.values()))


def for_arm(configuration: str, old: str, new: str, script: bytes) -> str:
    """Supervisord's configuration of one arm as the other's: name, log, script and its hash."""
    digest = hashlib.sha256(script).hexdigest()[:16]
    text = configuration.replace(f"[program:{old}]", f"[program:{new}]")
    text = text.replace(f"/{old}/serve.sh", f"/{new}/serve.sh").replace(f"/{old}.log", f"/{new}.log")
    return re.sub(r'DRAFTHOUSE_SCRIPT="[^"]*"', f'DRAFTHOUSE_SCRIPT="{digest}"', text)


def wait_for(home: Path, resolved: ResolvedProfile, arm: str, tell: Tell, request_timeout_s: float) -> None:
    """Wait until an arm on the site's port has answered a request. Raises DrafthouseError."""
    site, engine = resolved["site"], resolved["engine"]
    wait_until_ready(
        runtime_of(site["runtime"], site["home"]),
        name=arm,
        base_url=f"http://{site['host']}:{site['port']}",
        health=engine["health"],
        model=resolved["target"]["served_name"],
        key=Path(resolved["key_file"]).read_text("utf-8").strip(),
        timeout_s=float(engine["ready_timeout_s"]),
        progress=tell,
        keep=ready_file(home, arm),
        request_timeout_s=request_timeout_s,
    )


# --- changes without a run ----------------------------------------------------------------------


def put_back_current(home: str | Path, tell: Tell = silent, why: str = "") -> tuple[ServerFacts, float] | None:
    """Bring back what should serve; return its facts and the seconds it took, None where nothing should.

    With ``why`` that is an event: something else served, or nothing. Raises DrafthouseError.
    """
    now = current(home)
    if now is None:
        return None
    seconds = put_back(home, str(now["release"]), str(now["arm"]), tell)
    facts = facts_of(now)
    if why:
        # It serves what the history says already: a disk that is still full takes nothing from that.
        with contextlib.suppress(DrafthouseError):
            add_event(home, SERVED, **facts, why=why)
    return facts, seconds


def roll_back(home: str | Path, to: str = "", why: str = "asked for", tell: Tell = silent) -> tuple[ServerFacts, float]:
    """Serve an earlier release, the one before unless ``to`` names another; return its facts and the seconds.

    Where it does not answer, what served before comes back. Raises DrafthouseError with both reasons.
    """
    target = _target(home, to)
    release = read_release(home, target)
    arm = _arm_of(home, release)
    return _change(home, release, arm, ROLLED_BACK, why, tell)


def switch_arm(home: str | Path, arm: str, why: str, tell: Tell = silent) -> tuple[ServerFacts, float]:
    """Serve the other arm of the release that serves; where it does not answer the present one comes back."""
    now = current(home)
    if now is None:
        raise one_problem(
            "nothing-served",
            "no server is recorded as serving",
            "a running server whose arm can be changed",
            "make NAME",
            "arm",
        )
    return _change(home, read_release(home, str(now["release"])), arm, SWITCHED, why, tell)


def _change(
    home: str | Path, release: Release, arm: str, event: str, why: str, tell: Tell
) -> tuple[ServerFacts, float]:
    now = current(home)
    try:
        seconds = put_back(home, release.id, arm, tell)
    except DrafthouseError as error:
        problems = list(error.problems)
        if now:
            problems.append(said_of_return(home, tell))
        raise DrafthouseError(problems) from error
    facts = release.facts(arm)
    add_event(home, event, **facts, why=why)
    return facts, seconds


def said_of_return(home: str | Path, tell: Tell = silent) -> Problem:
    """Bring back what should serve, and say what became of it: the second reason of a run that failed."""
    try:
        back = put_back_current(home, tell)
    except DrafthouseError as error:
        first = error.problems[0]
        return Problem(
            first.code, f"the last good server did not start again: {first.found}", first.needed, first.do, first.where
        )
    if back is None:
        return Problem(
            "nothing-served", "no earlier server", "a server that answers", "fix the cause above and run again"
        )
    facts, seconds = back
    return Problem(
        "last-server-restored",
        f"the last good server runs again: {shown(facts)}; it answers again after {seconds:.1f} s",
        "the change, which failed",
        "fix the cause above and run again; make history shows both",
    )


def shown(facts: ServerFacts) -> str:
    """A release for a person: ``release 0002 (NAME, the speculative arm, vllm 0.32.0)``."""
    return (
        f"release {facts['release']} ({facts['profile']}, the {facts['arm']} arm, {facts['engine']} {facts['version']})"
    )


def _target(home: str | Path, to: str) -> str:
    known = release_ids(home)
    if to:
        number = to
        if known and to.isdigit():
            number = to.zfill(len(known[0]))
        if number in known:
            return number
        found, needed = f"no release '{to}'", f"one of: {', '.join(known) or '(none is kept)'}"
        raise one_problem(
            "no-such-release", found, needed, "choose one of them (make history shows when each served)", "TO"
        )
    before = earlier(home)
    if before is None:
        found, do = "no release: nothing has served here yet", "serve one first: make NAME"
        if known:
            found, do = "no earlier release", "name another profile: make NAME"
        raise one_problem("no-earlier-release", found, "a release that served before this one", do, "rollback")
    return before


def _arm_of(home: str | Path, release: Release) -> str:
    """The arm that a release served last."""
    for event in reversed(read_history(home)):
        arm = str(event.get("arm"))
        if event.get("release") == release.id and arm in release.resolved["arms"]:
            return arm
    return next(iter(release.running))


def at_start(home: str | Path) -> int:
    """Serve what should serve, when the box starts; return the exit status. A run that is quicker is not disturbed."""
    why = drift(home)
    if not why:
        return 0
    try:
        with only_one(Path(home) / "benchmark.lock", end_others=False):
            back = put_back_current(home, lambda event: print(event["text"], flush=True), f"the box started: {why}")
    except DrafthouseError as error:
        print(error, file=sys.stderr)
        return 1
    if back:
        print(f"{shown(back[0])} answers after {back[1]:.1f} s")
    return 0
