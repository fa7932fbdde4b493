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
    calls = "".join(f"{call.get('name')}{call.get('arguments')}" for call in request.get("tool_calls") or [])
    return f"{request.get('reasoning_text') or ''}{request.get('text') or ''}{calls}"


def least_generated(request: Cost) -> int:
    """How many output tokens a request cost at least, whatever its usage says: a chunk holds one or more."""
    least = max(0, request.get("output_tokens") or 0)
    # One token of a call may come in several chunks: its name, and the beginning of its arguments.
    if not request.get("tool_calls"):
        least = max(least, request.get("chunks") or 0)
    predicted = (request.get("timings") or {}).get("predicted_n")
    if isinstance(predicted, int):
        least = max(least, predicted)
    return least


def may_be_tokenized(request: Request) -> bool:
    """Whether an answer's text holds all of its tokens: no thoughts and no calls, whose marks are not shown."""
    hidden = request.get("reasoning_text") or request.get("tool_calls") or request.get("gate")
    return request.get("status") == OK and bool(request.get("text")) and not hidden


def apart(one: float, other: float, answers: int, share: float = SHARE) -> bool:
    """Whether two sums of tokens over so many answers disagree."""
    return abs(one - other) > max(SLACK_TOKENS * answers, share * max(one, other))


def contradictions(results: Mapping[str, ArmResult], groups: Sequence[str]) -> list[str]:
    """A sentence for each two sources that disagree on these groups, of each arm and between the two."""
    found = []
    for arm, result in results.items():
        found += [f"{arm}: {sentence}" for sentence in of_result(result, groups)]
    if len(results) == 2:
        found += _of_equal_texts(results, groups)
    return found


def _of_equal_texts(results: Mapping[str, ArmResult], groups: Sequence[str]) -> list[str]:
    """A sentence where two arms counted other tokens for the answers that say the same in both."""
    (one_arm, one), (other_arm, other) = results.items()
    pairs = _equal_texts(_counted(one, groups), _counted(other, groups))
    one_tokens = other_tokens = 0
    for one_request, other_request in pairs:
        one_tokens += _usage(one_request)
        other_tokens += _usage(other_request)
    if not pairs or not apart(one_tokens, other_tokens, len(pairs)):
        return []
    worst, _ = max(pairs, key=lambda pair: abs(_usage(pair[0]) - _usage(pair[1])))
    verb = "was" if len(pairs) == 1 else "were"
    return [
        f"usage and the text disagree: {count(len(pairs), 'answer')} with the same text in both arms {verb} counted as "
        f"{whole(one_tokens)} tokens in {one_arm} and {whole(other_tokens)} tokens in {other_arm} "
        f"(largest difference: {_first(worst)})"
    ]


def of_result(result: ArmResult, groups: Sequence[str] | None = None) -> list[str]:
    """A sentence for each two sources that disagree in one arm's result; ``groups`` None is all of them."""
    requests = _counted(result, groups)
    checks = [_max_tokens, _chunks, _timings]
    if not (result.get("settings") or {}).get("ignore_eos"):
        # With it a model goes on behind its end with marks that are not shown: the text holds less than was made.
        checks += [_bytes, _tokenizer]
    found = []
    for check in checks:
        sentence = check(requests)
        if sentence:
            found.append(sentence)
    return found + _counters(result, groups)


def sources_of(result: ArmResult) -> dict[str, str | None]:
    """Each source beside the text and the stream, with why it was not there; None where it was."""
    older = "the result is too old to contain it"
    requests, counters = _counted(result, None), result.get("counters") or []
    missing: dict[str, str | None] = dict.fromkeys(("max_tokens", "the engine's counters", "the engine's tokenizer"))
    if not any(request.get("max_tokens") for request in requests):
        missing["max_tokens"] = older
    if not any(reading.get("counted") for reading in counters):
        missing["the engine's counters"] = older
        if any("counted" in reading for reading in counters):
            missing["the engine's counters"] = "the engine shows none"
    if not any(request.get("tokenized") for request in requests):
        tokenizer = result.get("tokenizer")
        why = "no answer was plain text" if "tokenizer" in result else older
        missing["the engine's tokenizer"] = str((tokenizer and tokenizer.get("error")) or why)
    return missing


