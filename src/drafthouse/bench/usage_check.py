"""Are the server's token counts true: its `usage` set against every other source that says something of it.

All speeds are tokens over time, so a wrong count makes a wrong verdict. The sources: the `max_tokens` that were asked
for, the text itself, the chunks of the stream, the engine's own figures in the answer (llama.cpp's `timings`), the
engine's counters, the engine's tokenizer, and the other arm's count of an equal answer. Where two of them disagree by
more than the slack, nothing can be said. Pure.

The slack: an engine may count the token that ends an answer or leave it out, and one that drafts may count what it
accepted behind that end. That is granted with `SLACK_TOKENS` an answer, and `SHARE` of all tokens, below what a
verdict looks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.format import count, listing, whole
from .outcome import OK
from .samples import requests_of

if TYPE_CHECKING:
    from drafthouse.bench.result_types import ArmResult, Cost, Request

#: Tokens by which two counts of one answer may differ, and the share of all tokens by which two sums may.
SLACK_TOKENS, SHARE = 2, 0.02
#: Tokens of an answer that show no text: the marks of a chat format, of thoughts and of calls (gpt-oss has a dozen).
HIDDEN_TOKENS = 16
#: A text cut into tokens anew has others than those it was generated with; above this share that explains nothing.
TOKENIZER_SHARE = 0.25
#: How many answers of a group the engine's tokenizer is asked about.
TOKENIZED = 3


def content_of(request: Request) -> str:
    """Everything an answer said: thoughts, text, and calls."""
    calls = "".join(f"{one.get('name')}{one.get('arguments')}" for one in request.get("tool_calls") or [])
    return f"{request.get('reasoning_text') or ''}{request.get('text') or ''}{calls}"


def least_generated(request: Cost) -> int:
    """How many output tokens a request cost at least, whatever its usage says: a chunk holds one or more."""
    told = (request.get("timings") or {}).get("predicted_n")
    # One token of a call may come in several chunks: its name, and the beginning of its arguments.
    chunks = 0 if request.get("tool_calls") else request.get("chunks") or 0
    return max(request.get("output_tokens") or 0, chunks, told if isinstance(told, int) else 0)


def may_be_tokenized(request: Request) -> bool:
    """Tell whether an answer's text holds all of its tokens: no thoughts and no calls, whose marks are not shown."""
    hidden = request.get("reasoning_text") or request.get("tool_calls") or request.get("gate")
    return request.get("status") == OK and bool(request.get("text")) and not hidden


def apart(one: float, other: float, answers: int, share: float = SHARE) -> bool:
    """Tell whether two sums of tokens over so many answers disagree."""
    return abs(one - other) > max(SLACK_TOKENS * answers, share * max(one, other))


def contradictions(results: Mapping[str, ArmResult], groups: Sequence[str]) -> list[str]:
    """A sentence for each two sources that disagree on these groups, of each arm and between the two."""
    found = [f"{arm}: {said}" for arm, result in results.items() for said in of_result(result, groups)]
    pair = _equal_texts(*(_whole(result, groups) for result in results.values())) if len(results) == 2 else None
    if pair:
        answers, first, sums = pair
        one, other = (f"{whole(total)} tokens in {arm}" for arm, total in zip(results, sums, strict=True))
        if apart(*sums, answers):
            found.append(
                f"usage and the text disagree: {count(answers, 'answer')} with the same text in both arms "
                f"{'was' if answers == 1 else 'were'} counted as {one} and {other} (largest difference: {first})"
            )
    return found


def of_result(result: ArmResult, groups: Sequence[str] | None = None) -> list[str]:
    """A sentence for each two sources that disagree in one arm's result; ``groups`` None is all of them."""
    requests = _whole(result, groups)
    checks = [_max_tokens, _chunks, _timings]
    if not (result.get("settings") or {}).get("ignore_eos"):
        # With it a model goes on behind its end with marks that are not shown: the text holds less than was made.
        checks += [_bytes, _tokenizer]
    found = [said for check in checks if (said := check(requests))]
    return [*found, *_counters(result, groups)]


def sources_of(result: ArmResult) -> dict[str, str | None]:
    """Each source beside the text and the stream, with why it was not there; None where it was."""
    older = "the result is too old to contain it"
    requests, counters = _whole(result, None), result.get("counters") or []
    missing: dict[str, str | None] = dict.fromkeys(("max_tokens", "the engine's counters", "the engine's tokenizer"))
    if not any(request.get("max_tokens") for request in requests):
        missing["max_tokens"] = older
    if not any(reading.get("counted") for reading in counters):
        shown = any("counted" in reading for reading in counters)
        missing["the engine's counters"] = "the engine shows none" if shown else older
    if not any(request.get("tokenized") for request in requests):
        tokenizer = result.get("tokenizer")
        why = "no answer was plain text" if "tokenizer" in result else older
        missing["the engine's tokenizer"] = str((tokenizer and tokenizer.get("error")) or why)
    return missing


