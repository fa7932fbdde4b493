"""The same prompt more than once on one server: with its prefix in the cache, in all slots at once, not streamed.

At temperature 0 each of them must say the same. What an engine may do wrong only then (a cached block with another
state, a slot that reads its neighbour's drafts, a parser of streams that loses a call) no single answer shows. As with
the other gates, nothing is asked of the speculative arm that the baseline does not do itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..bench.result_types import ArmResult, Request, ToolCall
from ..bench.samples import Prompt, gave_nothing, requests_of, whole_prompt
from ..bench.stats import values_needed
from ..core.format import count, listing, whole
from ..prompts.checks import STREAMS, WARM
from ..prompts.json_schema import read_json
from ..prompts.suite_types import Again
from .answer_checks import OPEN, RIGHT, WRONG, check_answer, short, was_cut
from .answered import thought_of
from .output_equality import TOLERATED_TOKENS, Figures, OutputPair, pair_outputs
from .verdict_types import GateSide, JudgedArms, JudgedGate, not_measured

#: The share of the repeated prompts' tokens that the prefix cache must have had for it to count as hit. An engine
#: caches whole blocks (up to 2,096 tokens in a hybrid model), so that the last one is never in it.
HIT_SHARE = 0.5

SLOTS_RULE = (
    "a prompt is sent several times at once; fails when, at 95 % confidence over prompts, its answers differ from one "
    "another more often than in the baseline, and first differences come more often than once per "
    f"{TOLERATED_TOKENS} tokens"
)
_WORSE = {RIGHT: 0, OPEN: 1, WRONG: 2}


def asked_again(requests: Iterable[Request], again: Again) -> dict[tuple[int, str, str], list[Request]]:
    """Return the requests that were sent again in this way, by round, group and prompt, each in its order."""
    found: dict[tuple[int, str, str], list[Request]] = {}
    for request in requests:
        gate = request.get("gate")
        if gate and gate.get("again") == again:
            key = request["round"], str(request.get("group")), whole_prompt(request["prompt_id"])
            found.setdefault(key, []).append(request)
    return {key: sorted(several, key=_turn) for key, several in found.items() if len(several) > 1}


def _turn(request: Request) -> int:
    return int(str(request["prompt_id"]).rpartition("#")[2])


# --- the same answer ------------------------------------------------------------------------------


def again_states(requests: Iterable[Request], again: Again) -> dict[Prompt, tuple[str, str]]:
    """Return whether each prompt's answers say the same: right, wrong, or open, and why when not right."""
    states: dict[Prompt, tuple[str, str]] = {}
    for (_, group, prompt), (first, *others) in asked_again(requests, again).items():
        seen = [states.get((group, prompt), (RIGHT, "")), *(_compared(first, other, again) for other in others)]
        states[group, prompt] = max(seen, key=lambda state: _WORSE[state[0]])
    return states


def _compared(first: Request, other: Request, again: Again) -> tuple[str, str]:
    for request in (first, other):
        if gave_nothing(request):
            return WRONG, check_answer(request)[1]
        if request.get("status") != "ok":
            return OPEN, f"not answered: {request.get('error') or request.get('status')}"
    if again == STREAMS and not first.get("tool_calls") and not other.get("tool_calls"):
        return OPEN, f"no call in either answer: {short(first.get('text'))}"
    one, two = _said(first), _said(other)
    if one == two:
        return (RIGHT, "") if one else (OPEN, "reasoning but no answer")
    if (was_cut(first) or was_cut(other)) and (one.startswith(two) or two.startswith(one)):
        return OPEN, "cut off by the output length limit"
    right = check_answer(first)[0] == check_answer(other)[0] == RIGHT
    if right and again == WARM:
        # The words that were asked for, in another sentence: rounding, and nothing lost.
        return RIGHT, ""
    if right and thought_of(first) != thought_of(other):
        return OPEN, "both are right, but their reasoning differs"
    words = ("streamed", "not streamed") if again == STREAMS else ("asked first", "asked again")
    return WRONG, f"{words[0]}: {short(one)}; {words[1]}: {short(two)}"


def _said(request: Request) -> str:
    """Return an answer without thoughts: text, and calls with their arguments in one spelling."""
    calls = [f"{call.get('name')}({_spelled(call)})" for call in request.get("tool_calls") or []]
    return "\n".join([str(request.get("text") or "").strip(), *calls]).strip()


def _spelled(call: ToolCall) -> str:
    try:
        return json.dumps(read_json(call.get("arguments") or "{}"), sort_keys=True)
    except ValueError:
        return str(call.get("arguments"))


# --- the prefix cache was hit ---------------------------------------------------------------------


@dataclass(frozen=True)
class Hits:
    """How many of the ``asked`` input tokens of repeated prompts the prefix cache had, as ``source`` says."""

    cached: int
    asked: int
    source: str

    @property
    def enough(self) -> bool:
        """Tell whether the cache was hit."""
        return self.cached >= HIT_SHARE * self.asked > 0

    def __str__(self) -> str:
        """Return it in words."""
        return f"{whole(self.cached)} of {whole(self.asked)} repeated input tokens ({self.source})"


