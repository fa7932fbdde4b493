"""Checks of the running server: profile and arm (baseline or speculative), API key, answers, draft tokens.

The functions are pure: `operate/doctor/probe.py` has sent the requests, and its answers are the facts ``asked``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING

from ...bench.spec_metrics import difference, parse_counters
from ...core.format import count
from ...engines.registry import engine_of
from ...profiles.exposure import NAMED, NOBODY, exposed, exposure_problems, reach, routes_text
from .finding import Finding, fail, not_here, of_problem, ok, warn

if TYPE_CHECKING:
    from drafthouse.bench.result_types import Counts
    from drafthouse.operate.checks.finding import CheckFunction, CheckResult
    from drafthouse.operate.doctor.types import ChatAnswer, DoctorFacts, ServedFacts
    from drafthouse.profiles.resolved_types import Run


SPECULATIVE = "speculative"  # the name of an arm
_MAKE = "make with the profile's name, which serves it again"
_LOGS_OR_MAKE = f"make logs; {_MAKE}"
_LOOKUP = "lookup"  # the kind of a method that drafts text which stood in the prompt or in earlier answers
_MEASURED = "a measurement or change is in progress on this box"


def undisturbed(check: CheckFunction) -> CheckFunction:
    """Decorate a check to be skipped during a measurement or change, which its requests would disturb."""

    @wraps(check)
    def run_check(resolved: Run, facts: DoctorFacts) -> CheckResult:
        if facts["measured"]:
            return not_here(f"not asked: {_MEASURED}")
        return check(resolved, facts)

    return run_check


def of_served(check: Callable[[Run, DoctorFacts, ServedFacts], Finding]) -> CheckFunction:
    """Decorate a check to receive the served arm of the profile; it is `undisturbed`, and skipped if none is served."""

    @undisturbed
    @wraps(check)
    def run_check(resolved: Run, facts: DoctorFacts) -> Finding:
        server = served_arm(resolved, facts["served"])
        if not server:
            return not_here("this profile is not being served")
        return check(resolved, facts, server)

    return run_check


def served_arm(resolved: Run, arms: Sequence[ServedFacts]) -> ServedFacts | None:
    """The running arm of the profile at the site's port, or at an unknown port; None if no arm runs there."""
    for arm in arms:
        if arm["running"] and arm["profile"] == resolved["profile"] and arm["port"] in (None, resolved["site"]["port"]):
            return arm
    return None


