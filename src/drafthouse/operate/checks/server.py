"""The checks of the engine that serves: which, answering, to the key alone, and drafting. Pure."""

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
    from drafthouse.operate.checks.finding import Answer, Look
    from drafthouse.operate.doctor.types import Chat, DoctorFacts, ServedFacts
    from drafthouse.profiles.resolved_types import Run


SPECULATIVE = "speculative"
_MAKE = "make with the profile's name, which serves it again"
_LOGS_OR_MAKE = f"make logs; {_MAKE}"
_LOOKUP = "lookup"
_MEASURED = "a measurement or change is in progress on this box"


def undisturbed(look: Look) -> Look:
    """Have a check ask nothing while arms come and go: what is asked then would be measured, too."""

    @wraps(look)
    def ask(resolved: Run, facts: DoctorFacts) -> Answer:
        if facts["measured"]:
            return not_here(f"not asked: {_MEASURED}")
        return look(resolved, facts)

    return ask


def of_served(look: Callable[[Run, DoctorFacts, ServedFacts], Finding]) -> Look:
    """Have a check ask the arm of the profile that serves at its port, and nothing where none does."""

    @undisturbed
    @wraps(look)
    def ask(resolved: Run, facts: DoctorFacts) -> Finding:
        at_port = served_arm(resolved, facts["served"])
        if not at_port:
            return not_here("this profile is not being served")
        return look(resolved, facts, at_port)

    return ask


def served_arm(resolved: Run, found: Sequence[ServedFacts]) -> ServedFacts | None:
    """The arm of the profile that serves at its port."""
    for arm in found:
        if arm["running"] and arm["profile"] == resolved["profile"] and arm["port"] in (None, resolved["site"]["port"]):
            return arm
    return None


def served(resolved: Run, facts: DoctorFacts) -> Finding:
    """Which arm of the profile serves."""
    profile = resolved["profile"]
    needed = f"an arm of {profile}"
    if facts["measured"]:
        return warn(_MEASURED, f"{needed}, undisturbed", "run make doctor again when it has finished")
    found = facts["served"]
    if at_port := served_arm(resolved, found):
        return ok(f"the {at_port['arm']} arm of {profile}", needed)
    for other in found:
        if other["running"] and other["profile"] != profile:
            do = f"make doctor PROFILE={other['profile']} looks at that one; make {profile} serves this one"
            return fail(f"the {other['arm']} arm of {other['profile']}", needed, do)
    do = f"make logs shows its last lines; {_MAKE}"
    for arm in found:
        if arm["profile"] == profile:
            return fail(f"the {arm['arm']} arm does not run: {arm['why']}", needed, do)
    return fail("nothing of ours", needed, do)


