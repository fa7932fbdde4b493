"""Check the server's token counts (`usage` of its answers) against every other source of the same count.

All speeds are tokens over time, so a wrong count makes a wrong verdict. The sources are the `max_tokens` of the
request, the text, the chunks of the stream, the engine's figures in the answer (llama.cpp's `timings`), the engine's
counters, the engine's tokenizer, and the other arm's count of an answer with the same text (an arm is the baseline or
the speculative server). If two sources disagree by more than a tolerance, the verdict is invalid.

A tolerance is needed because some engines count the token that ends an answer and some do not, and a speculating engine
may count accepted tokens after that end. It is `SLACK_TOKENS` per answer or `SHARE` of all tokens, which is less than
the smallest effect that the verdict looks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.format import count, listing, whole
from .outcome import OK
from .samples import requests_of

if TYPE_CHECKING:
    from drafthouse.bench.result_types import ArmResult, Cost, Request

#: The tolerance of two counts in tokens per answer; it or `SHARE` applies, whichever allows more.
SLACK_TOKENS = 2
#: The tolerance of two counts as a fraction of all tokens.
SHARE = 0.02
#: Tokens of an answer without text: the marks of chat format, reasoning and tool calls (gpt-oss has about a dozen).
HIDDEN_TOKENS = 16
#: Tokenizing a text again gives other tokens than were generated; a difference above this share is a contradiction.
TOKENIZER_SHARE = 0.25
#: The number of answers of a group that are sent to the engine's tokenizer.
TOKENIZED = 3


def content_of(request: Request) -> str:
    """The reasoning, the text and the tool calls of an answer, as one string."""
    calls = "".join(f"{call.get('name')}{call.get('arguments')}" for call in request.get("tool_calls") or [])
    return f"{request.get('reasoning_text') or ''}{request.get('text') or ''}{calls}"


def least_generated(request: Cost) -> int:
    """The fewest output tokens that a request can have cost: the highest of usage, chunks and llama.cpp's timings.

    It is 0 if none of them is known.
    """
    least = max(0, request.get("output_tokens") or 0)
    # A tool call may split one token into several chunks, so its chunks are no lower bound.
    if not request.get("tool_calls"):
        least = max(least, request.get("chunks") or 0)
    predicted = (request.get("timings") or {}).get("predicted_n")
    if isinstance(predicted, int):
        least = max(least, predicted)
    return least


def may_be_tokenized(request: Request) -> bool:
    """True if all tokens of a complete answer are in its text.

    Reasoning and tool calls have hidden marks, and an answer with a gate may have either.
    """
    hidden = request.get("reasoning_text") or request.get("tool_calls") or request.get("gate")
    return request.get("status") == OK and bool(request.get("text")) and not hidden


def disagree(count_a: float, count_b: float, answers: int, share: float = SHARE) -> bool:
    """True if two token counts, each summed over ``answers`` answers, differ by more than the tolerance."""
    return abs(count_a - count_b) > max(SLACK_TOKENS * answers, share * max(count_a, count_b))


def contradictions(results: Mapping[str, ArmResult], groups: Sequence[str]) -> list[str]:
    """A sentence for each contradiction between two sources in these groups, within each arm and between the arms."""
    sentences = []
    for arm, result in results.items():
        sentences += [f"{arm}: {sentence}" for sentence in arm_contradictions(result, groups)]
    if len(results) == 2:
        sentences += _between_arms(results, groups)
    return sentences


def _between_arms(results: Mapping[str, ArmResult], groups: Sequence[str]) -> list[str]:
    """A sentence (in a list) if the arms counted different numbers of tokens for answers with the same text."""
    (arm_a, result_a), (arm_b, result_b) = results.items()
    pairs = _equal_texts(_counted(result_a, groups), _counted(result_b, groups))
    tokens_a = tokens_b = 0
    for request_a, request_b in pairs:
        tokens_a += _usage(request_a)
        tokens_b += _usage(request_b)
    if not pairs or not disagree(tokens_a, tokens_b, len(pairs)):
        return []
    largest, _ = max(pairs, key=lambda pair: abs(_usage(pair[0]) - _usage(pair[1])))
    verb = "was" if len(pairs) == 1 else "were"
    return [
        f"usage and the text disagree: {count(len(pairs), 'answer')} with the same text in both arms {verb} counted as "
        f"{whole(tokens_a)} tokens in {arm_a} and {whole(tokens_b)} tokens in {arm_b} "
        f"(largest difference: {_label(largest)})"
    ]


def arm_contradictions(result: ArmResult, groups: Sequence[str] | None = None) -> list[str]:
    """A sentence for each contradiction between two sources in one arm's result; ``groups`` None means all groups."""
    requests = _counted(result, groups)
    checks = [_check_max_tokens, _check_chunks, _check_timings]
    if not (result.get("settings") or {}).get("ignore_eos"):
        # With `ignore_eos` the model continues after its end with hidden tokens, so the text holds fewer than usage.
        checks += [_check_bytes, _check_tokenizer]
    sentences = []
    for check in checks:
        sentence = check(requests)
        if sentence:
            sentences.append(sentence)
    return sentences + _check_counters(result, groups)


def sources_of(result: ArmResult) -> dict[str, str | None]:
    """The sources that may be missing, with the reason why they are; None if the source was available."""
    older = "the result is too old to contain it"
    requests = _counted(result, None)
    counters = result.get("counters") or []
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
    """A sentence (in a list) about the missing ``sources``, by arm from `sources_of`; [] if none is missing.

    If both arms lack a source, the reason is the last arm's.
    """
    lacking = {}
    for of_arm in sources.values():
        for name, why in of_arm.items():
            if why:
                lacking[name] = f"{name} ({why})"
    if not lacking:
        return []
    return [f"Whether the token counts (usage) agree with {listing(list(lacking.values()))}."]


