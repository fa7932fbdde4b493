"""What a tuning says: the judgement on unseen prompts, the table of what was tried, the profile with its evidence."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, cast

import yaml

from ..analysis.decision import WORTH, Measured, decide
from ..analysis.gates import FAILED, PASSED
from ..analysis.output_equality import judge_outputs
from ..analysis.speedup import estimate_speedup, sum_ratio
from ..analysis.verdict_types import JudgedArms
from ..analysis.words import THRESHOLD
from ..bench.machine_state import OTHER_CPU_PERCENT
from ..bench.stats import Gain, median, paired_ratios
from ..core.format import NOTHING, count, listing, number, percent, times, times_span
from ..core.plain_text import printable
from ..core.table import table
from ..profiles.overrides import changed
from .paired_stats import SAME, Tried, prompt_of
from .prompt_split import SUITE, TunePrompts
from .search import Found
from .tries import ALL
from .types import BASELINE, SPECULATIVE, Candidate, Outcome

if TYPE_CHECKING:
    from drafthouse.bench.result_types import ArmResult
    from drafthouse.profiles.profile_types import EqualAnswers, Profile, Tuned, TunedSpeed

#: What a tuning can come to. A new profile is written for the first two.
FASTER, AS_FAST, NO_FASTER, KEPT, UNCONFIRMED = "faster", "as fast", "no faster", "kept", "unconfirmed"
#: The winner's answers at temperature 0 do not pass the outputs gate, whatever its speed.
WRONG_OUTPUT = "wrong output"
BETTER = (FASTER, AS_FAST)
_RULE = (
    f"within {100 * (SAME - 1):.0f} % of the fastest counts as equal; among equals the profile's own method, "
    "then fewer changed options, then the smaller K"
)


@dataclass(frozen=True)
class Judgement:
    """The word, the sentence, and the numbers behind them: `stats.Estimate` as plain data, None where not measured."""

    word: str
    sentence: str
    over_profile: Gain | None = None
    """The winner's speed over that of the profile as it stood, prompt by prompt."""
    over_baseline: Gain | None = None
    """The winner's speed over that of the same server without speculation."""
    equal_outputs: EqualAnswers | None = None
    outputs: JudgedArms | None = None
    """What the outputs gate says of them (`output_equality.judge_outputs`): word, said, and both sides."""


def judge(found: Found) -> Judgement:
    """What the re-measurement says of the winner, by the rule of the verdict where speculation is meant."""
    won, own = found.winner, found.own
    if won == own:
        tried = count(len(found.tried) - 1, "other candidate")
        return Judgement(KEPT, f"kept: {found.why}; {tried} tried, {found.ended}")
    if found.unconfirmed:
        return Judgement(UNCONFIRMED, f"unconfirmed: {won.id} was the fastest in the search, but {found.unconfirmed}")
    baseline, speculative = found.final[BASELINE, won.id], found.final[SPECULATIVE, won.id]
    over_profile = _speedup(found.final[SPECULATIVE, own.id], speculative)
    over_baseline = _speedup(baseline, speculative)
    equal = _equal_outputs(baseline, speculative)
    outputs = judge_outputs(_answers(baseline), _answers(speculative))
    if outputs["word"] == FAILED:
        why = f"{outputs['said']}; its speed, {times_span(over_profile)} that of {own.id}, does not count"
        sentence = f"{WRONG_OUTPUT}: {won.id}, {why}"
        return Judgement(WRONG_OUTPUT, sentence, over_profile, over_baseline, equal, outputs)
    drafted = any(outcome.facts.get("drafted") for outcome in speculative)
    word, why = _word(won, own, over_profile, drafted)
    verdict = _verdict(baseline, speculative)
    beside = f"{verdict}: {times_span(over_baseline)} of the speed without speculation"
    prompts = f"on {count(over_profile['n'], 'prompt')} that the search did not see"
    sentence = f"{word}: {won.id}, {why} {prompts}; {beside}"
    if outputs["word"] != PASSED:
        sentence += f"; outputs {outputs['word']}: {outputs['said']}"
    return Judgement(word, sentence, over_profile, over_baseline, equal, outputs)


