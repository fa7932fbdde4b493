"""The gates: is the output of the speculative arm still right. Seven, and up to three more, each asked of both arms.

`outputs` sets the answers at temperature 0 side by side (`output_equality.py`), `scores` asks the target itself how
likely they are (`scored_outputs.py`), `texts` looks for text that degenerates (`degenerate_text.py`), `sampled` at
lengths and variety above temperature 0 (`sampled_outputs.py`). Others look at
each answer by itself (`answer_checks.py`): is it JSON of the schema that was asked for, a call of the right tool with
the right types, does it hold the words that stood somewhere in a long text. A prompt counts as right in an arm when
all of its answers are. Three more are there where an experiment asks a prompt again on the same server, and set those
answers beside each other (`asked_again.py`).

A model may be wrong without any fault of speculation, so nothing is asked of the speculative arm that the
baseline does not do itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..bench.result_types import ArmResult, Request
from ..bench.samples import Prompt, gave_nothing, requests_of, whole_prompt
from ..core.format import count
from ..profiles.resolved_types import ResolvedProfile
from ..prompts.checks import JSON, NEEDLE, SLOTS, STREAMS, TOOLS, WARM
from ..prompts.suite_types import Again
from .answer_checks import OPEN, RIGHT, WRONG, check_answer, worse
from .asked_again import SLOTS_RULE, again_states, judge_slots, prefix_hits, with_proof
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

OUTPUTS, SCORES, TEXTS, SAMPLED = "outputs", "scores", "texts", "sampled"
PASSED, FAILED, NOT_MEASURED, NO_BASELINE = "passed", "failed", "not measured", "no baseline"

#: So many prompts may be lost to chance where the baseline makes no mistake at all.
LOST_TO_CHANCE = 1
#: Below this chance of as many losses among equal arms (sign test, one-sided) they are no chance.
CHANCE = 0.05
#: The fewest prompts that a gate is judged on.
FEWEST = LOST_TO_CHANCE + 1

#: The fewest losses, with nothing won, that the sign test tells from chance: 5. Of fewer prompts all may be lost.
TELLING = math.ceil(-math.log2(CHANCE))

FAILS_WHEN = (
    "a prompt is lost when only the baseline gets it right, and won when only the speculative arm does; fails when "
    f"more than {LOST_TO_CHANCE} is lost to a wrong answer and the baseline gets none wrong, or when more are lost "
    f"than won and chance would do that in fewer than {CHANCE:.0%} of cases (sign test), or when the speculative arm "
    "gets none right and loses one to a wrong answer; undecided when some are lost and the baseline gets some wrong "
    f"itself and fewer than {TELLING} right, or when more than {LOST_TO_CHANCE} is lost and the speculative arm gets "
    "fewer than half of all right"
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
_ASKED_FOR = {JSON: "JSON", TOOLS: "a tool call", NEEDLE: "words from a long text"}


def judge_gates(baseline: ArmResult, speculative: ArmResult, resolved: ResolvedProfile) -> list[JudgedGate]:
    """The gates in their order, as plain data: seven, and those of prompts that were asked again.

    Each has ``name``, ``title``, ``rule``, ``word`` (passed, failed, not measured; no baseline where the
    baseline itself does not pass) and ``said``, and for either arm ``said``, ``passed`` and ``total`` (answers
    for outputs, scores and texts, prompts for the others) and ``examples``. Nothing is raised for a bad result.
    """
    requests = requests_of(baseline), requests_of(speculative)
    found = [_named(OUTPUTS, OUTPUTS_RULE, judge_outputs(baseline, speculative))]
    # In the order in which a failure is told: what one answer shows is plainer than figures over all of them.
    advice = ""
    if "gates" not in ((resolved.get("experiment") or {}).get("suites") or []):
        advice = "; the suite 'gates' has prompts that do"
    for name, asked_for in _ASKED_FOR.items():
        ours, theirs = _states(requests[0], name), _states(requests[1], name)
        nothing = f"no prompt of the experiment asks for {asked_for}{advice}"
        found.append(_named(name, CHECKS_RULE, _judge_states(name, ours, theirs, nothing)))
    again = set()
    for request in requests[0]:
        if gate := request.get("gate"):
            again.add(gate.get("again"))
    if WARM in again:
        judged = _judge_again(WARM, *requests)
        hits = {"baseline": prefix_hits(baseline), "speculative": prefix_hits(speculative)}
        found.append(_named(WARM, AGAIN_RULE, with_proof(judged, hits)))
    if STREAMS in again:
        found.append(_named(STREAMS, AGAIN_RULE, _judge_again(STREAMS, *requests)))
    if SLOTS in again:
        found.append(_named(SLOTS, SLOTS_RULE, judge_slots(baseline, speculative, _slots(resolved))))
    return [
        *found,
        _named(SCORES, SCORES_RULE, judge_scores(baseline, speculative)),
        _named(TEXTS, TEXTS_RULE, judge_texts(baseline, speculative)),
        _named(SAMPLED, SAMPLED_RULE, judge_sampled(baseline, speculative)),
    ]


def _slots(resolved: ResolvedProfile) -> int | None:
    """The slots of a server; None where a result is judged without its profile, or nothing was fitted."""
    arm = (resolved.get("arms") or {}).get("baseline")
    fit = arm and arm.get("fit")
    return fit["sequences"] if fit else None


def _named(name: str, rule: str, judged: JudgedArms) -> JudgedGate:
    return {"name": name, "title": TITLES[name], "rule": rule, **judged}


# --- one gate -------------------------------------------------------------------------------------

States = Mapping[Prompt, tuple[str, str]]
"""What each prompt of a gate is in an arm: right, wrong or open, and why when not right."""


def _judge_again(name: Again, baseline: Sequence[Request], speculative: Sequence[Request]) -> JudgedArms:
    """The gate of prompts that were asked again on one server."""
    ours, theirs = again_states(baseline, name), again_states(speculative, name)
    return _judge_states(name, ours, theirs, "no prompt was repeated in both arms")


def _judge_states(name: str, ours: States, theirs: States, without: str) -> JudgedArms:
    """A gate by what each prompt is in the baseline and in the other arm; ``without`` says that none is."""
    both = [prompt for prompt in ours if prompt in theirs]
    sides = _side(ours, both), _side(theirs, both)
    word, said = NOT_MEASURED, without
    if both:
        word, said = _word_of(name, ours, theirs, both, *sides)
    return {"word": word, "said": said, "baseline": sides[0], "speculative": sides[1]}


def _word_of(
    name: str, ours: States, theirs: States, both: Sequence[Prompt], baseline: CheckedSide, speculative: CheckedSide
) -> tuple[str, str]:
    """The word of a gate and its sentence, over the prompts that both arms were asked."""
    passed, kept, prompts = baseline["passed"], speculative["passed"], count(len(both), "prompt")
    if len(both) < FEWEST:
        return NOT_MEASURED, f"{prompts}, and {FEWEST} are needed"
    if passed < FEWEST or 2 * passed < len(both):
        return NO_BASELINE, f"the baseline itself gets only {passed} of {prompts} right{_first(ours, both)}"
    lost, wrong = [], []
    for prompt in both:
        if ours[prompt][0] == RIGHT and theirs[prompt][0] != RIGHT:
            lost.append(prompt)
            if theirs[prompt][0] == WRONG:
                wrong.append(prompt)
    # What both get right is neither lost nor won.
    won = kept - (passed - len(lost))
    flawless = not baseline["wrong"]
    losses = (
        f"{len(lost)} of the {count(passed, 'prompt')} that the baseline gets right in {_field(name)} "
        f"{'is' if len(lost) == 1 else 'are'} not right in the speculative arm{_first(theirs, wrong or lost)}"
    )
    # An arm that gets nothing right, and not only because it was cut off, has no healthy answer to show: of four
    # prompts or fewer the sign test would let even that pass.
    nothing = not kept and bool(wrong)
    if nothing or (flawless and len(wrong) > LOST_TO_CHANCE) or sign_test(len(lost), won) < CHANCE:
        return FAILED, losses
    if why := _cannot_tell(len(lost), len(both), passed, kept, nothing_wrong=flawless):
        if not wrong:
            why += "; they were cut off or undecided, which a higher output length limit may settle"
        return NOT_MEASURED, f"{losses}: {why}"
    return PASSED, f"{speculative['said']}; the baseline {baseline['said']}"


def _cannot_tell(
    lost: int, asked: int, baseline_right: int, speculative_right: int, *, nothing_wrong: bool
) -> str | None:
    """Why losses that do not fail a gate do not let it pass either; None where they do.

    ``lost`` prompts are right in the baseline alone, of those that were ``asked``. ``nothing_wrong``: no answer of the
    baseline is wrong, though some may have been cut off.
    """
    if lost and not nothing_wrong and baseline_right < TELLING:
        return f"a baseline that gets some wrong itself must get {TELLING} right before losses can be told from chance"
    # What is asked of the baseline, half of them right, is asked of the other arm too.
    if lost > LOST_TO_CHANCE and 2 * speculative_right < asked:
        return f"too few to rule out chance, but too many to pass with {speculative_right} of {asked} right"
    return None


def _field(name: str) -> str:
    return TITLES[name] if name == JSON else TITLES[name][0].lower() + TITLES[name][1:]


def _states(requests: Iterable[Request], name: str) -> dict[Prompt, tuple[str, str]]:
    """What each prompt of a gate is in an arm: right when all of its answers are, wrong when one is."""
    found: dict[Prompt, tuple[str, str]] = {}
    for request in requests:
        gate = request.get("gate")
        if gate and gate.get("name") == name and (request.get("status") == "ok" or gave_nothing(request)):
            prompt = str(request.get("group")), whole_prompt(request.get("prompt_id"))
            found[prompt] = worse(found.get(prompt), check_answer(request))
    return found


def _side(states: States, prompts: Sequence[Prompt]) -> CheckedSide:
    """One side of a gate: how many of some prompts are right, and the first that are not."""
    counts = Counter(states[prompt][0] for prompt in prompts)
    said = "not asked"
    if prompts:
        said = f"{counts[RIGHT]} of {count(len(prompts), 'prompt')} right"
    if counts[OPEN]:
        said += f", {counts[OPEN]} cut off by the output length limit or undecided"
    examples = []
    for prompt in prompts:
        state, why = states[prompt]
        if state != RIGHT:
            examples.append(f"{prompt[1]}: {why}")
    return {**gate_side(said, len(prompts), examples), "wrong": counts[WRONG], "open": counts[OPEN]}


def _first(states: States, prompts: Sequence[Prompt]) -> str:
    """The first of some prompts that is not right, with its reason, in brackets."""
    for prompt in prompts:
        if states[prompt][0] != RIGHT:
            return f" ({prompt[1]}: {states[prompt][1]})"
    return ""