def served(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that an arm of the profile is served; a warning during a measurement or change.

    The failure names what is there instead: a running arm of another profile, else an arm of this profile that does
    not run, else nothing.
    """
    profile = resolved["profile"]
    needed = f"an arm of {profile}"
    if facts["measured"]:
        return warn(_MEASURED, f"{needed}, undisturbed", "run make doctor again when it has finished")
    arms = facts["served"]
    if server := served_arm(resolved, arms):
        return ok(f"the {server['arm']} arm of {profile}", needed)
    for arm in arms:
        if arm["running"] and arm["profile"] != profile:
            do = f"make doctor PROFILE={arm['profile']} looks at that one; make {profile} serves this one"
            return fail(f"the {arm['arm']} arm of {arm['profile']}", needed, do)
    do = f"make logs shows its last lines; {_MAKE}"
    for arm in arms:
        if arm["profile"] == profile:
            return fail(f"the {arm['arm']} arm does not run: {arm['why']}", needed, do)
    return fail("nothing of ours", needed, do)


def as_served(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that the running server is the one in the box's history; None if it is, and during a measurement."""
    if facts["measured"] or not facts["drift"]:
        return None
    do = "make rollback restores the last good server, make with the profile's name serves the clone's current version"
    return fail(facts["drift"], "the files and the arm of the release in make history", do)


def api_key(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that the API key's file exists and only its owner can read it."""
    if problem := facts["key"]["problem"]:
        return of_problem(problem)
    return ok(f"{resolved['key_file']}, readable by its owner only", "a key readable by its owner only")


@of_served
def key_required(resolved: Run, facts: DoctorFacts, server: ServedFacts) -> Finding:
    """Check that the engine refuses a request without the API key.

    1. The engine has no authentication: a warning, or skipped where the gateway in front of it has.
    2. Refused (401, 403): ok.
    3. No answer, or not healthy yet: skipped. Any other answer: failed.
    """
    needed = "401 or 403 to a request without the key"
    answers = facts["asked"]
    if not resolved["engine"]["has_key"]:
        if resolved["gateway"]:
            return not_here(f"{resolved['engine']['name']} has no authentication; the gateway in front of it does")
        do = "set drafthouse_gateway: true; until then keep it on loopback and use make tunnel"
        return warn(f"{resolved['engine']['name']} has no authentication", "a gateway with authentication", do)
    answer = answers["without_key"]
    if answer["status"] in (401, 403):
        return ok(f"{answer['status']} without it", needed)
    if answer["status"] is None or answers["health"]["status"] != 200:
        return not_here(f"it does not answer yet: {answer['error'] or answer['status']}")
    return fail(f"{answer['status']} to a chat request without the key", needed, _MAKE)


def not_opened(resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """A failure if routes work without the API key and others could reach them, else []."""
    return [of_problem(problem) for problem in exposure_problems(resolved, "")]


@of_served
def open_paths(resolved: Run, facts: DoctorFacts, server: ServedFacts) -> Finding:
    """Check that no path answers without the API key to clients outside this box."""
    needed = "401, 403 or 404 to every path without the key if others can reach the engine"
    paths = facts["asked"]["paths"]
    reachable_by = reach(resolved["site"])  # NOBODY, NAMED (an allow-list) or ANYBODY
    if paths is None:
        return not_here("it does not answer yet")
    if paths["error"]:
        return warn(
            f"{paths['error']}, after {paths['asked']} paths", needed, "see make logs, then run make doctor again"
        )
    exposed_paths = exposed(paths["open"], reachable_by)
    if exposed_paths:
        clients = "the addresses in drafthouse_allow_cidrs" if reachable_by == NAMED else "anybody"
        do = f"set drafthouse_gateway: true, or empty drafthouse_allow_cidrs and reach it by make tunnel; {_MAKE}"
        return fail(f"without a key {clients} can ask for {routes_text(exposed_paths)}", needed, do)
    requested = f"{count(paths['asked'], 'path')} requested without the key"
    if reachable_by == NOBODY and (on_loopback := routes_text(paths["open"])):
        return ok(f"{requested}; open on loopback only: {on_loopback}", needed)
    return ok(f"{requested}: nothing is exposed", needed)


@of_served
def engine_answers(resolved: Run, facts: DoctorFacts, server: ServedFacts) -> Finding:
    """Check that the engine answers chat requests with tokens.

    1. Not healthy: see `_not_ready`.
    2. The API key cannot be read, so no chat was requested: skipped.
    3. The key is refused, the model is not in the engine's list, no chat was requested, or an answer has no tokens:
       failed.
    4. Else ok.
    """
    answers = facts["asked"]
    model = resolved["target"]["served_name"]
    needed = f"tokens from the model '{model}'"
    if answers["health"]["status"] != 200:
        return _not_ready(resolved, facts, server, needed)
    if facts["key"]["problem"]:
        return not_here("it runs; not tested without the API key")
    models = answers["with_key"]
    # An engine that lists its models without a key refuses a wrong key only in the chat request.
    for answer in (models, *answers["chats"]):
        if answer["status"] in (401, 403):
            do = f"{_MAKE}: it was started with a different key"
            return fail(f"{answer['status']} with the key of {resolved['key_file']}", needed, do)
    if model not in models["models"]:
        found = models["error"] or f"it serves {', '.join(models['models']) or 'nothing'}"
        return fail(found, needed, f"stop what listens on port {resolved['site']['port']}; {_MAKE}")
    if not answers["chats"]:
        return fail("no answer: not asked", needed, _LOGS_OR_MAKE)
    tokens = 0
    seconds = 0.0
    for chat in answers["chats"]:
        if not chat["tokens"]:
            found = f"{chat['status'] or 'no answer'}: {chat['error'] or 'an answer without tokens'}"
            return fail(found, needed, _LOGS_OR_MAKE)
        tokens += chat["tokens"]
        seconds += chat["seconds"]
    return ok(f"{tokens} tokens in {seconds:.2f} s, {count(len(answers['chats']), 'request')}", needed)


def _not_ready(resolved: Run, facts: DoctorFacts, server: ServedFacts, needed: str) -> Finding:
    """A warning if the engine may still be loading, else a failure; a timeout means that the engine hangs.

    An unknown start counts as long ago.
    """
    health = facts["asked"]["health"]
    found = health["error"] or f"{health['status']} to {resolved['engine']['health']}"
    age = facts["clock"]["time"] - server["since"] if server["since"] else math.inf
    if age < resolved["engine"]["ready_timeout_s"] and "timed out" not in found:
        do = "wait: it may be loading; make logs FOLLOW=1 shows its progress"
        return warn(f"not yet, {age:.0f} s after its start: {found}", needed, do)
    return fail(found, needed, _LOGS_OR_MAKE)


@of_served
def speculation(resolved: Run, facts: DoctorFacts, server: ServedFacts) -> Finding:
    """Check that the speculative arm produces draft tokens while it answers, and that another arm produces none.

    1. No answer has tokens: skipped; the check `engine_answers` says why.
    2. Another arm: failed if it drafted, else skipped.
    3. The speculative arm drafted: ok.
    4. Neither counters nor answers show whether it did: a warning.
    5. It drafted nothing: failed if its slots or counters show that it runs without speculation; else a warning for a
       lookup, which drafts only text that repeats; else failed.
    """
    needed = "draft counters that increase while it answers"
    answers = facts["asked"]
    arm = server["arm"]
    if not any(chat["tokens"] for chat in answers["chats"]):
        return not_here("the engine does not answer")
    before, after = parse_counters(answers["before"]), parse_counters(answers["after"])
    increase = difference(before, after)
    drafted = _draft_tokens(increase, answers["chats"])
    requests = count(len(answers["chats"]), "request")
    if arm != SPECULATIVE:
        if drafted:
            return fail(f"the {arm} arm drafted {drafted:.0f} tokens", "an arm that does not draft", _MAKE)
        return not_here(f"the {arm} arm is served: the verdict, serve_arm or the watchdog chose it")
    if drafted:
        return ok(f"{_draft_summary(drafted, increase, answers['chats'])} in {requests}", needed)
    if drafted is None:
        do = "read its counters manually"
        if how := engine_of(resolved["engine"]["id"]).see_drafts:
            do += f": {how}"
        why = answers["counters_error"] or "no such lines"
        return warn(f"no drafts visible in counters or answers: {why}", needed, do)
    if answers["speculates"] is False:
        found = "none of its slots speculates: it runs without speculation"
    elif not after["present"]:
        found = "it has no draft counters: it runs without speculation"
    elif resolved["method"]["kind"] == _LOOKUP:
        do = "check its counters under real traffic; a lookup drafts only text that repeats"
        return warn(f"nothing drafted in {requests} with repeated text", needed, do)
    else:
        found = "its counters did not change"
    do = f"compare serve.sh on the box with make render PROFILE={resolved['profile']}; {_MAKE}"
    return fail(f"{found}, {requests}", needed, do)


def _draft_summary(drafted: float, increase: Counts | None, chats: Sequence[ChatAnswer]) -> str:
    """What was drafted, as text: by the counters' ``increase``, or without counters (None) by the answers."""
    if increase is None:
        if all(chat["draft_n"] is None for chat in chats):
            return "several tokens per step in its answers"
        return f"{drafted:.0f} tokens drafted"
    accepted = increase["accepted_tokens"]
    if increase["draft_tokens"] is None and increase["num_drafts"]:
        # The engine counts drafts but not their tokens.
        return f"{count(increase['num_drafts'], 'draft')}, {count(accepted or 0, 'token')} accepted"
    if accepted is None:
        return f"{drafted:.0f} tokens drafted"
    return f"{drafted:.0f} tokens drafted, {accepted} accepted"


def _draft_tokens(increase: Counts | None, chats: Sequence[ChatAnswer]) -> float | None:
    """Draft tokens of the chats; None where neither counters nor answers show any.

    1. With counters: the greater of the counters' increase and the largest answer's number. It may be 0.
    2. With numbers in the answers only: their sum. It may be 0.
    3. Else each answer with more than 1.0 tokens per step counts as 1, as TensorRT-LLM's report nothing else; None if
       there is no such answer.
    """
    by_answers = [float(chat["draft_n"]) for chat in chats if chat["draft_n"] is not None]
    by_counters = None
    if increase:
        # If the engine counts only drafts, take the least: one token per draft.
        by_counters = increase["num_drafts"] if increase["draft_tokens"] is None else increase["draft_tokens"]
    if by_counters is not None:
        return float(max([by_counters, *by_answers]))
    if by_answers:
        return sum(by_answers)
    return float(sum((chat["per_iteration"] or 0) > 1.0 for chat in chats)) or None
