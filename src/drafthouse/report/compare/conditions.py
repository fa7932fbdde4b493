"""Check whether two reports, A and B, are comparable.

Machine, engine, versions and draft may differ, since these are what a comparison is about; `subjects` lists them.
Target, prompts and the way in which they are sent must be the same, or the numbers measure different things.
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

#: The largest difference of two counts of the same prompt's tokens: engines may count a start token or the end of a
#: template or not.
TOKENS_APART = 2
#: The most names of prompts in a sentence.
MOST_SHOWN = 5
# Possible causes of a change, each with the facts that show it.
_MOVED = {
    "the box": {"box", "CPU", "GPU"},
    "the engine": {"engine", "engine version"},
    "the draft or its method": {"draft", "method", "draft tokens", "flags of speculation"},
}


def subjects(kept_a: Kept, kept_b: Kept) -> list[Differing]:
    """The differing facts that a comparison may be about."""
    facts_a, facts_b = _comparable_facts(kept_a), _comparable_facts(kept_b)
    differing: list[Differing] = []
    for name, value in facts_a.items():
        if value != facts_b[name]:
            differing.append({"what": name, "a": value, "b": facts_b[name]})
    return differing


def _comparable_facts(kept: Kept) -> dict[str, str | int | None]:
    """The facts of a report that may differ in a comparison, by name; all reports have the same names."""
    resolved = kept.resolved
    result = kept.results["speculative"]
    engine = result.get("engine") or {}
    method = resolved.get("method")
    draft = resolved.get("draft")
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
    """CPU, GPUs and GPU driver versions, as recorded before the arm was measured."""
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
    """The engine's flags of the baseline, and the flags that speculation adds."""
    arms = resolved.get("arms") or {}
    baseline, speculative = arms.get("baseline"), arms.get("speculative")
    return {
        "flags": _flag_text(baseline.get("flags") if baseline else None),
        "flags of speculation": _flag_text(speculative.get("speculation_flags") if speculative else None),
    }


def _flag_text(flags: Sequence[Flag] | None) -> str | None:
    """Flags as text; None if there are none."""
    if not flags:
        return None
    return " ".join(str(word) for flag in flags for word in flag)


def differences(kept_a: Kept, kept_b: Kept) -> tuple[list[str], list[str]]:
    """Sentences on what makes the reports incomparable, and sentences on what weakens the comparison."""
    obstacles = [*_invalid(kept_a, kept_b), *_conditions(kept_a, kept_b)]
    marks: list[str] = []
    for arm in ARMS:
        more_obstacles, more_marks = _prompts(arm, kept_a.results[arm], kept_b.results[arm])
        obstacles += more_obstacles
        marks += more_marks
    more_obstacles, more_marks = _edited_prompts(kept_a, kept_b)
    obstacles += more_obstacles
    marks += [*more_marks, *_weaknesses(kept_a, kept_b)]
    return list(dict.fromkeys(obstacles)), list(dict.fromkeys(marks))


def _invalid(kept_a: Kept, kept_b: Kept) -> Iterator[str]:
    """Yield a sentence for each report whose verdict is invalid."""
    for name, kept in (("A", kept_a), ("B", kept_b)):
        verdict = kept.report["verdict"]
        if verdict["word"] == INVALID:
            reason = next(iter(verdict.get("reasons") or []), "no reason given")
            yield f"{name} is invalid, so its numbers prove nothing: {reason}"


def _conditions(kept_a: Kept, kept_b: Kept) -> Iterator[str]:
    """Yield a sentence for each setting of the requests or the load that differs and must not."""
    yield from _targets(kept_a, kept_b)
    a, b = kept_a.results["speculative"], kept_b.results["speculative"]
    yield from _unequal("the kind of request", a.get("backend"), b.get("backend"))
    yield from _unequal("the request rate", a.get("request_rate"), b.get("request_rate"))
    sent_a, sent_b = a.get("settings") or {}, b.get("settings") or {}
    yield from _unequal("requests at a time", sent_a.get("concurrency"), sent_b.get("concurrency"))
    yield from _unequal("the seed", sent_a.get("seed"), sent_b.get("seed"))
    yield from _unequal("ignoring the end of sequence (ignore_eos)", sent_a.get("ignore_eos"), sent_b.get("ignore_eos"))
    yield from _unequal("the temperatures", sent_a.get("temperatures"), sent_b.get("temperatures"))
    plan_a, plan_b = kept_a.resolved.get("experiment") or {}, kept_b.resolved.get("experiment") or {}
    yield from _unequal("the output length limit", plan_a.get("max_output_tokens"), plan_b.get("max_output_tokens"))
    reasons_a, reasons_b = _reasons(a), _reasons(b)
    if None not in (reasons_a, reasons_b) and reasons_a != reasons_b:
        only = "A" if reasons_a else "B"
        yield f"the model reasons before it answers in {only} only"
    load_a, load_b = kept_a.report.get("load"), kept_b.report.get("load")
    if load_a and load_b:
        yield from _unequal("the kind of load", load_a.get("load"), load_b.get("load"))
        yield from _unequal("the limits of goodput", load_a.get("limits"), load_b.get("limits"))


