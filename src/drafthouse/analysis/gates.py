"""The gates: is the output of the speculative arm still right. Six, and up to three more, each asked of both arms.

`outputs` sets the answers at temperature 0 side by side (`output_equality.py`), `scores` asks the target itself how
likely they are (`scored_outputs.py`), `texts` looks for text that degenerates (`degenerate_text.py`). Others look at
each answer by itself (`answer_checks.py`): is it JSON of the schema that was asked for, a call of the right tool with
the right types, does it hold the words that stood somewhere in a long text. A prompt counts as right in an arm when
all of its answers are. Three more are there where an experiment asks a prompt again on the same server, and set those
answers beside each other (`asked_again.py`).

A model may be wrong without any fault of speculation, so nothing is asked of the speculative arm that the
baseline does not do itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..bench.result_types import ArmResult, Request
from ..bench.samples import Prompt, gave_nothing, requests_of, whole_prompt
from ..core.format import count
from ..profiles.resolved_types import ResolvedProfile
from ..prompts.checks import JSON, NEEDLE, SLOTS, STREAMS, TOOLS, WARM
from ..prompts.suite_types import Again
from .answer_checks import OPEN, RIGHT, WRONG, check_answer
from .asked_again import SLOTS_RULE, again_states, judge_slots, prefix_hits, with_proof
from .degenerate_text import RULE as TEXTS_RULE
from .degenerate_text import judge_texts
from .output_equality import RULE as OUTPUTS_RULE
from .output_equality import judge_outputs
from .paired_tests import sign_test
from .scored_outputs import RULE as SCORES_RULE
from .scored_outputs import judge_scores
from .verdict_types import CheckedSide, GateSide, JudgedGate

OUTPUTS, SCORES, TEXTS = "outputs", "scores", "texts"
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
    SCORES: "Scored by the baseline",
    TEXTS: "Degenerate text",
    JSON: "JSON by schema",
    TOOLS: "Tool calls",
    NEEDLE: "Needle in a long text",
    WARM: "Warm prefix cache",
    STREAMS: "Tool calls streamed and not",
    SLOTS: "One prompt in all slots",
}
_AGAIN: tuple[Again, ...] = (WARM, STREAMS)
_ASKED_FOR = {JSON: "JSON", TOOLS: "a tool call", NEEDLE: "words from a long text"}


def judge_gates(baseline: ArmResult, speculative: ArmResult, resolved: ResolvedProfile) -> list[JudgedGate]:
    """Return the gates in their order, as plain data: six, and those of prompts that were asked again.

    Each has ``name``, ``title``, ``rule``, ``word`` (passed, failed, not measured; no baseline where the
    baseline itself does not pass) and ``said``, and for either arm ``said``, ``passed`` and ``total`` (answers
    for outputs, scores and texts, prompts for the others) and ``examples``. Nothing is raised for a bad result.
    """
    over_arms = (
        (OUTPUTS, OUTPUTS_RULE, judge_outputs),
        (SCORES, SCORES_RULE, judge_scores),
        (TEXTS, TEXTS_RULE, judge_texts),
    )
    told: list[JudgedGate] = [
        {"name": name, "title": TITLES[name], "rule": rule, **judge_arms(baseline, speculative)}
        for name, rule, judge_arms in over_arms
    ]
    suites = [str(suite) for suite in (resolved.get("experiment") or {}).get("suites") or []]
    checks = [_judge_checks(name, baseline, speculative, suites) for name in (JSON, TOOLS, NEEDLE)]
    # In the order in which a failure is told: what one answer shows is plainer than figures over all of them.
    return [told[0], *checks, *_judge_again(baseline, speculative, resolved), *told[1:]]


def _judge_again(baseline: ArmResult, speculative: ArmResult, resolved: ResolvedProfile) -> list[JudgedGate]:
    """Return the gates of prompts that were asked again on one server, those that the experiment asks for."""
    asked = {gate.get("again") for r in requests_of(baseline) if (gate := r.get("gate"))}
    found: list[JudgedGate] = []
    for name in (n for n in _AGAIN if n in asked):
        ours, theirs = (again_states(requests_of(result), name) for result in (baseline, speculative))
        found.append(_judge_states(name, AGAIN_RULE, ours, theirs, "no prompt was repeated in both arms"))
        if name == WARM:
            hits = {"baseline": prefix_hits(baseline), "speculative": prefix_hits(speculative)}
            found[-1] = with_proof(found[-1], hits)
    if SLOTS in asked:
        arm = (resolved.get("arms") or {}).get("baseline")
        # A result that is judged without its profile has none.
        fit = arm.get("fit") if arm else None
        judged = judge_slots(baseline, speculative, fit["sequences"] if fit else None)
        found.append({"name": SLOTS, "title": TITLES[SLOTS], "rule": SLOTS_RULE, **judged})
    return found


# --- one gate -------------------------------------------------------------------------------------


def _judge_checks(name: str, baseline: ArmResult, speculative: ArmResult, suites: Sequence[str]) -> JudgedGate:
    """Return the gate ``name`` over the prompts that both arms were asked."""
    ours, theirs = (_states(requests_of(result), name) for result in (baseline, speculative))
    advice = "" if "gates" in suites else "; the suite 'gates' has prompts that do"
    nothing = f"no prompt of the experiment asks for {_ASKED_FOR[name]}{advice}"
    return _judge_states(name, CHECKS_RULE, ours, theirs, nothing)


def _judge_states(
    name: str,
    rule: str,
    ours: Mapping[Prompt, tuple[str, str]],
    theirs: Mapping[Prompt, tuple[str, str]],
    without: str,
) -> JudgedGate:
    """Return a gate by what each prompt is in the baseline and in the other arm; ``without`` says that none is."""
    both = [prompt for prompt in ours if prompt in theirs]
    sides: dict[str, GateSide] = {
        "baseline": _told({prompt: ours[prompt] for prompt in both}),
        "speculative": _told({prompt: theirs[prompt] for prompt in both}),
    }

    def judged(word: str, said: str) -> JudgedGate:
        return {
            "name": name, "title": TITLES[name], "rule": rule, "baseline": sides["baseline"],
            "speculative": sides["speculative"], "word": word, "said": said,
        }  # fmt: skip

    if not both:
        return judged(NOT_MEASURED, without)
    if len(both) < FEWEST:
        return judged(NOT_MEASURED, f"{count(len(both), 'prompt')}, and {FEWEST} are needed")
    passed = sides["baseline"]["passed"]
    if passed < FEWEST or 2 * passed < len(both):
        said = f"the baseline itself gets only {passed} of {count(len(both), 'prompt')} right{_first(ours, both)}"
        return judged(NO_BASELINE, said)
    lost = [prompt for prompt in both if ours[prompt][0] == RIGHT and theirs[prompt][0] != RIGHT]
    won = [prompt for prompt in both if ours[prompt][0] != RIGHT and theirs[prompt][0] == RIGHT]
    wrong = [prompt for prompt in lost if theirs[prompt][0] == WRONG]
    flawless = not any(ours[prompt][0] == WRONG for prompt in both)
    kept = sides["speculative"]["passed"]
    losses = (
        f"{len(lost)} of the {count(passed, 'prompt')} that the baseline gets right in {_field(name)} "
        f"{'is' if len(lost) == 1 else 'are'} not right in the speculative arm{_first(theirs, wrong or lost)}"
    )
    # An arm that gets nothing right, and not only because it was cut off, has no healthy answer to show: of four
    # prompts or fewer the sign test would let even that pass.
    nothing = not kept and bool(wrong)
    if nothing or (flawless and len(wrong) > LOST_TO_CHANCE) or sign_test(len(lost), len(won)) < CHANCE:
        return judged(FAILED, losses)
    if why := _cannot_tell(len(lost), kept, passed, len(both), flawless):
        cut = (
            ""
            if wrong or not lost
            else "; they were cut off or undecided, which a higher output length limit may settle"
        )
        return judged(NOT_MEASURED, f"{losses}: {why}{cut}")
    said = f"{sides['speculative']['said']}; the baseline {sides['baseline']['said']}"
    return judged(PASSED, said)


def _cannot_tell(lost: int, kept: int, passed: int, asked: int, flawless: bool) -> str | None:
    """Return why losses that do not fail a gate do not let it pass either; None where they do.

    ``lost`` prompts are right in the baseline alone, ``kept`` are right in the speculative arm and ``passed`` in the
    baseline, of those that were ``asked``.
    """
    if lost and not flawless and passed < TELLING:
        return f"a baseline that gets some wrong itself must get {TELLING} right before losses can be told from chance"
    # What is asked of the baseline, half of them right, is asked of the other arm too.
    if lost > LOST_TO_CHANCE and 2 * kept < asked:
        return f"too few to rule out chance, but too many to pass with {kept} of {asked} right"
    return None


def _field(name: str) -> str:
    return TITLES[name] if name == JSON else TITLES[name][0].lower() + TITLES[name][1:]


def _states(requests: Iterable[Request], name: str) -> dict[Prompt, tuple[str, str]]:
    """Return what each prompt of a gate is in an arm: right when all of its answers are, wrong when one is."""
    found: dict[Prompt, tuple[str, str]] = {}
    for request in requests:
        gate = request.get("gate")
        if not gate or gate.get("name") != name or not (request.get("status") == "ok" or gave_nothing(request)):
            continue
        prompt = str(request.get("group")), whole_prompt(request.get("prompt_id"))
        state, why = check_answer(request)
        known = found.get(prompt)
        if known is None or _WORSE[state] > _WORSE[known[0]]:
            found[prompt] = (state, why)
    return found


_WORSE = {RIGHT: 0, OPEN: 1, WRONG: 2}


def _told(states: Mapping[Prompt, tuple[str, str]]) -> CheckedSide:
    """Return one side of a gate: how many prompts are right, and the first that are not."""
    counts = {state: sum(one == state for one, _ in states.values()) for state in (RIGHT, WRONG, OPEN)}
    said = f"{counts[RIGHT]} of {count(len(states), 'prompt')} right"
    if counts[OPEN]:
        said += f", {counts[OPEN]} cut off by the output length limit or undecided"
    examples = [f"{prompt[1]}: {why}" for prompt, (state, why) in states.items() if state != RIGHT]
    return {
        "said": said if states else "not asked",
        "passed": counts[RIGHT],
        "total": len(states),
        "wrong": counts[WRONG],
        "open": counts[OPEN],
        "examples": examples[:3],
    }


def _first(states: Mapping[Prompt, tuple[str, str]], prompts: Sequence[Prompt]) -> str:
    """Return the first of some prompts that is not right, with its reason, in brackets."""
    for prompt in prompts:
        state, why = states[prompt]
        if state != RIGHT:
            return f" ({prompt[1]}: {why})"
    return ""
