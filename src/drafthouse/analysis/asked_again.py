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
from .answer_checks import OPEN, RIGHT, WRONG, check_answer, short, was_cut, worse
from .answered import thought_of
from .output_equality import OutputPair, pair_outputs, too_early
from .verdict_types import GateSide, JudgedArms, gate_side, not_measured

#: The share of the repeated prompts' tokens that the prefix cache must have had for it to count as hit. An engine
#: caches whole blocks (up to 2,096 tokens in a hybrid model), so that the last one is never in it.
HIT_SHARE = 0.5

#: What a server under load is granted: a first difference once in so many tokens, in the earliest of its answers.
TOLERATED_TOKENS = 10

SLOTS_RULE = (
    "a prompt is sent several times at once; fails when within the first 16 tokens the answers of more prompts differ "
    f"from one another than chance explains that differ once per {TOLERATED_TOKENS} tokens, and the baseline's do not"
)
#: A round, a group and a prompt in it.
Draw = tuple[int, str, str]


def asked_again(requests: Iterable[Request], again: Again) -> dict[Draw, list[Request]]:
    """The requests that were sent again in this way, by round, group and prompt, each in its order."""
    found: dict[Draw, list[Request]] = {}
    for request in requests:
        gate = request.get("gate")
        if gate and gate.get("again") == again:
            key = request["round"], str(request.get("group")), whole_prompt(request["prompt_id"])
            found.setdefault(key, []).append(request)
    for several in found.values():
        several.sort(key=lambda request: int(str(request["prompt_id"]).rpartition("#")[2]))
    return {key: several for key, several in found.items() if len(several) > 1}


# --- the same answer ------------------------------------------------------------------------------


def again_states(requests: Iterable[Request], again: Again) -> dict[Prompt, tuple[str, str]]:
    """Whether each prompt's answers say the same: right, wrong, or open, and why when not right."""
    states: dict[Prompt, tuple[str, str]] = {}
    for (_, group, prompt), (first, *others) in asked_again(requests, again).items():
        state = states.get((group, prompt), (RIGHT, ""))
        for other in others:
            state = worse(state, _compared(first, other, again))
        states[group, prompt] = state
    return states


def _compared(first: Request, other: Request, again: Again) -> tuple[str, str]:
    for request in (first, other):
        if gave_nothing(request) or request.get("status") != "ok":
            return _not_answered(request)
    if again == STREAMS and not first.get("tool_calls") and not other.get("tool_calls"):
        return OPEN, f"no call in either answer: {short(first.get('text'))}"
    one, two = _said(first), _said(other)
    if one == two == "":
        return OPEN, "reasoning but no answer"
    if one == two:
        return RIGHT, ""
    if (was_cut(first) or was_cut(other)) and two.startswith(one[: len(two)]):
        return OPEN, "cut off by the output length limit"
    right = check_answer(first)[0] == check_answer(other)[0] == RIGHT
    if right and again == WARM:
        # The words that were asked for, in another sentence: rounding, and nothing lost.
        return RIGHT, ""
    if right and thought_of(first) != thought_of(other):
        return OPEN, "both are right, but their reasoning differs"
    if again == STREAMS:
        return WRONG, f"streamed: {short(one)}; not streamed: {short(two)}"
    return WRONG, f"asked first: {short(one)}; asked again: {short(two)}"


def _not_answered(request: Request) -> tuple[str, str]:
    if gave_nothing(request):
        return WRONG, check_answer(request)[1]
    return OPEN, f"not answered: {request.get('error') or request.get('status')}"


def _said(request: Request) -> str:
    """An answer without thoughts: text, and calls with their arguments in one spelling."""
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
        """Whether the cache was hit."""
        return self.cached >= HIT_SHARE * self.asked > 0

    def __str__(self) -> str:
        """The hits in words."""
        return f"{whole(self.cached)} of {whole(self.asked)} repeated input tokens ({self.source})"


def prefix_hits(result: ArmResult) -> Hits | None:
    """What an engine says of its prefix cache where prompts were asked again; None where it says nothing.

    The answers say it themselves (`usage.prompt_tokens_details.cached_tokens`, llama.cpp's `timings.cache_n`), or the
    counters of the groups in which they were asked.
    """
    several = asked_again(requests_of(result), WARM)
    asked, from_answers = 0, []
    for _, *repeats in several.values():
        for request in repeats:
            if request.get("status") == "ok":
                asked += request.get("input_tokens") or 0
                cached = _cached(request)
                if isinstance(cached, int):
                    from_answers.append(cached)
    if from_answers:
        return Hits(sum(from_answers), asked, "the answers' own figures")
    groups = {(number, group) for number, group, _ in several}
    from_counters = []
    for one in result.get("counters") or []:
        before, after = one["before"].get("traffic") or {}, one["after"].get("traffic") or {}
        if (one["round"], one["group"]) in groups and "cached_tokens" in after:
            from_counters.append(after["cached_tokens"] - before.get("cached_tokens", 0.0))
    if not from_counters:
        return None
    return Hits(round(sum(from_counters)), asked, "the engine's counters")