def _counted(result: ArmResult, groups: Sequence[str] | None) -> list[Request]:
    """The complete answers of these groups (None: of all groups) that have a token count."""
    counted = []
    for request in requests_of(result):
        of_groups = groups is None or str(request.get("group")) in groups
        if of_groups and request.get("status") == OK and request.get("output_tokens"):
            counted.append(request)
    return counted


def _usage(request: Request) -> int:
    """The server's count of an answer's output tokens; 0 if it has none."""
    return request["output_tokens"] or 0


def _label(request: Request) -> str:
    """The prompt and the round of a request, in words."""
    return f"{request.get('prompt_id')}, round {request.get('round')}"


def _check_max_tokens(requests: Sequence[Request]) -> str | None:
    """A sentence if an answer has more tokens than were requested; None if all agree, as in the checks below."""
    too_many = [r for r in requests if r.get("max_tokens") and _usage(r) > r["max_tokens"] + SLACK_TOKENS]
    if not too_many:
        return None
    return (
        f"usage and max_tokens disagree: {whole(_usage(too_many[0]))} output tokens, but at most "
        f"{whole(too_many[0]['max_tokens'])} were requested (first {_label(too_many[0])}; "
        f"{len(too_many)} of {count(len(requests), 'answer')})"
    )


def _check_bytes(requests: Sequence[Request]) -> str | None:
    """A sentence if all answers together have more tokens than bytes of text and `HIDDEN_TOKENS` each."""
    answers = tokens = size = 0
    for request in requests:
        # Results of other benchmark clients may have no text.
        if request.get("text") is not None:
            answers += 1
            tokens += _usage(request)
            size += len(content_of(request).encode("utf-8", "replace"))
    # Every token except the hidden ones is at least one byte of text; fewer tokens than bytes are normal.
    if tokens <= size + HIDDEN_TOKENS * answers:
        return None
    return f"usage and the text disagree: {whole(tokens)} output tokens in {whole(size)} bytes of text"


def _check_chunks(requests: Sequence[Request]) -> str | None:
    """A sentence if an answer has fewer tokens than chunks that carried tokens."""
    answers = 0
    too_few = []
    for request in requests:
        if request.get("tool_calls"):
            continue
        answers += 1
        # Fewer chunks than tokens are normal: with speculation a chunk carries several. More are a contradiction.
        if disagree(_usage(request), max(_usage(request), request.get("chunks") or 0), 1):
            too_few.append(request)
    if not too_few:
        return None
    return (
        f"usage and the stream disagree: {whole(_usage(too_few[0]))} output tokens, but {whole(too_few[0]['chunks'])} "
        f"chunks with at least one each (first {_label(too_few[0])}; {len(too_few)} of {count(answers, 'answer')})"
    )


def _check_timings(requests: Sequence[Request]) -> str | None:
    """A sentence if an answer's usage and llama.cpp's count for it differ."""
    answers = 0
    wrong = []
    for request in requests:
        predicted = (request.get("timings") or {}).get("predicted_n")
        if not isinstance(predicted, int):
            continue
        answers += 1
        if disagree(_usage(request), predicted, 1):
            wrong.append((request, predicted))
    if not wrong:
        return None
    request, predicted = wrong[0]
    return (
        f"usage and the engine's timings disagree: {whole(_usage(request))} output tokens, but "
        f"{whole(predicted)} (predicted_n) for one answer (first {_label(request)}; "
        f"{len(wrong)} of {count(answers, 'answer')})"
    )


def _check_tokenizer(requests: Sequence[Request]) -> str | None:
    """A sentence if the engine's tokenizer counts another number of tokens for the texts that it was given."""
    tokenized = [request for request in requests if request.get("tokenized")]
    usage = sum(map(_usage, tokenized))
    encoded = sum(request["tokenized"] or 0 for request in tokenized)
    if not tokenized or not disagree(usage, encoded, len(tokenized), TOKENIZER_SHARE):
        return None
    return (
        f"usage and the engine's tokenizer disagree: {whole(usage)} output tokens, but {whole(encoded)} for the same "
        f"{count(len(tokenized), 'text')}"
    )


def _check_counters(result: ArmResult, groups: Sequence[str] | None) -> list[str]:
    """A sentence for each group and round in which usage and the engine's counters differ; ``groups`` None: all."""
    sentences = []
    for reading in result.get("counters") or []:
        if groups is not None and str(reading.get("group")) not in groups:
            continue
        counted = reading.get("counted")
        if counted and disagree(counted["usage"], counted["engine"], counted["answers"]):
            sentences.append(
                f"usage and the engine's counters disagree on {reading.get('group')} in round {reading.get('round')}: "
                f"{whole(counted['usage'])} output tokens, but the engine generated {whole(counted['engine'])} for "
                f"the same {count(counted['answers'], 'request')}"
            )
    return sentences


def _equal_texts(requests_a: Sequence[Request], requests_b: Sequence[Request]) -> list[tuple[Request, Request]]:
    """The pairs of answers with the same prompt, round and text."""

    def key(request: Request) -> tuple[int, str, str]:
        return request.get("round"), request.get("group"), request.get("prompt_id")

    by_key = {key(request): request for request in requests_a}
    equal = []
    for request_b in requests_b:
        request_a = by_key.get(key(request_b))
        if request_a and content_of(request_a) and content_of(request_a) == content_of(request_b):
            equal.append((request_a, request_b))
    return equal
