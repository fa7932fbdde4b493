"""Restart the server of a kept release (a resolved profile that served before), on the box and without Ansible.

Four callers use it: a run that failed, `make rollback`, the boot of the box, and the watchdog when it switches arms
(baseline or speculative). A server counts as restored once it has answered a request. Standard library only, Python
3.10: it also runs from the archive of the box's programs (`core/box_archive.py`).
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
from .containers import list_containers, record_of_image, remove_containers_of, require_image, run_alone
from .first_request import REQUEST_S
from .history import BALLAST_BYTES, ROLLED_BACK, SERVED, SWITCHED, add_event, facts_of, make_room, read_history
from .readiness import ready_file, wait_until_ready
from .releases import Release, current_server, earlier_release, read_release, release_ids
from .runtimes import runtime_of
from .supervisor import Supervisor

if TYPE_CHECKING:
    from drafthouse.core.progress import Event, Tell
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.serving.containers import ArmRecord
    from drafthouse.serving.history import ServerFacts


def ignore(event: Event) -> None:
    """Ignore a progress event."""


def drift(home: str | Path) -> str:
    """The first difference between the servers that run and the one that should, as text; '' without a difference.

    '' too if none should run. The order: a server under the other runtime, the arm itself, its files. A release that
    cannot be read, or a runtime that does not answer, is a difference too.
    """
    home = Path(home)
    server = current_server(home)
    if server is None:
        return ""
    arm = str(server["arm"])
    try:
        release = read_release(home, str(server["release"]))
        recorded = release.running.get(arm)
        in_container = release.resolved["site"]["runtime"] == "docker"
        if in_container:
            unexpected = Supervisor(home / "supervisor").running()
        else:
            unexpected = sorted(name for name, runs in list_containers(home=home).items() if runs)
        if unexpected:  # servers under the runtime that this release does not use
            why = f"{', '.join(unexpected)} also runs"
        elif in_container:
            why = container_drifted(arm, recorded)
        else:
            why = _process_drifted(home, arm, recorded)
    except DrafthouseError as error:
        return error.problems[0].found
    return why or _files_differ(home, release, arm)


def _process_drifted(home: Path, arm: str, recorded: ArmRecord | None) -> str:
    """Why not exactly ``arm`` runs, with the ``recorded`` configuration (None: with any); '' if it does."""
    supervisor = Supervisor(home / "supervisor")
    running = supervisor.running()
    if running != [arm]:
        return f"{' and '.join(running) or 'nothing'} runs instead of the {arm} arm"
    if recorded and supervisor.present_configuration() != recorded["configuration"]:
        return f"the {arm} arm runs with another configuration"
    return ""


def _files_differ(home: Path, release: Release, arm: str) -> str:
    """The first file of an arm that is not as in the release, as text; '' if all are."""
    for entry in _files_of(home, release, arm):
        try:
            same = Path(entry["path"]).read_bytes() == entry["content"].encode()
        except OSError:
            same = False
        if not same:
            return f"{entry['path']} differs from the release's"
    return ""


def put_back(
    home: str | Path, release: str, arm: str, tell: Tell = ignore, request_timeout_s: float = REQUEST_S
) -> float:
    """Make an arm of a release the only server of this box; return the seconds until it answered a request.

    A server that already runs as recorded is not restarted. The caller writes the history. Raises DrafthouseError.
    """
    home = Path(home)
    begun = time.monotonic()
    kept_release = read_release(home, release)
    resolved = kept_release.resolved
    if arm not in resolved["arms"]:
        arms = ", ".join(resolved["arms"])
        raise one_problem(
            "no-such-release", f"no arm '{arm}' in release {release}", f"one of: {arms}", "name one", "arm"
        )
    _check_complete(kept_release, arm)
    # Less free than the reserve that the ballast file keeps: use it, so that the files below can be written.
    if shutil.disk_usage(home).free < BALLAST_BYTES:
        make_room(home)
    tell({"text": f"restoring release {release}: {resolved['profile']}, the {arm} arm"})
    lay_out(_files_of(home, kept_release, *resolved["arms"]))
    # To be the only server, it needs the servers under the other runtime to end first.
    try:
        if resolved["site"]["runtime"] == "docker":
            Supervisor(home / "supervisor").shut_down()
            run_alone(arm, _container_of(kept_release, arm))
        else:
            remove_containers_of(home)
            supervisor = Supervisor(home / "supervisor", home / "venv" / "bin" / "supervisord")
            supervisor.converge(_configuration_of(home, kept_release, arm), [arm], fresh=False)
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


def _check_complete(release: Release, arm: str) -> None:
    """Raise DrafthouseError if record, weights, key, engine or image are missing.

    It is called before the present server ends, so that nothing ends for a release that cannot start.
    """
    _first_record(release)  # raises where there is none
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
        require_image(_container_of(release, arm))


def _files_of(home: Path, release: Release, *arms: str) -> list[dict[str, str]]:
    """The rendered files of ``arms`` with their paths on the box, as `lay_out` takes them."""
    folder = f"{home}/serve/{release.resolved['profile']}"
    entries = []
    for arm in arms:
        for file in release.resolved["arms"][arm]["files"]:
            path = f"{folder}/{arm}/{file['path']}"
            entries.append({"path": path, "mode": file["mode"], "content": file["content"]})
    return entries


def _container_of(release: Release, arm: str) -> ArmRecord:
    """The record of an arm's container; an arm that never served gets the image of the other arm."""
    recorded = release.running.get(arm)
    if recorded:
        return recorded
    return record_of_image(_first_record(release)["Image"], release.resolved, arm)