def _targets(kept_a: Kept, kept_b: Kept) -> Iterator[str]:
    """Yield a sentence for each difference of the targets: model, revision, hash of the file."""
    a, b = kept_a.resolved.get("target") or {}, kept_b.resolved.get("target") or {}
    id_a, id_b = a.get("id"), b.get("id")
    if id_a != id_b:
        name_a, name_b = a.get("name") or id_a, b.get("name") or id_b
        # Two catalogue entries of a model can have the same name.
        if name_a == name_b:
            name_a, name_b = id_a, id_b
        yield f"the target is {name_a} in A and {name_b} in B"
    for what in ("revision", "sha256"):
        if a.get(what) != b.get(what):
            yield f"the target ({what}) is {a.get(what)} in A and {b.get(what)} in B"


def _unequal(fact: str, a: object, b: object) -> Iterator[str]:
    """Yield a sentence if a fact differs."""
    if a != b:
        yield f"{fact}: {a!r} in A and {b!r} in B"


def _reasons(result: ArmResult) -> bool | None:
    """True if any answer begins with reasoning; None if the result does not record reasoning."""
    answers = whole_answers(result)
    if not any("reasoning_text" in answer for answer in answers):
        return None
    return any(answer.get("reasoning_text") for answer in answers)


def _prompts(arm: str, result_a: ArmResult, result_b: ArmResult) -> tuple[list[str], list[str]]:
    """Sentences on an arm's prompts: what forbids the comparison, and what weakens it.

    Prompts are compared by the input tokens that the servers counted.
    """
    tokens_a, tokens_b = _tokens(result_a), _tokens(result_b)
    common = 0  # prompts in both
    apart = []  # ids of those whose counts differ by more than `TOKENS_APART`
    close = []  # ids of those whose counts differ by less
    for prompt, tokens in tokens_a.items():
        if prompt not in tokens_b:
            continue
        common += 1
        difference = abs(tokens - tokens_b[prompt])
        if difference > TOKENS_APART:
            apart.append(str(prompt[1]))
        elif difference:
            close.append(str(prompt[1]))
    if not common:
        return [f"{arm}: no prompt was sent in both"], []
    obstacles = []
    marks = []
    if common < max(len(tokens_a), len(tokens_b)):
        shares = f"{count(common, 'prompt')} in both, of {len(tokens_a)} in A and {len(tokens_b)} in B"
        marks.append(f"{arm}: {shares}: only these compare")
    if apart:
        obstacles.append(
            f"{arm}: the servers counted different input tokens for {count(len(apart), 'prompt')} (first {apart[0]}), "
            "so they did not see the same text"
        )
    elif close:
        marks.append(f"{arm}: the servers count the input of {count(len(close), 'prompt')} one or two tokens apart")
    return obstacles, marks


def _tokens(result: ArmResult) -> dict[Prompt, int]:
    """The input tokens of each prompt, as the server counted them for a complete answer."""
    tokens: dict[Prompt, int] = {}
    for answer in whole_answers(result):
        tokens[str(answer.get("group")), answer.get("prompt_id")] = answer.get("input_tokens") or 0
    return tokens


def _edited_prompts(kept_a: Kept, kept_b: Kept) -> tuple[list[str], list[str]]:
    """Sentences on the prompts' hashes: what forbids the comparison (edited prompts), and what weakens it."""
    hashes_a, hashes_b = kept_a.resolved.get("prompts"), kept_b.resolved.get("prompts")
    if not hashes_a or not hashes_b:
        key_a, key_b = kept_a.report.get("key"), kept_b.report.get("key")
        # Reports with the same key have the same prompts, since the key is a hash of them too.
        if key_a and key_a == key_b:
            return [], []
        if hashes_a:
            subject = "B keeps"
        elif hashes_b:
            subject = "A keeps"
        else:
            subject = "A and B keep"
        return [], [f"{subject} no hashes of the prompts: an edit in between would not be noticed"]
    names = []
    for kind, prompts in hashes_a.items():
        kind_hashes_b = hashes_b.get(kind) or {}
        names += [name for name, digest in prompts.items() if kind_hashes_b.get(name, digest) != digest]
    if not names:
        return [], []
    shown = first_names(names, MOST_SHOWN)
    what = "the messages, the output length, the tools, the answer format or other fields"
    verb = "is" if len(names) == 1 else "are"
    return [f"{count(len(names), 'prompt')} {verb} not the same in A and B ({shown}): {what} were changed"], []


def _weaknesses(kept_a: Kept, kept_b: Kept) -> Iterator[str]:
    """Yield sentences on what weakens the comparison without forbidding it."""
    differing = {fact["what"] for fact in subjects(kept_a, kept_b)}
    causes = [cause for cause, names in _MOVED.items() if differing & names]
    if len(causes) > 1:
        yield f"{listing(causes)} differ at once: a change cannot be attributed to one of them"
    rounds_a, rounds_b = kept_a.results["speculative"].get("rounds"), kept_b.results["speculative"].get("rounds")
    if rounds_a != rounds_b:
        yield f"A was measured in {rounds_a} rounds and B in {rounds_b}"
    for name, kept in (("A", kept_a), ("B", kept_b)):
        for warning in kept.report.get("warnings") or []:
            if "not steady" in warning or "other work" in warning:
                yield f"{name}: {warning}"
    load_a, load_b = kept_a.report.get("load"), kept_b.report.get("load")
    if (load_a is None) != (load_b is None):
        only = "B" if load_a is None else "A"
        yield f"only {only} has a load ladder"
