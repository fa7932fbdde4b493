"""Splits a completion into reasoning and answer, and finds prompts that get reasoning but no answer.

A reasoning model may spend the whole output length on reasoning. Then there is no answer to compare between the
two arms (baseline and speculative), and the speed of reasoning alone is not the speed of the declared work.
A prompt is lost if only the baseline answers it, and won if only the speculative arm does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..bench.result_types import ArmResult, Request
from ..bench.samples import whole_prompt
from ..core.format import count
from .measured import answers_in
from .paired_tests import losses_chance

#: Significance level of `answers_lost`: losses that are less probable by chance are put down to speculation.
LOST_CHANCE = 0.01


def thought_of(request: Request) -> str:
    """The reasoning of a completion; "" without any."""
    return str(request.get("reasoning_text") or "")


def answer_of(request: Request) -> str:
    """The answer of a completion, without its reasoning: its text and its tool calls."""
    # The id of a call is left out: the server generates a new one for each answer.
    calls = "".join(f"\n{call.get('name')}({call.get('arguments')})" for call in request.get("tool_calls") or [])
    return f"{request.get('text') or ''}{calls}"


def whole_text(request: Request) -> str:
    """The complete text of a completion, reasoning and tool calls included: the arms must agree in all of it."""
    return thought_of(request) + answer_of(request)


def first_difference(text_a: str, text_b: str) -> int:
    """The index of the first differing character, from 0; the length of the shorter text if none differs."""
    for index, (character_a, character_b) in enumerate(zip(text_a, text_b, strict=False)):
        if character_a != character_b:
            return index
    return min(len(text_a), len(text_b))


def is_answered(request: Request) -> bool:
    """True if the completion has an answer, and not reasoning alone."""
    return bool(answer_of(request).strip())


def answers_lost(baseline: Iterable[Request], speculative: Iterable[Request]) -> str | None:
    """A sentence if the speculative arm lost more prompts than chance explains (`LOST_CHANCE`), else None."""
    baseline_answered, speculative_answered = _answered_prompts(baseline), _answered_prompts(speculative)
    lost = []  # prompts that only the baseline answered
    won = pairs = 0  # prompts that only the speculative arm answered, and prompts that are complete in both arms
    for prompt in baseline_answered:
        if prompt not in speculative_answered:
            continue  # it has no complete answer in that arm, which another check reports
        pairs += 1
        if baseline_answered[prompt] and not speculative_answered[prompt]:
            lost.append(prompt)
        won += speculative_answered[prompt] and not baseline_answered[prompt]
    if losses_chance(len(lost), won, pairs) >= LOST_CHANCE:
        return None
    answered_count = sum(baseline_answered.values())
    _, first_lost_id = lost[0]
    return (
        f"{len(lost)} of the {count(answered_count, 'prompt')} that the baseline answers "
        f"get reasoning but no answer in the speculative arm (first {first_lost_id})"
    )


def _answered_prompts(requests: Iterable[Request]) -> dict[tuple[str, str], bool]:
    """By (group, prompt id) of the complete answers, True if one of them has more than reasoning."""
    answered: dict[tuple[str, str], bool] = {}
    for request in requests:
        if request.get("status") == "ok":
            prompt = str(request.get("group")), whole_prompt(request.get("prompt_id"))
            answered[prompt] = answered.get(prompt, False) or is_answered(request)
    return answered


def unanswered(results: Mapping[str, ArmResult], groups: Sequence[str]) -> list[str]:
    """One sentence if the baseline gave only reasoning on ``groups``, so that no work was measured; else empty."""
    requests = answers_in(results["baseline"], groups)
    with_reasoning = sum(bool(thought_of(request).strip()) for request in requests)
    # Complete answers without reasoning and without an answer are from imported files that have no texts.
    if not with_reasoning or any(map(is_answered, requests)):
        return []
    cut_off = sum(request.get("finish_reason") == "length" for request in requests)
    advice = "check the engine's reasoning parser: it may take answers for reasoning"
    if cut_off == len(requests):
        advice = "raise the output length limit: reasoning used all of it"
    return [f"the baseline gave only reasoning and no answer in {count(len(requests), 'request')}: {advice}"]