def _cached(request: Request) -> object:
    if request.get("cached_tokens") is not None:
        return request["cached_tokens"]
    return (request.get("timings") or {}).get("cache_n")


def lost_prefix_cache(ours: Hits | None, theirs: Hits | None) -> str | None:
    """That speculation costs the prefix cache: the baseline hit it, and the speculative arm did not."""
    if ours is None or theirs is None or not ours.enough or theirs.enough:
        return None
    return (
        f"speculation costs the prefix cache: the baseline had {ours} from it, the speculative arm {theirs};"
        " a long prompt asked again waits for its first token as if it were new"
    )


def with_proof(judged: JudgedArms, hits: Mapping[str, Hits | None]) -> JudgedArms:
    """The gate of the warm prefix cache with what the engines say of it; without a hit it has not passed."""
    silent: list[str] = []
    cold: list[str] = []
    known: list[str] = []
    for arm, hit in hits.items():
        if hit is None:
            silent.append(arm)
            continue
        known.append(f"{arm}: {hit}")
        if not hit.enough:
            cold.append(f"{arm}: {hit}")
    unproved = None
    if silent:
        unproved = (
            f"the answers are the same, but the engine does not report whether the cache was hit ({listing(silent)})"
        )
    elif lost := lost_prefix_cache(hits.get("baseline"), hits.get("speculative")):
        unproved = lost
    elif cold:
        unproved = f"the prefix cache was not hit, so it was not tested: {'; '.join(cold)}"
    if unproved and judged["word"] == "passed":
        return {**judged, "word": "not measured", "said": unproved}
    if not known:
        return judged
    return {**judged, "said": f"{judged['said']}; from the cache: {'; '.join(known)}"}


# --- the same prompt in all slots -----------------------------------------------------------------


def judge_slots(baseline: ArmResult, speculative: ArmResult, slots: int | None) -> JudgedArms:
    """What the gate says of both arms; ``slots`` are those of a server, None where that is not known."""
    asked_baseline = asked_again(requests_of(baseline), "slots")
    asked_speculative = asked_again(requests_of(speculative), "slots")
    ours, theirs = _earliest(asked_baseline.values()), _earliest(asked_speculative.values())
    prompts = ours.keys() & theirs.keys()
    if slots == 1:
        return not_measured("the server has one slot, so requests run one after another")
    if len(prompts) < values_needed():
        return not_measured(
            f"{count(len(prompts), 'prompt')} sent several times at once, and {values_needed()} are needed"
        )
    sides = _side(asked_baseline), _side(asked_speculative)
    answer: JudgedArms = {
        "word": "passed",
        "said": f"{sides[1]['said']}; the baseline: {sides[0]['said']}",
        "baseline": sides[0],
        "speculative": sides[1],
        "tolerated_tokens": TOLERATED_TOKENS,
    }
    if too_early([ours[prompt] for prompt in prompts], TOLERATED_TOKENS):
        return {**answer, "word": "no baseline"}
    if early := too_early([theirs[prompt] for prompt in prompts], TOLERATED_TOKENS):
        return {**answer, "word": "failed", "said": f"{answer['said']}; {early}"}
    return answer


def _earliest(several: Iterable[Sequence[Request]]) -> dict[Prompt, OutputPair]:
    """For each prompt the pair of its answers that differs soonest: one bad slot is one too many."""
    found: dict[Prompt, OutputPair] = {}
    for first, *others in several:
        for other in others:
            for pair in pair_outputs([{**first, "prompt_id": other["prompt_id"]}], [other]):
                prompt = pair.group, whole_prompt(pair.prompt_id)
                known = found.get(prompt, pair)
                found[prompt] = min(known, pair, key=lambda own: (own.equal, own.token))
    return found


def _side(asked: Mapping[Draw, Sequence[Request]]) -> GateSide:
    """How many distinct answers an arm gave: one a prompt where all of them are the same."""
    distinct: dict[Draw, int] = {}
    for draw, several in asked.items():
        distinct[draw] = len({(thought_of(r), _said(r)) for r in several if r.get("status") == "ok"})
    times = max(map(len, asked.values()), default=0)
    examples = [f"{prompt}: {number} answers" for (_, _, prompt), number in distinct.items() if number > 1]
    answers = f"{whole(sum(distinct.values()))} distinct answers to {count(len(asked), 'prompt')}"
    return {
        **gate_side(f"{answers}, each sent {times} times at once", len(asked), examples),
        "passed": sum(number == 1 for number in distinct.values()),
    }
