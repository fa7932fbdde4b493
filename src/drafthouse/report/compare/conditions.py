"""Whether two reports may be set side by side: what one wants to compare, and what must not have moved.

Two boxes, two engines, two versions, two days: these are what is compared, so they may differ and are named.
What the prompts were and how they were sent must be the same, or the numbers are about different things.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...analysis.words import INVALID
from ...bench.result_types import ArmResult
from ...bench.samples import Prompt, requests_of
from ...core.format import count, listing
from ...core.shell import Flag
from ...report.archive import Kept
from ...report.report_types import ARMS
from .compared_types import Differing

# Engines count the tokens of one text a little differently (a start token, the end of a template).
TOKENS_APART = 2
# Names of prompts in one sentence.
MOST_SHOWN = 5


def subjects(one: Kept, two: Kept) -> list[Differing]:
    """What the comparison is about: the facts that differ and may."""
    sides = [_subject(kept) for kept in (one, two)]
    names = [*sides[0], *(name for name in sides[1] if name not in sides[0])]
    return [
        {"what": name, "a": sides[0].get(name), "b": sides[1].get(name)}
        for name in names
        if sides[0].get(name) != sides[1].get(name)
    ]


def _subject(kept: Kept) -> dict[str, str | int | None]:
    resolved, result = kept.resolved, kept.results["speculative"]
    engine, method, draft = result.get("engine") or {}, resolved.get("method"), resolved.get("draft")
    whole = result.get("machine")
    machine = (whole.get("before") if whole else None) or {}
    cpu, gpus = machine.get("cpu"), machine.get("gpus") or []
    names = [gpu["name"] for gpu in gpus if gpu.get("name")]
    drivers = {driver for gpu in gpus if (driver := gpu.get("driver_version"))}
    arms = resolved.get("arms") or {}
    one, two = arms.get("baseline"), arms.get("speculative")
    model = cpu.get("model") if cpu else None
    draft_id = draft.get("id") if draft else None
    method_id = method.get("id") if method else None
    flags = one.get("flags") if one else None
    speculation = two.get("speculation_flags") if two else None
    draft_tokens = method.get("num_speculative_tokens") if method else None
    return {
        "profile": kept.report.get("profile"),
        "box": kept.report.get("host"),
        "CPU": model,
        "GPU": listing(names) or None,
        "GPU driver": listing(sorted(drivers)) or None,
        "engine": engine.get("id"),
        "engine version": engine.get("version_answered") or engine.get("version"),
        "runtime": engine.get("runtime"),
        "draft": draft_id,
        "method": method_id,
        "draft tokens": draft_tokens,
        "flags": _flags(flags),
        "flags of speculation": _flags(speculation),
    }


def _flags(flags: Sequence[Flag] | None) -> str | None:
    return " ".join(str(word) for flag in flags for word in flag) if flags else None


def differences(one: Kept, two: Kept) -> tuple[list[str], list[str]]:
    """What forbids the comparison, and what a reader must know beside it, a sentence each."""
    against = [*_invalid(one, two), *_conditions(one, two)]
    marks: list[str] = []
    for arm in ARMS:
        refused, told = _prompts(arm, one.results[arm], two.results[arm])
        against += refused
        marks += told
    refused, told = _edited(one, two)
    return list(dict.fromkeys([*against, *refused])), list(dict.fromkeys([*marks, *told, *_marks(one, two)]))


def _invalid(one: Kept, two: Kept) -> Iterator[str]:
    for name, kept in (("A", one), ("B", two)):
        verdict = kept.report["verdict"]
        if verdict["word"] == INVALID:
            reason = next(iter(verdict.get("reasons") or []), "no reason given")
            yield f"{name} is invalid, so its numbers prove nothing: {reason}"


def _conditions(one: Kept, two: Kept) -> Iterator[str]:
    yield from _targets(one, two)
    a, b = one.results["speculative"], two.results["speculative"]
    yield from _unequal("the kind of request", a.get("backend"), b.get("backend"))
    yield from _unequal("the request rate", a.get("request_rate"), b.get("request_rate"))
    set_a, set_b = a.get("settings") or {}, b.get("settings") or {}
    yield from _unequal("requests at a time", set_a.get("concurrency"), set_b.get("concurrency"))
    yield from _unequal("the seed", set_a.get("seed"), set_b.get("seed"))
    yield from _unequal("ignoring the end of sequence (ignore_eos)", set_a.get("ignore_eos"), set_b.get("ignore_eos"))
    yield from _unequal("the temperatures", set_a.get("temperatures"), set_b.get("temperatures"))
    asked_a, asked_b = one.resolved.get("experiment") or {}, two.resolved.get("experiment") or {}
    yield from _unequal("the output length limit", asked_a.get("max_output_tokens"), asked_b.get("max_output_tokens"))
    thinks_a, thinks_b = _thinks(a), _thinks(b)
    if None not in (thinks_a, thinks_b) and thinks_a != thinks_b:
        yield f"the model reasons before it answers in {'A' if thinks_a else 'B'} only"
    load_a, load_b = one.report.get("load"), two.report.get("load")
    if load_a and load_b:
        yield from _unequal("the kind of load", load_a.get("load"), load_b.get("load"))
        yield from _unequal("the limits of goodput", load_a.get("limits"), load_b.get("limits"))


def _targets(one: Kept, two: Kept) -> Iterator[str]:
    """In what the two targets differ: the model, its revision, its files."""
    a, b = (kept.resolved.get("target") or {} for kept in (one, two))
    names = [target.get("name") or target.get("id") for target in (a, b)]
    if a.get("id") != b.get("id"):
        # Two entries of one model may well have the same name.
        values = names if names[0] != names[1] else [a.get("id"), b.get("id")]
        yield f"the target is {values[0]} in A and {values[1]} in B"
    for what in ("revision", "sha256"):
        if a.get(what) != b.get(what):
            yield f"the target ({what}) is {a.get(what)} in A and {b.get(what)} in B"


def _unequal(words: str, a: object, b: object) -> Iterator[str]:
    if a != b:
        yield f"{words}: {a!r} in A and {b!r} in B"


def _thinks(result: ArmResult) -> bool | None:
    """Whether the answers of a result begin with thinking, None where nothing tells it."""
    requests = [request for request in requests_of(result) if request.get("status") == "ok"]
    if not any("reasoning_text" in request for request in requests):
        return None
    return any(request.get("reasoning_text") for request in requests)


def _prompts(arm: str, one: ArmResult, two: ArmResult) -> tuple[list[str], list[str]]:
    """Where the prompts of an arm, or what the servers made of them, are not the same."""
    sides = [_tokens(result) for result in (one, two)]
    both = [key for key in sides[0] if key in sides[1]]
    if not both:
        return [f"{arm}: no prompt was sent in both"], []
    whole = [len(side) for side in sides]
    refused, told = [], []
    if len(both) < max(whole):
        told.append(
            f"{arm}: {count(len(both), 'prompt')} in both, of {whole[0]} in A and {whole[1]} in B: only these compare"
        )
    apart = {key: abs(sides[0][key] - sides[1][key]) for key in both}
    far = [str(key[1]) for key in both if apart[key] > TOKENS_APART]
    near = [str(key[1]) for key in both if 0 < apart[key] <= TOKENS_APART]
    if far:
        refused.append(
            f"{arm}: the servers counted different input tokens for {count(len(far), 'prompt')} (first {far[0]}), "
            "so they did not see the same text"
        )
    elif near:
        told.append(f"{arm}: the servers count the input of {count(len(near), 'prompt')} one or two tokens apart")
    return refused, told


def _tokens(result: ArmResult) -> dict[Prompt, int]:
    return {
        (str(request.get("group")), request.get("prompt_id")): request.get("input_tokens") or 0
        for request in requests_of(result)
        if request.get("status") == "ok"
    }


def _edited(one: Kept, two: Kept) -> tuple[list[str], list[str]]:
    """The prompts of one name that do not ask for the same in both, or that this cannot be seen."""
    sides = [kept.resolved.get("prompts") for kept in (one, two)]
    silent = [name for name, side in zip("AB", sides, strict=True) if not side]
    if silent:
        keys = [kept.report.get("key") for kept in (one, two)]
        # The key is a hash of the prompts too: two reports of one key sent the same.
        if keys[0] and keys[0] == keys[1]:
            return [], []
        told = f"{listing(silent)} {'keeps' if len(silent) == 1 else 'keep'} no hashes of the prompts"
        return [], [f"{told}: an edit in between would not be noticed"]
    hashes = [
        {(kind, name): value for kind, prompts in side.items() for name, value in prompts.items()}
        for side in sides
        if side
    ]
    names = [str(key[1]) for key, value in hashes[0].items() if hashes[1].get(key, value) != value]
    if not names:
        return [], []
    shown = ", ".join(names[:MOST_SHOWN]) + (", …" if len(names) > MOST_SHOWN else "")
    what = "the messages, the output length, the tools, the answer format or other fields"
    verb = "is" if len(names) == 1 else "are"
    return [f"{count(len(names), 'prompt')} {verb} not the same in A and B ({shown}): {what} were changed"], []


def _marks(one: Kept, two: Kept) -> Iterator[str]:
    """Yield what does not forbid a comparison and yet weakens it."""
    about = {fact["what"] for fact in subjects(one, two)}
    moved = [
        words
        for words, names in (
            ("the box", {"box", "CPU", "GPU"}),
            ("the engine", {"engine", "engine version"}),
            ("the draft or its method", {"draft", "method", "draft tokens", "flags of speculation"}),
        )
        if about & names
    ]
    if len(moved) > 1:
        yield f"{listing(moved)} differ at once: a change cannot be attributed to one of them"
    rounds = [kept.results["speculative"].get("rounds") for kept in (one, two)]
    if rounds[0] != rounds[1]:
        yield f"A was measured in {rounds[0]} rounds and B in {rounds[1]}"
    for name, kept in (("A", one), ("B", two)):
        for warning in kept.report.get("warnings") or []:
            if "not steady" in warning or "other work" in warning:
                yield f"{name}: {warning}"
    loads = [kept.report.get("load") is not None for kept in (one, two)]
    if loads[0] != loads[1]:
        yield f"only {'A' if loads[0] else 'B'} has a load ladder"