def _word(won: Candidate, own: Candidate, over_profile: Gain, drafted: bool) -> tuple[str, str]:
    speed = f"{times_span(over_profile)} the speed of {own.id}"
    if not drafted:
        return NO_FASTER, f"{speed}, without drafting a token, so speculation is not the cause,"
    # Two starts of one engine differ, which an interval over prompts does not see: the verdict's own threshold.
    if over_profile["gain"] >= THRESHOLD and over_profile["low"] > 1.0:
        return FASTER, speed
    # Surely not slower by what would be worth having, and no slower as measured.
    as_fast = over_profile["gain"] > 1 / SAME and over_profile["low"] > 1 / WORTH
    if won.family == own.family and won.tokens < own.tokens and as_fast:
        return AS_FAST, f"{speed} with {own.tokens - won.tokens} fewer draft tokens per step,"
    return NO_FASTER, f"{speed}, not a clear gain,"


def _log_tpot(outcomes: Sequence[Outcome]) -> dict[str, dict[int, float]]:
    """The logarithm of the TPOT of every prompt, by round; one at several temperatures has their mean."""
    values: dict[str, dict[int, list[float]]] = {}
    for turn, outcome in enumerate(outcomes, 1):
        for key, tpot_ms in outcome.tpot_ms.items():
            values.setdefault(prompt_of(key), {}).setdefault(turn, []).append(math.log(tpot_ms))
    means = {}
    for prompt, rounds in values.items():
        means[prompt] = {turn: fmean(logs) for turn, logs in rounds.items()}
    return means


def _answers(outcomes: Sequence[Outcome]) -> ArmResult:
    """The answers of an arm's rounds as the outputs gate reads a result; nothing else of it is there."""
    answers = []
    for turn, outcome in enumerate(outcomes, 1):
        for answer in outcome.facts.get("answers", []):
            answers.append({**answer, "round": turn})
    return cast("ArmResult", {"requests": answers})


def _measured(slow: Sequence[Outcome], fast: Sequence[Outcome]) -> Measured:
    """What the verdict looks at: the speed-up, and the sum of the prompts' times per token in place of seconds."""
    of_slow, of_fast = _log_tpot(slow), _log_tpot(fast)
    speedup = estimate_speedup(of_slow, of_fast, dict.fromkeys(of_slow, ""))
    return Measured(speedup, sum_ratio(_mean_tpot(of_slow), _mean_tpot(of_fast)), {})


