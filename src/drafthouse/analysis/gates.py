"""The gates: tests whether the output of the speculative arm is right, each over both arms (docs/suites.md).

- `outputs` compares answers at temperature 0 (`output_equality.py`), `scores` asks the target how likely they are
  (`scored_outputs.py`), `texts` finds degenerate text (`degenerate_text.py`), `sampled` compares lengths and variety
  above temperature 0 (`sampled_outputs.py`).
- JSON, tool calls and needle check single answers (`answer_checks.py`). A prompt is right if all its answers are.
- Up to three more compare answers to a prompt that one server answered several times (`asked_again.py`).

A model may be wrong without speculation, so the speculative arm fails only where the baseline does better. A prompt is
lost if only the baseline gets it right, and won if only the speculative arm does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..bench.result_types import ArmResult, Request
from ..bench.samples import Prompt, refused_or_empty, requests_of, whole_prompt
from ..core.format import count
from ..profiles.resolved_types import ResolvedProfile
from ..prompts.checks import JSON, NEEDLE, SLOTS, STREAMS, TOOLS, WARM
from ..prompts.suite_types import Again
from .answer_checks import OPEN, RIGHT, WRONG, check_answer, worse_state
from .asked_again import SLOTS_RULE, consistency_states, judge_slots, prefix_hits, with_cache_hits
from .degenerate_text import RULE as TEXTS_RULE
from .degenerate_text import judge_texts
from .output_equality import RULE as OUTPUTS_RULE
from .output_equality import judge_outputs
from .paired_tests import sign_test
from .sampled_outputs import RULE as SAMPLED_RULE
from .sampled_outputs import judge_sampled
from .scored_outputs import RULE as SCORES_RULE
from .scored_outputs import judge_scores
from .verdict_types import CheckedSide, JudgedArms, JudgedGate, gate_side

# Names of the gates that need no prompts of their own; the others are named in `prompts.checks`.
OUTPUTS, SCORES, TEXTS, SAMPLED = "outputs", "scores", "texts", "sampled"
# The words of a gate. No baseline: the baseline itself does not pass, so nothing can be said about speculation.
PASSED, FAILED, NOT_MEASURED, NO_BASELINE = "passed", "failed", "not measured", "no baseline"

#: This many prompts may be lost by chance if the baseline has no wrong answer.
TOLERATED_LOSSES = 1
#: Losses fail the gate below this probability among equal arms (one-sided sign test).
CHANCE = 0.05
#: Fewer prompts are not judged.
FEWEST_JUDGED = TOLERATED_LOSSES + 1

#: The fewest losses, with none won, that are significant by the sign test: 5. Fewer prompts may all be lost by chance.
MIN_LOST = math.ceil(-math.log2(CHANCE))

FAILS_WHEN = (
    "a prompt is lost when only the baseline gets it right, and won when only the speculative arm does; fails when "
    f"more than {TOLERATED_LOSSES} is lost to a wrong answer and the baseline gets none wrong, or when more are lost "
    f"than won and chance would do that in fewer than {CHANCE:.0%} of cases (sign test), or when the speculative arm "
    "gets none right and loses one to a wrong answer; undecided when some are lost and the baseline gets some wrong "
    f"itself and fewer than {MIN_LOST} right, or when more than {TOLERATED_LOSSES} is lost and the "
    "speculative arm gets fewer than half of all right"
)
CHECKS_RULE = f"a prompt is right in an arm when all of its answers are; {FAILS_WHEN}"
AGAIN_RULE = (
    "a prompt is right in an arm when its answers from one server are the same apart from reasoning (with its prefix "
    f"in the cache, a different sentence with the words that were asked for is enough); {FAILS_WHEN}"
)
TITLES = {
    OUTPUTS: "Equal outputs at temperature 0",
    SAMPLED: "Lengths and variety above temperature 0",
    SCORES: "Scored by the baseline",
    TEXTS: "Degenerate text",
    JSON: "JSON by schema",
    TOOLS: "Tool calls",
    NEEDLE: "Needle in a long text",
    WARM: "Warm prefix cache",
    STREAMS: "Tool calls streamed and not",
    SLOTS: "One prompt in all slots",
}
# What the prompts of these gates ask for, in words.
_ASKED_FOR = {JSON: "JSON", TOOLS: "a tool call", NEEDLE: "words from a long text"}


def judge_gates(baseline: ArmResult, speculative: ArmResult, resolved: ResolvedProfile) -> list[JudgedGate]:
    """The gates in their order, as plain data: seven, and those of repeated prompts.

    Each has ``name``, ``title``, ``rule``, ``word`` (passed, failed, not measured; no baseline if the
    baseline itself does not pass) and ``said``. Each arm has ``said``, ``passed`` and ``total``
    (answers for outputs, scores and texts, else prompts) and ``examples``. A bad result raises nothing.
    """
    base_requests = requests_of(baseline)
    spec_requests = requests_of(speculative)
    gates = [_gate(OUTPUTS, OUTPUTS_RULE, judge_outputs(baseline, speculative))]
    # In the order in which failures are reported: a single wrong answer is easier to understand than statistics.
    advice = ""
    if "gates" not in ((resolved.get("experiment") or {}).get("suites") or []):
        advice = "; the suite 'gates' has prompts that do"
    gates += judge_checks(baseline, speculative, advice)
    ways_repeated = set()
    for request in base_requests:
        if gate := request.get("gate"):
            ways_repeated.add(gate.get("again"))
    if WARM in ways_repeated:
        judged = _judge_repeats(WARM, base_requests, spec_requests)
        cache_hits = {"baseline": prefix_hits(baseline), "speculative": prefix_hits(speculative)}
        gates.append(_gate(WARM, AGAIN_RULE, with_cache_hits(judged, cache_hits)))
    if STREAMS in ways_repeated:
        gates.append(_gate(STREAMS, AGAIN_RULE, _judge_repeats(STREAMS, base_requests, spec_requests)))
    if SLOTS in ways_repeated:
        gates.append(_gate(SLOTS, SLOTS_RULE, judge_slots(baseline, speculative, _slots(resolved))))
    return [
        *gates,
        _gate(SCORES, SCORES_RULE, judge_scores(baseline, speculative)),
        _gate(TEXTS, TEXTS_RULE, judge_texts(baseline, speculative)),
        _gate(SAMPLED, SAMPLED_RULE, judge_sampled(baseline, speculative)),
    ]


def judge_checks(baseline: ArmResult, speculative: ArmResult, advice: str = "") -> list[JudgedGate]:
    """The gates that check single answers: JSON, tool calls, needle. ``advice`` is added where a gate has no prompt."""
    gates = []
    for name, asked_for in _ASKED_FOR.items():
        baseline_states = _states(requests_of(baseline), name)
        speculative_states = _states(requests_of(speculative), name)
        absent_text = f"no prompt of the experiment asks for {asked_for}{advice}"
        gates.append(_gate(name, CHECKS_RULE, _judge_states(name, baseline_states, speculative_states, absent_text)))
    return gates


def _slots(resolved: ResolvedProfile) -> int | None:
    """The number of slots of a server; None if the result is judged without its profile or nothing was fitted."""
    arm = (resolved.get("arms") or {}).get("baseline")
    fit = arm and arm.get("fit")
    return fit["sequences"] if fit else None


def _gate(name: str, rule: str, judged: JudgedArms) -> JudgedGate:
    """A judgement with the name, the title and the rule of its gate."""
    return {"name": name, "title": TITLES[name], "rule": rule, **judged}


# --- one gate -------------------------------------------------------------------------------------

States = Mapping[Prompt, tuple[str, str]]
"""The state of each prompt of a gate in one arm: RIGHT, WRONG or OPEN, and why unless RIGHT."""


def _judge_repeats(name: Again, baseline: Sequence[Request], speculative: Sequence[Request]) -> JudgedArms:
    """The gate over prompts that one server answered several times."""
    base = consistency_states(baseline, name)
    spec = consistency_states(speculative, name)
    return _judge_states(name, base, spec, "no prompt was repeated in both arms")


def _judge_states(name: str, base: States, spec: States, absent_text: str) -> JudgedArms:
    """A gate by the states of its prompts in both arms; ``absent_text`` is its sentence if there are no prompts."""
    prompts = [prompt for prompt in base if prompt in spec]
    base_side = _side(base, prompts)
    spec_side = _side(spec, prompts)
    word = NOT_MEASURED
    text = absent_text
    if prompts:
        word, text = _word_and_text(name, base, spec, prompts=prompts, base_side=base_side, spec_side=spec_side)
    return {"word": word, "said": text, "baseline": base_side, "speculative": spec_side}


def _word_and_text(
    name: str, base: States, spec: States, prompts: Sequence[Prompt], base_side: CheckedSide, spec_side: CheckedSide
) -> tuple[str, str]:
    """The word of a gate and its sentence, over the prompts that both arms answered.

    The first case that applies decides:

    - fewer prompts than `FEWEST_JUDGED`: not measured;
    - a baseline that gets fewer than that right, or less than half: no baseline;
    - losses as in `FAILS_WHEN`: failed;
    - losses that cannot be told from chance: not measured;
    - else passed.
    """
    passed = base_side["passed"]
    spec_passed = spec_side["passed"]
    total = count(len(prompts), "prompt")
    if len(prompts) < FEWEST_JUDGED:
        return NOT_MEASURED, f"{total}, and {FEWEST_JUDGED} are needed"
    # A target that is mostly wrong by itself shows nothing about speculation.
    if passed < FEWEST_JUDGED or 2 * passed < len(prompts):
        return NO_BASELINE, f"the baseline itself gets only {passed} of {total} right{_example(base, prompts)}"
    lost: list[Prompt] = []  # right in the baseline alone
    lost_wrong: list[Prompt] = []  # those of them that the speculative arm gets wrong, and not only cut off
    for prompt in prompts:
        if base[prompt][0] == RIGHT and spec[prompt][0] != RIGHT:
            lost.append(prompt)
            if spec[prompt][0] == WRONG:
                lost_wrong.append(prompt)
    # Right in the speculative arm alone: all that are right there but those that are right in both.
    won = spec_passed - (passed - len(lost))
    flawless = not base_side["wrong"]
    losses = (
        f"{len(lost)} of the {count(passed, 'prompt')} that the baseline gets right in {_title_in_sentence(name)} "
        f"{'is' if len(lost) == 1 else 'are'} not right in the speculative arm{_example(spec, lost_wrong or lost)}"
    )
    # An arm without a right answer, and not only because of cut-off answers, fails: with four prompts or fewer the sign
    # test alone would let it pass.
    none_right = not spec_passed and bool(lost_wrong)
    if none_right or (flawless and len(lost_wrong) > TOLERATED_LOSSES) or sign_test(len(lost), won) < CHANCE:
        return FAILED, losses
    if undecided := _cannot_tell(len(lost), len(prompts), passed, spec_passed, nothing_wrong=flawless):
        if not lost_wrong:
            undecided += "; they were cut off or undecided, which a higher output length limit may settle"
        return NOT_MEASURED, f"{losses}: {undecided}"
    return PASSED, f"{spec_side['said']}; the baseline {base_side['said']}"


def _cannot_tell(
    lost: int, prompts: int, baseline_right: int, speculative_right: int, *, nothing_wrong: bool
) -> str | None:
    """Why losses that do not fail a gate do not let it pass either; None if it passes.

    ``lost`` of the ``prompts`` are right in the baseline alone. ``nothing_wrong``: the baseline has
    no wrong answer, though some may be cut off.
    """
    if lost and not nothing_wrong and baseline_right < MIN_LOST:
        return f"a baseline that gets some wrong itself must get {MIN_LOST} right before losses can be told from chance"
    # Both arms must get at least half of the prompts right.
    if lost > TOLERATED_LOSSES and 2 * speculative_right < prompts:
        return f"too few to rule out chance, but too many to pass with {speculative_right} of {prompts} right"
    return None


def _title_in_sentence(name: str) -> str:
    """The title of a gate within a sentence: with a small first letter, except for an abbreviation."""
    return TITLES[name] if name == JSON else TITLES[name][0].lower() + TITLES[name][1:]


def _states(requests: Iterable[Request], name: str) -> dict[Prompt, tuple[str, str]]:
    """The state of each prompt of a gate in one arm: the worst of its answers.

    Requests that failed otherwise than by a refusal or an empty answer have no state; `validity.py` reports them.
    """
    states: dict[Prompt, tuple[str, str]] = {}
    for request in requests:
        gate = request.get("gate")
        if gate and gate.get("name") == name and (request.get("status") == "ok" or refused_or_empty(request)):
            prompt = str(request.get("group")), whole_prompt(request.get("prompt_id"))
            states[prompt] = worse_state(states.get(prompt), check_answer(request))
    return states


def _side(states: States, prompts: Sequence[Prompt]) -> CheckedSide:
    """An arm's figures: the number of right prompts, and the first that are not right."""
    counts = Counter(states[prompt][0] for prompt in prompts)
    text = "not asked"
    if prompts:
        text = f"{counts[RIGHT]} of {count(len(prompts), 'prompt')} right"
    if counts[OPEN]:
        text += f", {counts[OPEN]} cut off by the output length limit or undecided"
    examples = []
    for prompt in prompts:
        state, why = states[prompt]
        if state != RIGHT:
            examples.append(f"{prompt[1]}: {why}")
    return {**gate_side(text, len(prompts), examples), "wrong": counts[WRONG], "open": counts[OPEN]}


def _example(states: States, prompts: Sequence[Prompt]) -> str:
    """The first prompt that is not right, with its reason, in brackets; "" without one."""
    for prompt in prompts:
        if states[prompt][0] != RIGHT:
            return f" ({prompt[1]}: {states[prompt][1]})"
    return ""