def _configuration_of(home: Path, release: Release, arm: str) -> str:
    """Supervisord's configuration for an arm; one that never served gets the other arm's, with its own names."""
    recorded = release.running.get(arm)
    if recorded:
        return recorded["configuration"]
    other = next(iter(release.running))
    script = home / "serve" / release.resolved["profile"] / arm / "serve.sh"
    return configuration_for_arm(_first_record(release)["configuration"], other, arm, script.read_bytes())


def _first_record(release: Release) -> ArmRecord:
    """The record of one of the arms that served. Raises DrafthouseError if there is none."""
    if not release.running:
        found = f"release {release.id} does not record how it was run"
        raise one_problem(
            "release-incomplete", found, "a running-ARM.json in its folder", "serve its profile again", release.id
        )
    return next(iter(release.running.values()))


def configuration_for_arm(configuration: str, old: str, new: str, script: bytes) -> str:
    """Supervisord's ``configuration`` of the arm ``old``, changed to ``new``: name, log, script and its hash."""
    digest = hashlib.sha256(script).hexdigest()[:16]
    text = configuration.replace(f"[program:{old}]", f"[program:{new}]")
    text = text.replace(f"/{old}/serve.sh", f"/{new}/serve.sh").replace(f"/{old}.log", f"/{new}.log")
    return re.sub(r'DRAFTHOUSE_SCRIPT="[^"]*"', f'DRAFTHOUSE_SCRIPT="{digest}"', text)


def wait_for(home: Path, resolved: ResolvedProfile, arm: str, tell: Tell, request_timeout_s: float) -> None:
    """Wait until the arm on the configured port of the box has answered a request. Raises DrafthouseError."""
    site = resolved["site"]
    engine = resolved["engine"]
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


def put_back_current(home: str | Path, tell: Tell = ignore, why: str = "") -> tuple[ServerFacts, float] | None:
    """Restore the server that should run; return its facts and the seconds it took, or None if none should run.

    With a reason ``why``, the history gets an event for it. Raises DrafthouseError.
    """
    server = current_server(home)
    if server is None:
        return None
    seconds = put_back(home, str(server["release"]), str(server["arm"]), tell)
    facts = facts_of(server)
    if why:
        # The history already names this server, so an event that a full disk prevents is no failure.
        with contextlib.suppress(DrafthouseError):
            add_event(home, SERVED, **facts, why=why)
    return facts, seconds


