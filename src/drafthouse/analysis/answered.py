"""What the model answered, apart from what it thought; and prompts to which no answer came.

A model that thinks may use all of the output length for it. Then nothing was answered: two arms that think alike have
given no equal answer, and how fast they thought is not how fast they work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..bench.result_types import ArmResult, Request
from ..bench.samples import whole_prompt
from ..core.format import count
from .measured import in_groups
from .paired_tests import losses_chance

#: Below this chance among equal arms, prompts that are no longer answered are lost to speculation.
LOST_CHANCE = 0.01


def thought_of(request: Request) -> str:
    """What the model thought before it answered."""
    return str(request.get("reasoning_text") or "")


def answer_of(request: Request) -> str:
    """What the model answered: its text, and its tool calls."""
    # The id of a call is drawn anew for each answer, so it is left out.
    calls = "".join(f"\n{call.get('name')}({call.get('arguments')})" for call in request.get("tool_calls") or [])
    return f"{request.get('text') or ''}{calls}"


def whole_text(request: Request) -> str:
    """All that the model said, thinking and calls included: the arms must agree in that as well."""
    return thought_of(request) + answer_of(request)


def first_difference(one: str, two: str) -> int:
    """The place of the first character that differs, from 0; the length of the shorter text where none does."""
    for place, (character, other) in enumerate(zip(one, two, strict=False)):
        if character != other:
            return place
    return min(len(one), len(two))


def is_answered(request: Request) -> bool:
    """Whether there is an answer at all, and not thoughts alone."""
    return bool(answer_of(request).strip())


def answers_lost(baseline: Iterable[Request], speculative: Iterable[Request]) -> str | None:
    """The sentence that prompts which the baseline answers get thoughts alone, at any temperature; None if not."""
    ours, theirs = _answered_prompts(baseline), _answered_prompts(speculative)
    lost = []
    won = pairs = 0
    for prompt in ours:
        if prompt not in theirs:
            continue
        pairs += 1
        if ours[prompt] and not theirs[prompt]:
            lost.append(prompt)
        won += theirs[prompt] and not ours[prompt]
    if losses_chance(len(lost), won, pairs) >= LOST_CHANCE:
        return None
    return (
        f"{len(lost)} of the {count(sum(map(bool, ours.values())), 'prompt')} that the baseline answers get reasoning "
        f"but no answer in the speculative arm (first {lost[0][1]})"
    )


def _answered_prompts(requests: Iterable[Request]) -> dict[tuple[str, str], bool]:
    """Which prompts of an arm were answered, in one round at least."""
    found: dict[tuple[str, str], bool] = {}
    for request in requests:
        if request.get("status") == "ok":
            prompt = str(request.get("group")), whole_prompt(request.get("prompt_id"))
            found[prompt] = found.get(prompt, False) or is_answered(request)
    return found


def unanswered(results: Mapping[str, ArmResult], groups: Sequence[str]) -> list[str]:
    """A sentence where the baseline answered no prompt of some groups: no work was measured."""
    requests = in_groups(results["baseline"], groups)
    thought = sum(bool(thought_of(r).strip()) for r in requests)
    if not thought or any(map(is_answered, requests)):
        return []
    cut = sum(r.get("finish_reason") == "length" for r in requests)
    advice = "check the engine's reasoning parser: it may take answers for reasoning"
    if cut == len(requests):
        advice = "raise the output length limit: reasoning used all of it"
    return [f"the baseline gave only reasoning and no answer in {count(len(requests), 'request')}: {advice}"]