def not_compared(sources: Mapping[str, Mapping[str, str | None]]) -> list[str]:
    """What `sources_of` both arms lacks, as a sentence; none where all of it was there."""
    lacking = {}
    for of_arm in sources.values():
        for name, why in of_arm.items():
            if why:
                lacking[name] = f"{name} ({why})"
    if not lacking:
        return []
    return [f"Whether the token counts (usage) agree with {listing(list(lacking.values()))}."]


def _counted(result: ArmResult, groups: Sequence[str] | None) -> list[Request]:
    """The whole answers of these groups (None: of all) that have a token count."""
    counted = []
    for request in requests_of(result):
        of_groups = groups is None or str(request.get("group")) in groups
        if of_groups and request.get("status") == OK and request.get("output_tokens"):
            counted.append(request)
    return counted


def _usage(request: Request) -> int:
    """The server's count of an answer's tokens; those of `_counted` have one."""
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
    answers = tokens = size = 0
    for request in requests:
        # Other people's files may have no text.
        if request.get("text") is not None:
            answers += 1
            tokens += _usage(request)
            size += len(content_of(request).encode("utf-8", "replace"))
    # A token is a byte of text at least, but for the marks that are not shown.
    if tokens <= size + HIDDEN_TOKENS * answers:
        return None
    return f"usage and the text disagree: {whole(tokens)} output tokens in {whole(size)} bytes of text"


def _chunks(requests: Sequence[Request]) -> str | None:
    answers, low = 0, []
    for request in requests:
        if request.get("tool_calls"):
            continue
        answers += 1
        if apart(_usage(request), max(_usage(request), request.get("chunks") or 0), 1):
            low.append(request)
    if not low:
        return None
    return (
        f"usage and the stream disagree: {whole(_usage(low[0]))} output tokens, but {whole(low[0]['chunks'])} "
        f"chunks with at least one each (first {_first(low[0])}; {len(low)} of {count(answers, 'answer')})"
    )


def _timings(requests: Sequence[Request]) -> str | None:
    answers, wrong = 0, []
    for request in requests:
        predicted = (request.get("timings") or {}).get("predicted_n")
        if not isinstance(predicted, int):
            continue
        answers += 1
        if apart(_usage(request), predicted, 1):
            wrong.append((request, predicted))
    if not wrong:
        return None
    request, predicted = wrong[0]
    return (
        f"usage and the engine's timings disagree: {whole(_usage(request))} output tokens, but "
        f"{whole(predicted)} (predicted_n) for one answer (first {_first(request)}; "
        f"{len(wrong)} of {count(answers, 'answer')})"
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
    for reading in result.get("counters") or []:
        if groups is not None and str(reading.get("group")) not in groups:
            continue
        counted = reading.get("counted")
        if counted and apart(counted["usage"], counted["engine"], counted["answers"]):
            found.append(
                f"usage and the engine's counters disagree on {reading.get('group')} in round {reading.get('round')}: "
                f"{whole(counted['usage'])} output tokens, but the engine generated {whole(counted['engine'])} for "
                f"the same {count(counted['answers'], 'request')}"
            )
    return found


def _equal_texts(one: Sequence[Request], other: Sequence[Request]) -> list[tuple[Request, Request]]:
    """The answers that say the same in both arms."""

    def key(request: Request) -> tuple[int, str, str]:
        return request.get("round"), request.get("group"), request.get("prompt_id")

    known = {key(request): request for request in one}
    equal = []
    for request in other:
        counterpart = known.get(key(request))
        if counterpart and content_of(counterpart) and content_of(counterpart) == content_of(request):
            equal.append((counterpart, request))
    return equal