def as_served(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """What runs otherwise than it was served, by the box's own history; nothing where the two agree."""
    if facts["measured"] or not facts["drift"]:
        return None
    do = "make rollback restores the last good server, make with the profile's name serves the clone's current version"
    return fail(facts["drift"], "the files and the arm of the release in make history", do)


def api_key(resolved: Run, facts: DoctorFacts) -> Finding:
    """Whether the API key is there for its owner alone."""
    if problem := facts["key"]["problem"]:
        return of_problem(problem)
    return ok(f"{resolved['key_file']}, readable by its owner only", "a key readable by its owner only")


@of_served
def key_required(resolved: Run, facts: DoctorFacts, at_port: ServedFacts) -> Finding:
    """Whether a request without the key is refused."""
    needed, asked = "401 or 403 to a request without the key", facts["asked"]
    if not resolved["engine"]["has_key"]:
        if resolved["gateway"]:
            return not_here(f"{resolved['engine']['name']} has no authentication; the gateway in front of it does")
        do = "set drafthouse_gateway: true; until then keep it on loopback and use make tunnel"
        return warn(f"{resolved['engine']['name']} has no authentication", "a gateway with authentication", do)
    without = asked["without_key"]
    if without["status"] in (401, 403):
        return ok(f"{without['status']} without it", needed)
    if without["status"] is None or asked["health"]["status"] != 200:
        return not_here(f"it does not answer yet: {without['error'] or without['status']}")
    return fail(f"{without['status']} to a chat request without the key", needed, _MAKE)


def not_opened(resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """What the engine would give away without the key to whoever reaches it, by the catalogue."""
    return [of_problem(problem) for problem in exposure_problems(resolved, "")]


@of_served
def open_paths(resolved: Run, facts: DoctorFacts, at_port: ServedFacts) -> Finding:
    """Whether the engine gives something away without the key to whoever reaches it, path by path."""
    needed = "401, 403 or 404 to every path without the key if others can reach the engine"
    paths, who = facts["asked"]["paths"], reach(resolved["site"])
    if paths is None:
        return not_here("it does not answer yet")
    if paths["error"]:
        return warn(
            f"{paths['error']}, after {paths['asked']} paths", needed, "see make logs, then run make doctor again"
        )
    counts = exposed(paths["open"], who)
    if counts:
        whom = "the addresses in drafthouse_allow_cidrs" if who == NAMED else "anybody"
        do = f"set drafthouse_gateway: true, or empty drafthouse_allow_cidrs and reach it by make tunnel; {_MAKE}"
        return fail(f"without a key {whom} can ask for {routes_text(counts)}", needed, do)
    requested = f"{count(paths['asked'], 'path')} requested without the key"
    if who == NOBODY and (open_here := routes_text(paths["open"])):
        return ok(f"{requested}; open on loopback only: {open_here}", needed)
    return ok(f"{requested}: nothing is exposed", needed)


@of_served
def engine_answers(resolved: Run, facts: DoctorFacts, at_port: ServedFacts) -> Finding:
    """Whether the engine answers requests with tokens."""
    asked, model = facts["asked"], resolved["target"]["served_name"]
    needed = f"tokens from the model '{model}'"
    if asked["health"]["status"] != 200:
        return _unhealthy(resolved, facts, at_port, needed)
    if facts["key"]["problem"]:
        return not_here("it runs; not tested without the API key")
    models = asked["with_key"]
    # Who shows the models to everybody refuses the request alone.
    for answer in (models, *asked["chats"]):
        if answer["status"] in (401, 403):
            do = f"{_MAKE}: it was started with a different key"
            return fail(f"{answer['status']} with the key of {resolved['key_file']}", needed, do)
    if model not in models["models"]:
        found = models["error"] or f"it serves {', '.join(models['models']) or 'nothing'}"
        return fail(found, needed, f"stop what listens on port {resolved['site']['port']}; {_MAKE}")
    if not asked["chats"]:
        return fail("no answer: not asked", needed, _LOGS_OR_MAKE)
    tokens, seconds = 0, 0.0
    for chat in asked["chats"]:
        if not chat["tokens"]:
            found = f"{chat['status'] or 'no answer'}: {chat['error'] or 'an answer without tokens'}"
            return fail(found, needed, _LOGS_OR_MAKE)
        tokens += chat["tokens"]
        seconds += chat["seconds"]
    return ok(f"{tokens} tokens in {seconds:.2f} s, {count(len(asked['chats']), 'request')}", needed)


def _unhealthy(resolved: Run, facts: DoctorFacts, at_port: ServedFacts, needed: str) -> Finding:
    """An engine that is not ready: it loads as long as it refuses or answers 503; one that does not answer hangs."""
    health = facts["asked"]["health"]
    found = health["error"] or f"{health['status']} to {resolved['engine']['health']}"
    age = facts["clock"]["time"] - at_port["since"] if at_port["since"] else math.inf
    if age < resolved["engine"]["ready_timeout_s"] and "timed out" not in found:
        do = "wait: it may be loading; make logs FOLLOW=1 shows its progress"
        return warn(f"not yet, {age:.0f} s after its start: {found}", needed, do)
    return fail(found, needed, _LOGS_OR_MAKE)


@of_served
def speculation(resolved: Run, facts: DoctorFacts, at_port: ServedFacts) -> Finding:
    """Whether drafts are made while it answers; an arm without speculation must make none."""
    needed, asked, arm = "draft counters that increase while it answers", facts["asked"], at_port["arm"]
    if not any(chat["tokens"] for chat in asked["chats"]):
        return not_here("the engine does not answer")
    before, after = parse_counters(asked["before"]), parse_counters(asked["after"])
    moved = difference(before, after)
    drafted, requests = _drafted(moved, asked["chats"]), count(len(asked["chats"]), "request")
    if arm != SPECULATIVE:
        if drafted:
            return fail(f"the {arm} arm drafted {drafted:.0f} tokens", "an arm that does not draft", _MAKE)
        return not_here(f"the {arm} arm is served: the verdict, serve_arm or the watchdog chose it")
    if drafted:
        return ok(f"{_drafts_in_words(drafted, moved, asked['chats'])} in {requests}", needed)
    if drafted is None:
        do, where = "read its counters manually", engine_of(resolved["engine"]["id"]).see_drafts
        if where:
            do += f": {where}"
        why = asked["counters_error"] or "no such lines"
        return warn(f"no drafts visible in counters or answers: {why}", needed, do)
    if asked["speculates"] is False:
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


def _drafts_in_words(drafted: float, moved: Counts | None, chats: Sequence[Chat]) -> str:
    if moved is None:
        if all(chat["draft_n"] is None for chat in chats):
            return "several tokens per step in its answers"
        return f"{drafted:.0f} tokens drafted"
    accepted = moved["accepted_tokens"]
    if moved["draft_tokens"] is None and moved["num_drafts"]:
        # More than one token each, how many it does not count.
        return f"{count(moved['num_drafts'], 'draft')}, {count(accepted or 0, 'token')} accepted"
    if accepted is None:
        return f"{drafted:.0f} tokens drafted"
    return f"{drafted:.0f} tokens drafted, {accepted} accepted"


def _drafted(moved: Counts | None, chats: Sequence[Chat]) -> float | None:
    """How many tokens were drafted by the counters, else by the answers; None where neither tells.

    Of TensorRT-LLM's answers only that something was accepted can be known: then it is 1 or more.
    """
    in_answers = [float(chat["draft_n"]) for chat in chats if chat["draft_n"] is not None]
    counted = None
    if moved:
        # An engine that counts drafts and not their tokens: one of each at least.
        counted = moved["num_drafts"] if moved["draft_tokens"] is None else moved["draft_tokens"]
    if counted is not None:
        return float(max([counted, *in_answers]))
    if in_answers:
        return sum(in_answers)
    return float(sum((chat["per_iteration"] or 0) > 1.0 for chat in chats)) or None