def not_compared(sources: Mapping[str, Mapping[str, str | None]]) -> list[str]:
    """What `sources_of` both arms lacks, as a sentence; none where all of it was there."""
    lacking = {name: why for own in sources.values() for name, why in own.items() if why}
    told = [f"{name} ({why})" for name, why in lacking.items()]
    return [f"Whether the token counts (usage) agree with {listing(told)}."] if told else []


def _whole(result: ArmResult, groups: Sequence[str] | None) -> list[Request]:
    return [
        r
        for r in requests_of(result)
        if r.get("status") == OK and r.get("output_tokens") and (groups is None or str(r.get("group")) in groups)
    ]


def _usage(request: Request) -> int:
    """The server's count of an answer's tokens; those of `_whole` have one."""
    return request["output_tokens"] or 0


def _first(request: Request) -> str:
    return f"{request.get('prompt_id')}, round {request.get('round')}"


def _max_tokens(requests: Sequence[Request]) -> str | None:
    over = [r for r in requests if r.get("max_tokens") and _usage(r) > r["max_tokens"] + SLACK_TOKENS]
    if not over:
        return None
    return (
        f"usage and max_tokens disagree: {whole(_usage(over[0]))} output tokens, but at most "
        f"{whole(over[0]['max_tokens'])} were requested (first {_first(over[0])}; "
        f"{len(over)} of {count(len(requests), 'answer')})"
    )


def _bytes(requests: Sequence[Request]) -> str | None:
    # A token is a byte of text at least, but for the marks that are not shown. Other people's files may have no text.
    shown = [r for r in requests if r.get("text") is not None]
    tokens = sum(_usage(r) for r in shown)
    size = sum(len(content_of(r).encode("utf-8", "replace")) for r in shown)
    if tokens <= size + HIDDEN_TOKENS * len(shown):
        return None
    return f"usage and the text disagree: {whole(tokens)} output tokens in {whole(size)} bytes of text"


def _chunks(requests: Sequence[Request]) -> str | None:
    chosen = [r for r in requests if not r.get("tool_calls")]
    low = [r for r in chosen if apart(_usage(r), max(_usage(r), r.get("chunks") or 0), 1)]
    if not low:
        return None
    return (
        f"usage and the stream disagree: {whole(_usage(low[0]))} output tokens, but {whole(low[0]['chunks'])} "
        f"chunks with at least one each (first {_first(low[0])}; {len(low)} of {count(len(chosen), 'answer')})"
    )


def _timings(requests: Sequence[Request]) -> str | None:
    told = [(r, n) for r in requests if isinstance(n := (r.get("timings") or {}).get("predicted_n"), int)]
    other = [(r, n) for r, n in told if apart(_usage(r), n, 1)]
    if not other:
        return None
    request, number = other[0]
    return (
        f"usage and the engine's timings disagree: {whole(_usage(request))} output tokens, but "
        f"{whole(number)} (predicted_n) for one answer (first {_first(request)}; "
        f"{len(other)} of {count(len(told), 'answer')})"
    )


def _tokenizer(requests: Sequence[Request]) -> str | None:
    asked = [r for r in requests if r.get("tokenized")]
    usage, own = sum(map(_usage, asked)), sum(r["tokenized"] or 0 for r in asked)
    if not asked or not apart(usage, own, len(asked), TOKENIZER_SHARE):
        return None
    return (
        f"usage and the engine's tokenizer disagree: {whole(usage)} output tokens, but {whole(own)} for the same "
        f"{count(len(asked), 'text')}"
    )


def _counters(result: ArmResult, groups: Sequence[str] | None) -> list[str]:
    found = []
    for one in result.get("counters") or []:
        if groups is not None and str(one.get("group")) not in groups:
            continue
        told, where = one.get("counted"), f"on {one.get('group')} in round {one.get('round')}"
        if told and apart(told["usage"], told["engine"], told["answers"]):
            found.append(
                f"usage and the engine's counters disagree {where}: {whole(told['usage'])} output tokens, but the "
                f"engine generated {whole(told['engine'])} for the same {count(told['answers'], 'request')}"
            )
    return found


def _equal_texts(one: Sequence[Request], other: Sequence[Request]) -> tuple[int, str, tuple[int, int]] | None:
    """How many answers said the same in both arms, the one that is furthest apart, and what each arm counted."""

    def key(request: Request) -> tuple[int, str, str]:
        return request.get("round"), request.get("group"), request.get("prompt_id")

    known = {key(r): r for r in one}
    pairs = [(known[key(r)], r) for r in other if key(r) in known]
    equal = [(a, b) for a, b in pairs if content_of(a) and content_of(a) == content_of(b)]
    if not equal:
        return None
    worst = max(equal, key=lambda pair: abs(_usage(pair[0]) - _usage(pair[1])))
    sums = sum(_usage(a) for a, _ in equal), sum(_usage(b) for _, b in equal)
    return len(equal), _first(worst[0]), sums
