"""Gates on repeated prompts: one server answers a prompt more than once, and at temperature 0 its answers must agree.

A gate is a test whether the outputs are right. A prompt is repeated with its prefix in the cache (``warm``), streamed
and then not (``streams``), or in all slots at once (``slots``); a slot is the server's place for one running request.
Some faults show only then: a wrong cached block, drafts read from another slot, a tool call lost in a stream. The
speculative arm fails only where the baseline, the arm without speculation, passes.

A draw is one prompt in one round, and an answer to it is RIGHT, WRONG or OPEN (`answer_checks.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..bench.result_types import ArmResult, Request, ToolCall
from ..bench.samples import Prompt, refused_or_empty, requests_of, whole_prompt
from ..bench.stats import values_needed
from ..core.format import count, listing, whole
from ..prompts.checks import STREAMS, WARM
from ..prompts.json_schema import read_json
from ..prompts.suite_types import Again
from .answer_checks import OPEN, RIGHT, WRONG, check_answer, excerpt, was_cut, worse_state
from .answered import thought_of
from .output_equality import OutputPair, pair_outputs, too_early
from .verdict_types import GateSide, JudgedArms, gate_side, not_measured

#: The prefix cache counts as hit if it held this fraction of the repeated input tokens. Engines cache only full blocks
#: (up to 2,096 tokens in a hybrid model), so the last, partial block of a prompt is never a hit.
HIT_SHARE = 0.5
#: Numerical noise under load may cause one first difference in this many tokens, in the earliest differing answer.
TOLERATED_TOKENS = 10
SLOTS_RULE = (
    "a prompt is sent several times at once; fails when within the first 16 tokens the answers of more prompts differ "
    f"from one another than chance explains that differ once per {TOLERATED_TOKENS} tokens, and the baseline's do not"
)
#: Round, group (a kind at one temperature: "chat@0.6") and prompt id without its "#number".
Draw = tuple[int, str, str]


def repeated_requests(requests: Iterable[Request], again: Again) -> dict[Draw, list[Request]]:
    """Requests that were repeated as ``again`` says, two or more by draw, each in the order of its "#number"."""
    by_draw: dict[Draw, list[Request]] = {}
    for request in requests:
        gate = request.get("gate")
        if gate and gate.get("again") == again:
            draw = request["round"], str(request.get("group")), whole_prompt(request["prompt_id"])
            by_draw.setdefault(draw, []).append(request)
    for repeats in by_draw.values():
        repeats.sort(key=lambda request: int(str(request["prompt_id"]).rpartition("#")[2]))
    return {draw: repeats for draw, repeats in by_draw.items() if len(repeats) > 1}


# --- the same answer ------------------------------------------------------------------------------


def consistency_states(requests: Iterable[Request], again: Again) -> dict[Prompt, tuple[str, str]]:
    """By prompt, whether its answers in a round agree: the worst state over rounds and repeats, and the reason."""
    states: dict[Prompt, tuple[str, str]] = {}
    for (_, group, prompt_id), (first, *repeats) in repeated_requests(requests, again).items():
        state = states.get((group, prompt_id), (RIGHT, ""))
        for repeat in repeats:
            state = worse_state(state, _consistency(first, repeat, again))
        states[group, prompt_id] = state
    return states


def _consistency(first: Request, repeat: Request, again: Again) -> tuple[str, str]:
    """Whether a repeated answer agrees with the first one, and the reason.

    The first case that applies decides:

    - a request that was refused, empty or not answered: `_state_without_answer`;
    - ``streams``, and no tool call in either answer: OPEN;
    - reasoning alone in both: OPEN;
    - equal answers, apart from reasoning: RIGHT;
    - answers that are equal up to the output length limit: OPEN;
    - ``warm``, and both answers pass their gate: RIGHT;
    - different reasoning, and both answers pass their gate: OPEN;
    - else WRONG.
    """
    for request in (first, repeat):
        if refused_or_empty(request) or request.get("status") != "ok":
            return _state_without_answer(request)
    if again == STREAMS and not first.get("tool_calls") and not repeat.get("tool_calls"):
        return OPEN, f"no call in either answer: {excerpt(first.get('text'))}"
    first_answer = _canonical_answer(first)
    repeat_answer = _canonical_answer(repeat)
    if first_answer == repeat_answer == "":
        return OPEN, "reasoning but no answer"
    if first_answer == repeat_answer:
        return RIGHT, ""
    if (was_cut(first) or was_cut(repeat)) and repeat_answer.startswith(first_answer[: len(repeat_answer)]):
        return OPEN, "cut off by the output length limit"  # equal up to the cut, which hides the rest
    first_state, _ = check_answer(first)
    repeat_state, _ = check_answer(repeat)
    both_right = first_state == repeat_state == RIGHT
    if both_right and again == WARM:
        # Both hold the expected words in different sentences: numerical noise, and no lost context.
        return RIGHT, ""
    if both_right and thought_of(first) != thought_of(repeat):
        return OPEN, "both are right, but their reasoning differs"
    if again == STREAMS:
        return WRONG, f"streamed: {excerpt(first_answer)}; not streamed: {excerpt(repeat_answer)}"
    return WRONG, f"asked first: {excerpt(first_answer)}; asked again: {excerpt(repeat_answer)}"


def _state_without_answer(request: Request) -> tuple[str, str]:
    """WRONG if the server refused the request or answered nothing, else OPEN; and the reason."""
    if refused_or_empty(request):
        return check_answer(request)  # WRONG for such a request
    return OPEN, f"not answered: {request.get('error') or request.get('status')}"


def _canonical_answer(request: Request) -> str:
    """An answer without reasoning, for comparison: its text, and its tool calls with sorted arguments."""
    calls = [f"{call.get('name')}({_canonical_arguments(call)})" for call in request.get("tool_calls") or []]
    return "\n".join([str(request.get("text") or "").strip(), *calls]).strip()


def _canonical_arguments(call: ToolCall) -> str:
    """The arguments of a call as JSON with sorted keys, or unchanged if they are no JSON."""
    try:
        return json.dumps(read_json(call.get("arguments") or "{}"), sort_keys=True)
    except ValueError:
        return str(call.get("arguments"))


# --- the prefix cache was hit ---------------------------------------------------------------------


@dataclass(frozen=True)
class Hits:
    """How much of the repeated prompts came from the prefix cache."""

    cached: int  # input tokens that the cache held
    repeated: int  # input tokens of all repeated requests
    source: str  # who reports ``cached``, as part of a sentence

    @property
    def enough(self) -> bool:
        """True if the prefix cache counts as hit (`HIT_SHARE`); False if no prompt was repeated."""
        return self.cached >= HIT_SHARE * self.repeated > 0

    def __str__(self) -> str:
        """The hits as part of a sentence."""
        return f"{whole(self.cached)} of {whole(self.repeated)} repeated input tokens ({self.source})"


def prefix_hits(result: ArmResult) -> Hits | None:
    """Prefix-cache hits of the repeated prompts; None where neither the answers nor the engine's counters report them.

    Answers come first: they report `usage.prompt_tokens_details.cached_tokens` or llama.cpp's `timings.cache_n`.
    Counters are read before and after each group of prompts.
    """
    requests_by_draw = repeated_requests(requests_of(result), WARM)
    input_tokens = 0
    cached_by_answers: list[int] = []
    # The first request of a prompt fills the cache, so only its repeats can hit it.
    for _, *repeats in requests_by_draw.values():
        for request in repeats:
            if request.get("status") == "ok":
                input_tokens += request.get("input_tokens") or 0
                cached_tokens = _cached_tokens(request)
                if isinstance(cached_tokens, int):
                    cached_by_answers.append(cached_tokens)
    if cached_by_answers:
        return Hits(sum(cached_by_answers), input_tokens, "the answers' own figures")
    groups = {(round_number, group) for round_number, group, _ in requests_by_draw}
    cached_by_counters = []
    for reading in result.get("counters") or []:
        before = reading["before"].get("traffic") or {}
        after = reading["after"].get("traffic") or {}
        if (reading["round"], reading["group"]) in groups and "cached_tokens" in after:
            cached_by_counters.append(after["cached_tokens"] - before.get("cached_tokens", 0.0))
    if not cached_by_counters:
        return None
    return Hits(round(sum(cached_by_counters)), input_tokens, "the engine's counters")


def _cached_tokens(request: Request) -> object:
    """The cached input tokens that an answer reports; None if it reports none."""
    if request.get("cached_tokens") is not None:
        return request["cached_tokens"]
    return (request.get("timings") or {}).get("cache_n")


def lost_prefix_cache(baseline: Hits | None, speculative: Hits | None) -> str | None:
    """A sentence if the baseline hit its prefix cache and the speculative arm did not, else None."""
    if baseline is None or speculative is None or not baseline.enough or speculative.enough:
        return None
    return (
        f"speculation costs the prefix cache: the baseline had {baseline} from it, the speculative arm {speculative};"
        " a long prompt asked again waits for its first token as if it were new"
    )


def with_cache_hits(judged: JudgedArms, hits: Mapping[str, Hits | None]) -> JudgedArms:
    """The gate ``warm`` with the arms' prefix-cache hits; ``hits`` is by arm, None where they are unknown.

    A gate that passed becomes `not measured` unless both arms hit the cache. Another word stays.
    """
    silent: list[str] = []  # arms whose hits are unknown
    cold: list[str] = []  # arms without enough hits, with their hits
    reported: list[str] = []  # arms whose hits are known, with their hits
    for arm, hit in hits.items():
        if hit is None:
            silent.append(arm)
            continue
        reported.append(f"{arm}: {hit}")
        if not hit.enough:
            cold.append(f"{arm}: {hit}")
    unproved = None  # why equal answers do not prove that the cache is right
    if silent:
        unproved = (
            f"the answers are the same, but the engine does not report whether the cache was hit ({listing(silent)})"
        )
    elif lost_cache := lost_prefix_cache(hits.get("baseline"), hits.get("speculative")):
        unproved = lost_cache
    elif cold:
        unproved = f"the prefix cache was not hit, so it was not tested: {'; '.join(cold)}"
    # Equal answers prove the cache right only if it was used; a failure stands without such a proof.
    if unproved and judged["word"] == "passed":
        return {**judged, "word": "not measured", "said": unproved}
    if not reported:
        return judged
    return {**judged, "said": f"{judged['said']}; from the cache: {'; '.join(reported)}"}


# --- the same prompt in all slots -----------------------------------------------------------------


def judge_slots(baseline: ArmResult, speculative: ArmResult, slots: int | None) -> JudgedArms:
    """The gate ``slots`` over both arms; ``slots`` is the number of slots of a server, None if unknown.

    The first case that applies decides:

    - one slot, or fewer prompts than a median needs: not measured;
    - a baseline whose answers differ too early: no baseline;
    - a speculative arm whose answers differ too early: failed;
    - else passed.
    """
    baseline_draws = repeated_requests(requests_of(baseline), "slots")
    speculative_draws = repeated_requests(requests_of(speculative), "slots")
    baseline_pairs = _worst_pairs(baseline_draws.values())
    speculative_pairs = _worst_pairs(speculative_draws.values())
    prompts = baseline_pairs.keys() & speculative_pairs.keys()
    if slots == 1:
        return not_measured("the server has one slot, so requests run one after another")
    if len(prompts) < values_needed():
        return not_measured(
            f"{count(len(prompts), 'prompt')} sent several times at once, and {values_needed()} are needed"
        )
    base_side = _side(baseline_draws)
    spec_side = _side(speculative_draws)
    judged: JudgedArms = {
        "word": "passed",
        "said": f"{spec_side['said']}; the baseline: {base_side['said']}",
        "baseline": base_side,
        "speculative": spec_side,
        "tolerated_tokens": TOLERATED_TOKENS,
    }
    if too_early([baseline_pairs[prompt] for prompt in prompts], TOLERATED_TOKENS):
        return {**judged, "word": "no baseline"}
    if early := too_early([speculative_pairs[prompt] for prompt in prompts], TOLERATED_TOKENS):
        return {**judged, "word": "failed", "said": f"{judged['said']}; {early}"}
    return judged


def _worst_pairs(repeated: Iterable[Sequence[Request]]) -> dict[Prompt, OutputPair]:
    """By prompt, the pair of answers that differs earliest, so that good slots do not hide a bad one."""
    worst: dict[Prompt, OutputPair] = {}
    for first, *repeats in repeated:
        for repeat in repeats:
            # `pair_outputs` pairs equal ids, so the first request gets the id of its repeat.
            for pair in pair_outputs([{**first, "prompt_id": repeat["prompt_id"]}], [repeat]):
                prompt = pair.group, whole_prompt(pair.prompt_id)
                worst_pair = worst.get(prompt, pair)
                worst[prompt] = min(worst_pair, pair, key=lambda candidate: (candidate.equal, candidate.token))
    return worst


def _side(requests_by_draw: Mapping[Draw, Sequence[Request]]) -> GateSide:
    """One arm's figures at the gate ``slots``; a draw passes if all of its copies got the same answer."""
    answer_counts: dict[Draw, int] = {}  # distinct complete answers
    for draw, repeats in requests_by_draw.items():
        answer_counts[draw] = len({(thought_of(r), _canonical_answer(r)) for r in repeats if r.get("status") == "ok"})
    copies = max(map(len, requests_by_draw.values()), default=0)
    examples = [f"{prompt}: {n} answers" for (_, _, prompt), n in answer_counts.items() if n > 1]
    summary = f"{whole(sum(answer_counts.values()))} distinct answers to {count(len(requests_by_draw), 'prompt')}"
    side = gate_side(f"{summary}, each sent {copies} times at once", len(requests_by_draw), examples)
    # A draw without a complete answer is no example, but did not pass either.
    return {**side, "passed": sum(n == 1 for n in answer_counts.values())}