def _mean_tpot(logs: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """The TPOT of every prompt, the mean of its rounds, from their logarithms."""
    return {prompt: fmean(map(math.exp, rounds.values())) for prompt, rounds in logs.items()}


def _verdict(baseline: Sequence[Outcome], speculative: Sequence[Outcome]) -> str:
    """The verdict's word for two arms, by its own table; ``too few rounds`` beside one that more rounds could give."""
    decision = decide(_measured(baseline, speculative))
    if decision.cause:
        return f"{decision.word} ({decision.cause})"
    return str(decision.word)


def _speedup(slow: Sequence[Outcome], fast: Sequence[Outcome]) -> Gain:
    """The speed-up by the verdict's estimator; raises ValueError for fewer than two prompts that both answered."""
    found = _measured(slow, fast).speedup
    if found is None:
        raise ValueError("fewer than two prompts were answered by both")
    return found.as_dict()


def _equal_outputs(baseline: Sequence[Outcome], speculative: Sequence[Outcome]) -> EqualAnswers | None:
    """How many fingerprints of answers at temperature 0 agree; ``control`` is the baseline asked twice."""
    equal, pairs = _equal_pairs(baseline[0], speculative[0])
    if not pairs:
        return None
    control = None
    if len(baseline) > 1:
        equal_again, asked_twice = _equal_pairs(baseline[0], baseline[1])
        if asked_twice:
            control = equal_again / asked_twice
    return {"pairs": pairs, "equal": equal, "control": control}


def _equal_pairs(one: Outcome, other: Outcome) -> tuple[int, int]:
    """How many fingerprints of the same prompt are equal, and how many prompts both outcomes have."""
    outputs, others = one.facts.get("outputs", {}), other.facts.get("outputs", {})
    equal = [outputs[prompt] == others[prompt] for prompt in outputs if prompt in others]
    return sum(equal), len(equal)


# --- for people -------------------------------------------------------------------------------------


def speed_over_own(found: Found, known: Tried) -> float | None:
    """The median speed of a candidate over the profile as it stands, on the prompts both answered."""
    own = next(tried for tried in found.tried if tried.candidate == found.own)
    ratios = list(paired_ratios(own.tpot_ms, known.tpot_ms).values())
    if not ratios:
        return None
    return median(ratios)


def table_of(found: Found) -> str:
    """Everything that was tried as a table, the fastest first and those that are out at the end."""
    order = sorted(found.tried, key=lambda known: (bool(known.out), -(speed_over_own(found, known) or 0.0)))
    rows = []
    for known in order:
        acceptance = known.facts.get("acceptance")
        length = acceptance.get("spec_decode_acceptance_length") if acceptance else None
        notes = []
        if known.candidate == found.own:
            notes.append("the profile as it stands")
        if known.out:
            notes.append(known.out)
        elif known.candidate == found.winner:
            notes.append("chosen")
        rows.append(
            [
                known.candidate.id,
                str(len(known.tpot_ms)),
                str(known.starts),
                number(median(list(known.medians().values()))) if known.tpot_ms else NOTHING,
                times(speed_over_own(found, known)),
                number(length),
                ", ".join(notes),
            ]
        )
    return table(["candidate", "prompts", "starts", "ms/token", "speed", "tokens/step", ""], rows)


def text_of(found: Found, judgement: Judgement, left_out: Sequence[tuple[str, str]], notes: Sequence[str]) -> str:
    """What a person reads at the end: the sentence first, then what it rests on."""
    lines = [judgement.sentence, "", table_of(found), ""]
    lines.append(
        "speed: median over the prompts, over the profile as it stands; ms/token: median; tokens/step: accepted "
        "draft tokens plus one."
    )
    if judgement.equal_outputs:
        lines.append(_outputs_line(judgement.equal_outputs))
    if found.ended != ALL:
        lines.append("The time ran out before everything was tried: a larger BUDGET tries more.")
    lines += [f"note: {note}" for note in company(found)]
    lines += [f"not tried: {name}: {why}" for name, why in left_out]
    lines += [f"note: {note}" for note in notes]
    return "\n".join(lines)


def company(found: Found) -> list[str]:
    """A warning where something else used the machine while candidates were measured."""
    measured: list[Tried | Outcome] = [*found.tried, *chain.from_iterable(found.final.values())]
    shares = []
    for trial in measured:
        share = trial.facts.get("other_cpu_percent")
        if isinstance(share, float):
            shares.append(share)
    busy = [share for share in shares if share > OTHER_CPU_PERCENT]
    if not busy:
        return []
    return [
        f"other work used up to {max(busy):.0f} % of the machine's CPU, and more than {OTHER_CPU_PERCENT:.0f} % in "
        f"{len(busy)} of {count(len(shares), 'trial')}: speeds measured meanwhile are unreliable"
    ]


def _outputs_line(outputs: EqualAnswers) -> str:
    control = outputs["control"]
    beside = f" (the baseline asked twice: {percent(control)})" if control is not None else ""
    return f"answers at temperature 0 identical to the baseline's: {outputs['equal']} of {outputs['pairs']}{beside}."


# --- for machines -----------------------------------------------------------------------------------


def evidence(found: Found, judgement: Judgement, about: Tuned, prompts: TunePrompts) -> Tuned:
    """What stands in the new profile under `tuned`: how its values were found, and what they brought.

    ``about`` is what the caller knows: from, date, inventory, engine, budget_s.
    """
    kinds = list(dict.fromkeys(ask["kind"] for ask in prompts.final))
    tried: dict[str, str | float | None] = {}
    for known in found.tried:
        speed = speed_over_own(found, known)
        tried[known.candidate.id] = round(speed, 3) if speed else None
        if known.out:
            tried[known.candidate.id] = f"out: {known.out}"
    data: Tuned = {**about, "spent_s": round(found.spent_s), "verdict": judgement.sentence, "rule": _RULE}
    if judgement.over_profile:
        data["over_profile"] = _short(judgement.over_profile)
    if judgement.over_baseline:
        data["over_baseline"] = _short(judgement.over_baseline)
    if judgement.equal_outputs:
        data["equal_outputs"] = judgement.equal_outputs
    if judgement.outputs:
        data["outputs"] = f"{judgement.outputs['word']}: {judgement.outputs['said']}"
    data["searched_with"] = f"{count(len(prompts.search), 'prompt')} of the kinds {listing(kinds)} (suite {SUITE})"
    data["judged_with"] = f"{count(len(prompts.final), 'answer')} of the profile's own prompts of these kinds"
    data["ended"] = found.ended
    data["tried"] = tried
    if notes := [*prompts.notes, *company(found)]:
        data["notes"] = notes
    return data


def _short(estimate: Gain) -> TunedSpeed:
    return {
        "gain": round(estimate["gain"], 3),
        "low": round(estimate["low"], 3),
        "high": round(estimate["high"], 3),
        "prompts": estimate["n"],
    }


def tuned_profile(profile: Profile, winner: Candidate, proof: Tuned) -> Profile:
    """The new profile: the old one with the winner's values, and the evidence.

    What was measured of the old values goes: `verified`, and the expected acceptance of another draft or method.
    """
    # Copies: YAML names a list that stands in two places.
    new = changed(profile, copy.deepcopy(winner.overrides))
    new["title"] = f"{profile['title']}, tuned"
    before, after = profile["speculation"], new["speculation"]
    if (before["method"], before.get("draft")) != (after["method"], after.get("draft")):
        new.pop("expect", None)
    new.pop("verified", None)
    new["tuned"] = proof
    return new


class _Dumper(yaml.SafeDumper):
    """Writes lists in one line, as the profiles of the house do."""


_Dumper.add_representer(
    list, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)
)


