"""Whether two reports may be set side by side: what one wants to compare, and what must not have moved.

Two boxes, two engines, two versions, two days: these are what is compared, so they may differ and are named.
What the prompts were and how they were sent must be the same, or the numbers are about different things.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...analysis.words import INVALID
from ...bench.result_types import ArmResult
from ...bench.samples import Prompt, whole_answers
from ...core.format import count, first_names, listing
from ...core.shell import Flag
from ...report.archive import Kept
from ...report.report_types import ARMS, KeptProfile
from .compared_types import Differing

# Engines count the tokens of one text a little differently (a start token, the end of a template).
TOKENS_APART = 2
# Names of prompts in one sentence.
MOST_SHOWN = 5
# What a change could come from, and the facts by which it is seen.
_MOVED = {
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
    """The facts of a report that a comparison may be about; the names are those of every report."""
    resolved, result = kept.resolved, kept.results["speculative"]
    engine, method, draft = result.get("engine") or {}, resolved.get("method"), resolved.get("draft")
    method_id = method.get("id") if method else None
    draft_tokens = method.get("num_speculative_tokens") if method else None
    return {
        "profile": kept.report.get("profile"),
        "box": kept.report.get("host"),
        **_hardware(result),
        "engine": engine.get("id"),
        "engine version": engine.get("version_answered") or engine.get("version"),
        "runtime": engine.get("runtime"),
        "draft": draft.get("id") if draft else None,
        "method": method_id,
        "draft tokens": draft_tokens,
        **_flags(resolved),
    }


def _hardware(result: ArmResult) -> dict[str, str | None]:
    """The models of CPU and GPUs, and the GPUs' drivers, as the machine was before the arm."""
    machine = result.get("machine")
    facts = (machine.get("before") if machine else None) or {}
    cpu = facts.get("cpu")
    gpus = facts.get("gpus") or []
    names = filter(None, [gpu.get("name") for gpu in gpus])
    drivers = filter(None, {gpu.get("driver_version") for gpu in gpus})
    return {
        "CPU": cpu.get("model") if cpu else None,
        "GPU": listing(list(names)) or None,
        "GPU driver": listing(sorted(drivers)) or None,
    }


def _flags(resolved: KeptProfile) -> dict[str, str | None]:
    """The engine's flags in both arms, and the flags that speculation adds."""
    arms = resolved.get("arms") or {}
    baseline, speculative = arms.get("baseline"), arms.get("speculative")
    return {
        "flags": _joined(baseline.get("flags") if baseline else None),
        "flags of speculation": _joined(speculative.get("speculation_flags") if speculative else None),
    }


def _joined(flags: Sequence[Flag] | None) -> str | None:
    if not flags:
        return None
    return " ".join(str(word) for flag in flags for word in flag)


def differences(one: Kept, two: Kept) -> tuple[list[str], list[str]]:
    """What forbids the comparison, and what a reader must know beside it, a sentence each."""
    forbids = [*_invalid(one, two), *_conditions(one, two)]
    marks: list[str] = []
    for arm in ARMS:
        refused, weaker = _prompts(arm, one.results[arm], two.results[arm])
        forbids += refused
        marks += weaker
    refused, weaker = _edited(one, two)
    forbids += refused
    marks += [*weaker, *_marks(one, two)]
    return list(dict.fromkeys(forbids)), list(dict.fromkeys(marks))


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
        only = "A" if thinks_a else "B"
        yield f"the model reasons before it answers in {only} only"
    load_a, load_b = one.report.get("load"), two.report.get("load")
    if load_a and load_b:
        yield from _unequal("the kind of load", load_a.get("load"), load_b.get("load"))
        yield from _unequal("the limits of goodput", load_a.get("limits"), load_b.get("limits"))


def _targets(one: Kept, two: Kept) -> Iterator[str]:
    """In what the two targets differ: the model, its revision, its files."""
    a, b = one.resolved.get("target") or {}, two.resolved.get("target") or {}
    id_a, id_b = a.get("id"), b.get("id")
    if id_a != id_b:
        name_a, name_b = a.get("name") or id_a, b.get("name") or id_b
        # Two entries of one model may well have the same name.
        if name_a == name_b:
            name_a, name_b = id_a, id_b
        yield f"the target is {name_a} in A and {name_b} in B"
    for what in ("revision", "sha256"):
        if a.get(what) != b.get(what):
            yield f"the target ({what}) is {a.get(what)} in A and {b.get(what)} in B"


