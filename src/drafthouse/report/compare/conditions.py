"""Whether two reports may be set side by side: what one wants to compare, and what must not have moved.

Two boxes, two engines, two versions, two days: these are what is compared, so they may differ and are named.
What the prompts were and how they were sent must be the same, or the numbers are about different things.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
# What two reports may differ in, by the facts that tell it.
_PARTS = {
    "the box": {"box", "CPU", "GPU"},
    "the engine": {"engine", "engine version"},
    "the draft or its method": {"draft", "method", "draft tokens", "flags of speculation"},
}


def subjects(one: Kept, two: Kept) -> list[Differing]:
    """What the comparison is about: the facts that differ and may."""
    facts_a, facts_b = _subject(one), _subject(two)
    differing: list[Differing] = []
    for name, value in facts_a.items():
        if value != facts_b[name]:
            differing.append({"what": name, "a": value, "b": facts_b[name]})
    return differing


def _subject(kept: Kept) -> dict[str, str | int | None]:
    """What was measured, on which box and with which engine; None for what a report does not say."""
    resolved, result = kept.resolved, kept.results["speculative"]
    engine, method, arms = result.get("engine") or {}, resolved.get("method"), resolved.get("arms") or {}
    return {
        "profile": kept.report.get("profile"),
        "box": kept.report.get("host"),
        **_processors(result),
        "engine": engine.get("id"),
        "engine version": engine.get("version_answered") or engine.get("version"),
        "runtime": engine.get("runtime"),
        "draft": _value(resolved.get("draft"), "id"),
        "method": _value(method, "id"),
        "draft tokens": _value(method, "num_speculative_tokens"),
        "flags": _flags(_value(arms.get("baseline"), "flags")),
        "flags of speculation": _flags(_value(arms.get("speculative"), "speculation_flags")),
    }


def _value(part: Mapping[str, object] | None, key: str) -> Any:
    """The value of a key of a part that a report may lack."""
    return part.get(key) if part else None


def _processors(result: ArmResult) -> dict[str, str | None]:
    """The models of the processor and of the GPUs, and the GPUs' driver."""
    facts = _value(result.get("machine"), "before") or {}
    gpus = facts.get("gpus") or []
    names = [str(gpu["name"]) for gpu in gpus if gpu.get("name")]
    drivers = {str(gpu["driver_version"]) for gpu in gpus if gpu.get("driver_version")}
    return {
        "CPU": _value(facts.get("cpu"), "model"),
        "GPU": listing(names) or None,
        "GPU driver": listing(sorted(drivers)) or None,
    }


def _flags(flags: Sequence[Flag] | None) -> str | None:
    if not flags:
        return None
    return " ".join(" ".join(map(str, flag)) for flag in flags)


def differences(one: Kept, two: Kept) -> tuple[list[str], list[str]]:
    """What forbids the comparison, and what a reader must know beside it, a sentence each."""
    against = [*_invalid(one, two), *_conditions(one, two)]
    marks: list[str] = []
    for arm in ARMS:
        refusals, remarks = _prompts(arm, one.results[arm], two.results[arm])
        against += refusals
        marks += remarks
    refusals, remarks = _edited(one, two)
    against += refusals
    marks += [*remarks, *_marks(one, two)]
    return list(dict.fromkeys(against)), list(dict.fromkeys(marks))


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
    a, b = one.resolved.get("target") or {}, two.resolved.get("target") or {}
    if a.get("id") != b.get("id"):
        name_a, name_b = a.get("name") or a.get("id"), b.get("name") or b.get("id")
        if name_a == name_b:  # two entries of one model may well have the same name
            name_a, name_b = a.get("id"), b.get("id")
        yield f"the target is {name_a} in A and {name_b} in B"
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
    tokens_a, tokens_b = _tokens(one), _tokens(two)
    both = [prompt for prompt in tokens_a if prompt in tokens_b]
    if not both:
        return [f"{arm}: no prompt was sent in both"], []
    refusals, remarks = [], []
    if len(both) < max(len(tokens_a), len(tokens_b)):
        remarks.append(
            f"{arm}: {count(len(both), 'prompt')} in both, of {len(tokens_a)} in A and {len(tokens_b)} in B: "
            "only these compare"
        )
    far, near = [], []
    for prompt in both:
        apart = abs(tokens_a[prompt] - tokens_b[prompt])
        if apart > TOKENS_APART:
            far.append(str(prompt[1]))
        elif apart:
            near.append(str(prompt[1]))
    if far:
        refusals.append(
            f"{arm}: the servers counted different input tokens for {count(len(far), 'prompt')} (first {far[0]}), "
            "so they did not see the same text"
        )
    elif near:
        remarks.append(f"{arm}: the servers count the input of {count(len(near), 'prompt')} one or two tokens apart")
    return refusals, remarks


def _tokens(result: ArmResult) -> dict[Prompt, int]:
    """The input tokens that the server counted, by group and prompt; the last of a prompt that was sent again."""
    tokens: dict[Prompt, int] = {}
    for request in requests_of(result):
        if request.get("status") == "ok":
            tokens[str(request.get("group")), request.get("prompt_id")] = request.get("input_tokens") or 0
    return tokens


def _edited(one: Kept, two: Kept) -> tuple[list[str], list[str]]:
    """The prompts of one name that do not ask for the same in both, or that this cannot be seen."""
    hashes_a, hashes_b = one.resolved.get("prompts"), two.resolved.get("prompts")
    if not hashes_a or not hashes_b:
        key = one.report.get("key")
        # The key is a hash of the prompts too: two reports of one key sent the same.
        if key and key == two.report.get("key"):
            return [], []
        without = "B keeps" if hashes_a else "A keeps" if hashes_b else "A and B keep"
        return [], [f"{without} no hashes of the prompts: an edit in between would not be noticed"]
    names = []
    for kind, prompts in hashes_a.items():
        others = hashes_b.get(kind, {})
        names += [str(name) for name, value in prompts.items() if others.get(name, value) != value]
    if not names:
        return [], []
    shown = ", ".join(names[:MOST_SHOWN]) + (", …" if len(names) > MOST_SHOWN else "")
    what = "the messages, the output length, the tools, the answer format or other fields"
    verb = "is" if len(names) == 1 else "are"
    return [f"{count(len(names), 'prompt')} {verb} not the same in A and B ({shown}): {what} were changed"], []


def _marks(one: Kept, two: Kept) -> Iterator[str]:
    """Yield what does not forbid a comparison and yet weakens it."""
    differing = {fact["what"] for fact in subjects(one, two)}
    moved = [words for words, names in _PARTS.items() if differing & names]
    if len(moved) > 1:
        yield f"{listing(moved)} differ at once: a change cannot be attributed to one of them"
    rounds_a, rounds_b = (kept.results["speculative"].get("rounds") for kept in (one, two))
    if rounds_a != rounds_b:
        yield f"A was measured in {rounds_a} rounds and B in {rounds_b}"
    for name, kept in (("A", one), ("B", two)):
        for warning in kept.report.get("warnings") or []:
            if "not steady" in warning or "other work" in warning:
                yield f"{name}: {warning}"
    load_a, load_b = one.report.get("load"), two.report.get("load")
    if (load_a is None) != (load_b is None):
        yield f"only {'A' if load_b is None else 'B'} has a load ladder"