def roll_back(home: str | Path, to: str = "", why: str = "asked for", tell: Tell = ignore) -> tuple[ServerFacts, float]:
    """Serve the release ``to`` ('': the one before); return its facts and the seconds until it answered.

    If it does not answer, restore the present server and raise DrafthouseError with both outcomes.
    """
    target = _release_to_serve(home, to)
    release = read_release(home, target)
    arm = _last_arm(home, release)
    return _serve_or_restore(home, release, arm, event=ROLLED_BACK, why=why, tell=tell)


def switch_arm(home: str | Path, arm: str, why: str, tell: Tell = ignore) -> tuple[ServerFacts, float]:
    """Serve ``arm`` of the present release, like `roll_back`."""
    server = current_server(home)
    if server is None:
        raise one_problem(
            "nothing-served",
            "no server is recorded as serving",
            "a running server whose arm can be changed",
            "make NAME",
            "arm",
        )
    release = read_release(home, str(server["release"]))
    return _serve_or_restore(home, release, arm, event=SWITCHED, why=why, tell=tell)


def _serve_or_restore(
    home: str | Path, release: Release, arm: str, *, event: str, why: str, tell: Tell
) -> tuple[ServerFacts, float]:
    """Serve an arm and record ``event``; if it does not answer, restore the server that should run, and raise."""
    server = current_server(home)
    try:
        seconds = put_back(home, release.id, arm, tell)
    except DrafthouseError as error:
        problems = list(error.problems)
        if server:
            problems.append(outcome_of_restore(home, tell))
        raise DrafthouseError(problems) from error
    facts = release.facts(arm)
    add_event(home, event, **facts, why=why)
    return facts, seconds


def outcome_of_restore(home: str | Path, tell: Tell = ignore) -> Problem:
    """Restore the server that should run; return the outcome as the last problem of a change that failed.

    It did not start again, none should run, or it runs again.
    """
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
        f"the last good server runs again: {shown_server(facts)}; it answers again after {seconds:.1f} s",
        "the change, which failed",
        "fix the cause above and run again; make history shows both",
    )


def shown_server(facts: ServerFacts) -> str:
    """A server as messages name it: ``release 0002 (NAME, the speculative arm, vllm 0.32.0)``."""
    return (
        f"release {facts['release']} ({facts['profile']}, the {facts['arm']} arm, {facts['engine']} {facts['version']})"
    )


def _release_to_serve(home: str | Path, to: str) -> str:
    """The id of the release that ``to`` names; leading zeros may be left out, '' stands for the earlier release.

    Raises DrafthouseError if it is not kept.
    """
    ids = release_ids(home)
    if to:
        release_id = to
        if ids and to.isdigit():
            release_id = to.zfill(len(ids[0]))
        if release_id in ids:
            return release_id
        raise one_problem(
            "no-such-release",
            f"no release '{to}'",
            f"one of: {', '.join(ids) or '(none is kept)'}",
            "choose one of them (make history shows when each served)",
            "TO",
        )
    before = earlier_release(home)
    if before is None:
        found = "no release: nothing has served here yet"
        do = "serve one first: make NAME"
        if ids:
            found = "no earlier release"
            do = "name another profile: make NAME"
        raise one_problem("no-earlier-release", found, "a release that served before this one", do, "rollback")
    return before


def _last_arm(home: str | Path, release: Release) -> str:
    """The arm of a release that served last; without an event, one that has a record."""
    for event in reversed(read_history(home)):
        arm = str(event.get("arm"))
        if event.get("release") == release.id and arm in release.resolved["arms"]:
            return arm
    return next(iter(release.running))


def restore_at_boot(home: str | Path) -> int:
    """Restore the server after a boot; return the exit status, 1 if it failed or a run already works on the box."""
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
        facts, seconds = back
        print(f"{shown_server(facts)} answers after {seconds:.1f} s")
    return 0