def _unequal(words: str, a: object, b: object) -> Iterator[str]:
    if a != b:
        yield f"{words}: {a!r} in A and {b!r} in B"


def _thinks(result: ArmResult) -> bool | None:
    """Whether the answers of a result begin with thinking, None where nothing tells it."""
    answers = whole_answers(result)
    if not any("reasoning_text" in answer for answer in answers):
        return None
    return any(answer.get("reasoning_text") for answer in answers)


def _prompts(arm: str, one: ArmResult, two: ArmResult) -> tuple[list[str], list[str]]:
    """Where the prompts of an arm, or what the servers made of them, are not the same."""
    tokens_a, tokens_b = _tokens(one), _tokens(two)
    both, far, near = 0, [], []
    for key, tokens in tokens_a.items():
        if key not in tokens_b:
            continue
        both += 1
        apart = abs(tokens - tokens_b[key])
        if apart > TOKENS_APART:
            far.append(str(key[1]))
        elif apart:
            near.append(str(key[1]))
    if not both:
        return [f"{arm}: no prompt was sent in both"], []
    refused, marks = [], []
    if both < max(len(tokens_a), len(tokens_b)):
        shares = f"{count(both, 'prompt')} in both, of {len(tokens_a)} in A and {len(tokens_b)} in B"
        marks.append(f"{arm}: {shares}: only these compare")
    if far:
        refused.append(
            f"{arm}: the servers counted different input tokens for {count(len(far), 'prompt')} (first {far[0]}), "
            "so they did not see the same text"
        )
    elif near:
        marks.append(f"{arm}: the servers count the input of {count(len(near), 'prompt')} one or two tokens apart")
    return refused, marks


def _tokens(result: ArmResult) -> dict[Prompt, int]:
    """The input tokens of each prompt, as the server counted them in a whole answer."""
    tokens: dict[Prompt, int] = {}
    for answer in whole_answers(result):
        tokens[str(answer.get("group")), answer.get("prompt_id")] = answer.get("input_tokens") or 0
    return tokens


def _edited(one: Kept, two: Kept) -> tuple[list[str], list[str]]:
    """The prompts of one name that do not ask for the same in both, or that this cannot be seen."""
    kept_a, kept_b = one.resolved.get("prompts"), two.resolved.get("prompts")
    if not kept_a or not kept_b:
        key_a, key_b = one.report.get("key"), two.report.get("key")
        # The key is a hash of the prompts too: two reports of one key sent the same.
        if key_a and key_a == key_b:
            return [], []
        if kept_a:
            lacking = "B keeps"
        elif kept_b:
            lacking = "A keeps"
        else:
            lacking = "A and B keep"
        return [], [f"{lacking} no hashes of the prompts: an edit in between would not be noticed"]
    names = []
    for kind, prompts in kept_a.items():
        others = kept_b.get(kind) or {}
        names += [name for name, digest in prompts.items() if others.get(name, digest) != digest]
    if not names:
        return [], []
    shown = first_names(names, MOST_SHOWN)
    what = "the messages, the output length, the tools, the answer format or other fields"
    verb = "is" if len(names) == 1 else "are"
    return [f"{count(len(names), 'prompt')} {verb} not the same in A and B ({shown}): {what} were changed"], []


def _marks(one: Kept, two: Kept) -> Iterator[str]:
    """Yield what does not forbid a comparison and yet weakens it."""
    about = {fact["what"] for fact in subjects(one, two)}
    moved = [words for words, names in _MOVED.items() if about & names]
    if len(moved) > 1:
        yield f"{listing(moved)} differ at once: a change cannot be attributed to one of them"
    rounds_a, rounds_b = one.results["speculative"].get("rounds"), two.results["speculative"].get("rounds")
    if rounds_a != rounds_b:
        yield f"A was measured in {rounds_a} rounds and B in {rounds_b}"
    for name, kept in (("A", one), ("B", two)):
        for warning in kept.report.get("warnings") or []:
            if "not steady" in warning or "other work" in warning:
                yield f"{name}: {warning}"
    load_a, load_b = one.report.get("load"), two.report.get("load")
    if (load_a is None) != (load_b is None):
        only = "B" if load_a is None else "A"
        yield f"only {only} has a load ladder"