def prefix_hits(result: ArmResult) -> Hits | None:
    """Return what an engine says of its prefix cache where prompts were asked again; None where it says nothing.

    The answers say it themselves (`usage.prompt_tokens_details.cached_tokens`, llama.cpp's `timings.cache_n`), or the
    counters of the groups in which they were asked.
    """
    several = asked_again(requests_of(result), WARM)
    repeats = [r for requests in several.values() for r in requests[1:] if r.get("status") == "ok"]
    asked = sum(r.get("input_tokens") or 0 for r in repeats)
    told = [tokens for r in repeats if (tokens := _cached(r)) is not None]
    if told:
        return Hits(sum(told), asked, "the answers' own figures")
    groups = {(number, group) for number, group, _ in several}
    moved = [
        after["cached_tokens"] - before.get("cached_tokens", 0.0)
        for one in result.get("counters") or []
        if (one["round"], one["group"]) in groups
        and "cached_tokens" in (after := one["after"].get("traffic") or {})
        and (before := one["before"].get("traffic") or {}) is not None
    ]
    return Hits(round(sum(moved)), asked, "the engine's counters") if moved else None


def _cached(request: Request) -> int | None:
    told = request.get("cached_tokens")
    timed = (request.get("timings") or {}).get("cache_n")
    return told if told is not None else timed if isinstance(timed, int) else None


def with_proof(judged: JudgedGate, hits: Mapping[str, Hits | None]) -> JudgedGate:
    """Return the gate of the warm prefix cache with what the engines say of it; without a hit it has not passed."""
    silent = [arm for arm, hit in hits.items() if hit is None]
    cold = [f"{arm}: {hit}" for arm, hit in hits.items() if hit is not None and not hit.enough]
    proof = "; ".join(f"{arm}: {hit}" for arm, hit in hits.items() if hit is not None)
    if judged["word"] == "passed" and silent:
        said = f"the answers are the same, but the engine does not report whether the cache was hit ({listing(silent)})"
        return {**judged, "word": "not measured", "said": said}
    if judged["word"] == "passed" and cold:
        said = f"the prefix cache was not hit, so it was not tested: {'; '.join(cold)}"
        return {**judged, "word": "not measured", "said": said}
    return {**judged, "said": f"{judged['said']}; from the cache: {proof}"} if proof else judged


# --- the same prompt in all slots -----------------------------------------------------------------


def judge_slots(baseline: ArmResult, speculative: ArmResult, slots: int | None) -> JudgedArms:
    """Return what the gate says of both arms; ``slots`` are those of a server, None where that is not known."""
    asked = [asked_again(requests_of(result), "slots") for result in (baseline, speculative)]
    ours, theirs = (_earliest(several.values()) for several in asked)
    prompts = {_whole(p) for p in ours} & {_whole(p) for p in theirs}
    if slots == 1:
        return not_measured("the server has one slot, so requests run one after another")
    if len(prompts) < values_needed():
        return not_measured(
            f"{count(len(prompts), 'prompt')} sent several times at once, and {values_needed()} are needed"
        )
    both, control = ([p for p in pairs if _whole(p) in prompts] for pairs in (theirs, ours))
    figures = Figures.of(both, control)
    sides = [_side(several) for several in asked]
    answer: JudgedArms = {
        "word": "passed",
        "said": f"{sides[1]['said']}; the baseline: {sides[0]['said']}",
        "baseline": sides[0],
        "speculative": sides[1],
        "all": figures.as_dict(),
        "tolerated_tokens": TOLERATED_TOKENS,
    }
    if figures.control_unsteady:
        return {**answer, "word": "no baseline"}
    if figures.wrong:
        first = f"the first difference comes after {figures.first_token:.0f} tokens (median)"
        return {**answer, "word": "failed", "said": f"{answer['said']}; {first}"}
    return answer


def _earliest(several: Iterable[Sequence[Request]]) -> list[OutputPair]:
    """Return for each prompt the pair of its answers that differs soonest: one bad slot is one too many."""
    found = []
    for first, *others in several:
        pairs = [p for other in others for p in pair_outputs([{**first, "prompt_id": other["prompt_id"]}], [other])]
        if pairs:
            found.append(min(pairs, key=lambda pair: (pair.equal, pair.token)))
    return found


def _whole(pair: OutputPair) -> tuple[str, str]:
    return pair.group, whole_prompt(pair.prompt_id)


def _side(asked: Mapping[tuple[int, str, str], Sequence[Request]]) -> GateSide:
    """Return how many distinct answers an arm gave: one a prompt where all of them are the same."""
    distinct = {
        key: len({(thought_of(r), _said(r)) for r in several if r.get("status") == "ok"})
        for key, several in asked.items()
    }
    times = max(map(len, asked.values()), default=0)
    return {
        "said": f"{whole(sum(distinct.values()))} distinct answers to {count(len(asked), 'prompt')}, "
        f"each sent {times} times at once",
        "passed": sum(number == 1 for number in distinct.values()),
        "total": len(asked),
        "examples": [f"{prompt}: {number} answers" for (_, _, prompt), number in distinct.items() if number > 1][:3],
    }