def profile_yaml(profile: Profile) -> str:
    """A tuned profile as the text of its file."""
    own = printable(profile["tuned"]["from"])
    head = (
        f"# Written by `make tune` from profiles/{own}.yml; how it was measured is\n"
        "# under `tuned`. Change the values as you like: a run measures them again.\n"
    )
    body = yaml.dump(dict(profile), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=140)
    return head + body


def as_json(found: Found, judgement: Judgement) -> str:
    """The whole tuning, for result.json."""
    tried = [
        {
            "candidate": known.candidate.id,
            "tokens": known.candidate.tokens,
            "out": known.out,
            "starts": known.starts,
            "speed": speed_over_own(found, known),
            "tpot_ms": known.tpot_ms,
            "facts": known.facts,
        }
        for known in found.tried
    ]
    final = []
    for (arm, candidate), outcomes in found.final.items():
        rounds = [outcome.tpot_ms for outcome in outcomes]
        final.append({"arm": arm, "candidate": candidate, "rounds": rounds})
    data = {
        "schema": "drafthouse.tuned/1",
        "word": judgement.word,
        "sentence": judgement.sentence,
        "own": found.own.id,
        "winner": found.winner.id,
        "overrides": found.winner.overrides,
        "why": found.why,
        "ended": found.ended,
        "spent_s": found.spent_s,
        "over_profile": judgement.over_profile,
        "over_baseline": judgement.over_baseline,
        "equal_outputs": judgement.equal_outputs,
        "outputs": judgement.outputs,
        "tried": tried,
        "final": final,
    }
    return json.dumps(data, indent=1) + "\n"
