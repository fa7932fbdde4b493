"""Judge the result of a tuning and write it: the judgement, the table of candidates, and the new profile."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, cast

import yaml

from ..analysis.decision import Measured, decide
from ..analysis.gates import FAILED, PASSED, judge_checks
from ..analysis.output_equality import judge_outputs
from ..analysis.speedup import estimate_speedup, sum_ratio
from ..analysis.verdict_types import JudgedArms
from ..analysis.words import THRESHOLD, WORTH
from ..bench.machine_state import OTHER_CPU_PERCENT
from ..bench.stats import Gain, median, paired_ratios
from ..core.format import NOTHING, count, listing, number, percent, times, times_span
from ..core.plain_text import printable
from ..core.table import table
from ..profiles.overrides import with_overrides
from .paired_stats import SAME, CandidateRecord, prompt_of
from .prompt_split import SUITE, TunePrompts
from .search import SearchResult
from .tries import ALL
from .types import BASELINE, SPECULATIVE, Candidate, Outcome
from .under_load import load_text, points_of

if TYPE_CHECKING:
    from drafthouse.bench.result_types import ArmResult
    from drafthouse.profiles.profile_types import EqualAnswers, Profile, Tuned, TunedSpeed

# Words of the judgement (docs/tune.md).
FASTER = "faster"
AS_FAST = "as fast"  # as fast as the original profile, with fewer draft tokens per step
NO_FASTER = "no faster"
KEPT = "kept"  # the search chose the original profile
UNCONFIRMED = "unconfirmed"  # the final measurement of the winner failed
WRONG_OUTPUT = "wrong output"  # the winner's answers at temperature 0 fail the outputs gate, whatever its speed
#: A new profile is written for these words.
BETTER = (FASTER, AS_FAST)
_RULE = (
    f"within {100 * (SAME - 1):.0f} % of the fastest counts as equal; among equals the profile's own method, "
    "then fewer changed options, then the smaller K"
)


@dataclass(frozen=True)
class Judgement:
    """The judgement, with the numbers behind it; None for those that were not measured."""

    word: str  # one of the words above
    sentence: str  # begins with the word
    over_profile: Gain | None = None  # the winner's speed over the original profile's
    over_baseline: Gain | None = None  # the winner's speed over that of the same server without speculation
    equal_outputs: EqualAnswers | None = None  # equal answers at temperature 0
    outputs: JudgedArms | None = None  # the outputs gate, which compares answers of both arms


def judge(result: SearchResult) -> Judgement:
    """Judge the winner by the final measurement, with the estimator and thresholds of the report's verdict.

    The first case that applies decides: the original profile won (kept), the final measurement failed (unconfirmed),
    the outputs gate failed (wrong output), and else the speed (`_word`).
    """
    best = result.winner
    original = result.original
    if best == original:
        tried = count(len(result.tried) - 1, "other candidate")
        return Judgement(KEPT, f"kept: {result.why}; {tried} tried, {result.ended}")
    if result.unconfirmed:
        return Judgement(UNCONFIRMED, f"unconfirmed: {best.id} was the fastest in the search, but {result.unconfirmed}")
    baseline = result.final[BASELINE, best.id]
    speculative = result.final[SPECULATIVE, best.id]
    over_profile = _speedup(result.final[SPECULATIVE, original.id], speculative)
    over_baseline = _speedup(baseline, speculative)
    equal = _equal_outputs(baseline, speculative)
    outputs = judge_outputs(_answers(baseline), _answers(speculative))
    if outputs["word"] == FAILED:
        why = f"{outputs['said']}; its speed, {times_span(over_profile)} that of {original.id}, does not count"
        sentence = f"{WRONG_OUTPUT}: {best.id}, {why}"
        return Judgement(
            WRONG_OUTPUT,
            sentence,
            over_profile=over_profile,
            over_baseline=over_baseline,
            equal_outputs=equal,
            outputs=outputs,
        )
    if lost := _lost_quality(result.final[SPECULATIVE, original.id], speculative):
        return Judgement(
            WRONG_OUTPUT,
            f"{WRONG_OUTPUT}: {best.id}, {lost}",
            over_profile=over_profile,
            over_baseline=over_baseline,
            equal_outputs=equal,
            outputs=outputs,
        )
    drafted = any(outcome.facts.get("drafted") for outcome in speculative)
    word, why = _word(best, original, over_profile, drafted=drafted)
    verdict = _verdict(baseline, speculative)
    versus_baseline = f"{verdict}: {times_span(over_baseline)} of the speed without speculation"
    prompts = f"on {count(over_profile['n'], 'prompt')} that the search did not see"
    sentence = f"{word}: {best.id}, {why} {prompts}; {versus_baseline}"
    if outputs["word"] != PASSED:
        sentence += f"; outputs {outputs['word']}: {outputs['said']}"
    return Judgement(
        word, sentence, over_profile=over_profile, over_baseline=over_baseline, equal_outputs=equal, outputs=outputs
    )


def _lost_quality(original: Sequence[Outcome], winner: Sequence[Outcome]) -> str:
    """The sentence of a gate that only the winner fails, "" without one.

    An option of the server, such as a smaller type of its KV cache, changes the baseline's answers too: the winner's
    JSON, tool calls and words from a long text are therefore compared with those of the original profile.
    """
    for gate in judge_checks(_answers(original), _answers(winner)):
        if gate["word"] == FAILED:
            # The gate's sentence speaks of the two arms that it was given.
            sentence = gate["said"].replace("the speculative arm", "the candidate")
            return sentence.replace("the baseline", "the profile as it stands")
    return ""


def _word(winner: Candidate, original: Candidate, over_profile: Gain, *, drafted: bool) -> tuple[str, str]:
    """The word of the judgement, and the speed for its sentence; ``drafted``: the winner drafted a token."""
    speed = f"{times_span(over_profile)} the speed of {original.id}"
    if not drafted:
        return NO_FASTER, f"{speed}, without drafting a token, so speculation is not the cause,"
    # An interval over prompts misses the variation between server starts, hence the verdict's threshold (1.03) too.
    if over_profile["gain"] >= THRESHOLD and over_profile["low"] > 1.0:
        return FASTER, speed
    # As fast: at most 2 % slower as measured, and the lower bound excludes a loss that would matter.
    as_fast = over_profile["gain"] > 1 / SAME and over_profile["low"] > 1 / WORTH
    if winner.family == original.family and winner.tokens < original.tokens and as_fast:
        return AS_FAST, f"{speed} with {original.tokens - winner.tokens} fewer draft tokens per step,"
    return NO_FASTER, f"{speed}, not a clear gain,"


def _log_tpot(outcomes: Sequence[Outcome]) -> dict[str, dict[int, float]]:
    """The logarithm of the TPOT in ms by prompt, then by round; the mean over a prompt's temperatures."""
    values: dict[str, dict[int, list[float]]] = {}
    for round_number, outcome in enumerate(outcomes, 1):
        for key, tpot_ms in outcome.tpot_ms.items():
            values.setdefault(prompt_of(key), {}).setdefault(round_number, []).append(math.log(tpot_ms))
    means = {}
    for prompt, rounds in values.items():
        means[prompt] = {round_number: fmean(logs) for round_number, logs in rounds.items()}
    return means


def _answers(outcomes: Sequence[Outcome]) -> ArmResult:
    """An arm's answers in the form that the outputs gate reads; all other fields of `ArmResult` are missing."""
    answers = []
    for round_number, outcome in enumerate(outcomes, 1):
        for answer in outcome.facts.get("answers", []):
            answers.append({**answer, "round": round_number})
    return cast("ArmResult", {"requests": answers})


def _measured(slow: Sequence[Outcome], fast: Sequence[Outcome]) -> Measured:
    """Input of the verdict: the speed-up, and the ratio of the sums of TPOT instead of answer times."""
    slow_logs = _log_tpot(slow)
    fast_logs = _log_tpot(fast)
    speedup = estimate_speedup(slow_logs, fast_logs, dict.fromkeys(slow_logs, ""))  # all prompts are of one kind
    total = sum_ratio(_mean_tpot(slow_logs), _mean_tpot(fast_logs))
    return Measured(speedup=speedup, total=total, by_temperature={})


def _mean_tpot(logs: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """The TPOT in ms by prompt, the mean over the rounds, from the logarithms by prompt and round."""
    return {prompt: fmean(map(math.exp, rounds.values())) for prompt, rounds in logs.items()}


def _verdict(baseline: Sequence[Outcome], speculative: Sequence[Outcome]) -> str:
    """The verdict's word for two arms, with its cause in brackets, such as ``too few rounds``, if it has one."""
    decision = decide(_measured(baseline, speculative))
    if decision.cause:
        return f"{decision.word} ({decision.cause})"
    return str(decision.word)


def _speedup(slow: Sequence[Outcome], fast: Sequence[Outcome]) -> Gain:
    """The speed-up by the verdict's estimator. Raises ValueError if both answered fewer than two prompts."""
    speedup = _measured(slow, fast).speedup
    if speedup is None:
        raise ValueError("fewer than two prompts were answered by both")
    return speedup.as_dict()


def _equal_outputs(baseline: Sequence[Outcome], speculative: Sequence[Outcome]) -> EqualAnswers | None:
    """Equal answers of the first round at temperature 0, by fingerprint; None if both arms answered no such prompt.

    ``control`` is the fraction that is equal in two rounds of the baseline, None without two.
    """
    equal, pairs = _equal_pairs(baseline[0], speculative[0])
    if not pairs:
        return None
    control = None
    if len(baseline) > 1:
        control_equal, control_pairs = _equal_pairs(baseline[0], baseline[1])
        if control_pairs:
            control = control_equal / control_pairs
    return {"pairs": pairs, "equal": equal, "control": control}


def _equal_pairs(first: Outcome, second: Outcome) -> tuple[int, int]:
    """Number of prompts with equal fingerprints in two outcomes, and number of prompts in both."""
    first_outputs = first.facts.get("outputs", {})
    second_outputs = second.facts.get("outputs", {})
    equal = [first_outputs[prompt] == second_outputs[prompt] for prompt in first_outputs if prompt in second_outputs]
    return sum(equal), len(equal)


# --- text for the user -------------------------------------------------------------------------------------


def speed_over_original(result: SearchResult, record: CandidateRecord) -> float | None:
    """Median speed of a candidate over the original profile's, on the prompts of both; None if they share none."""
    original = next(tried for tried in result.tried if tried.candidate == result.original)
    ratios = list(paired_ratios(original.tpot_ms, record.tpot_ms).values())
    if not ratios:
        return None
    return median(ratios)


def table_of(result: SearchResult) -> str:
    """The tried candidates as a text table, the fastest first and those that are out at the end."""
    order = sorted(result.tried, key=lambda record: (bool(record.out), -(speed_over_original(result, record) or 0.0)))
    rows = []
    for record in order:
        acceptance = record.facts.get("acceptance")
        length = acceptance.get("spec_decode_acceptance_length") if acceptance else None
        notes = []
        if record.candidate == result.original:
            notes.append("the profile as it stands")
        if record.out:
            notes.append(record.out)
        elif record.candidate == result.winner:
            notes.append("chosen")
        rows.append(
            [
                record.candidate.id,
                str(len(record.tpot_ms)),
                str(record.starts),
                number(median(list(record.medians().values()))) if record.tpot_ms else NOTHING,
                times(speed_over_original(result, record)),
                number(length),
                ", ".join(notes),
            ]
        )
    return table(["candidate", "prompts", "starts", "ms/token", "speed", "tokens/step", ""], rows)


def text_of(
    result: SearchResult,
    judged: Judgement,
    left_out: Sequence[tuple[str, str]],
    notes: Sequence[str],
    load: int = 0,
) -> str:
    """The final text for the user: the judgement, the tables, and remarks.

    ``left_out`` has what could not be tried, each with the reason (`types.Space`); ``notes`` are about the prompts.
    ``load``: the concurrent requests of the trials under load.
    """
    lines = [judged.sentence, "", table_of(result), ""]
    if result.loaded:
        lines += [load_text(points_of(result.loaded, result.original.id), load), ""]
    lines.append(
        "speed: median over the prompts, over the profile as it stands; ms/token: median; tokens/step: accepted "
        "draft tokens plus one."
    )
    if judged.equal_outputs:
        lines.append(_outputs_line(judged.equal_outputs))
    if result.ended != ALL:
        lines.append("The time ran out before everything was tried: a larger BUDGET tries more.")
    lines += [f"note: {note}" for note in foreign_load_note(result)]
    lines += [f"not tried: {name}: {why}" for name, why in left_out]
    lines += [f"note: {note}" for note in notes]
    return "\n".join(lines)


def foreign_load_note(result: SearchResult) -> list[str]:
    """A warning if other processes used much CPU while candidates were measured, or an empty list."""
    trials: list[CandidateRecord | Outcome] = [*result.tried, *chain.from_iterable(result.final.values())]
    shares = []
    for trial in trials:
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
    """The sentence about equal answers, with the control if there is one."""
    control = outputs["control"]
    noise = f" (the baseline asked twice: {percent(control)})" if control is not None else ""
    return f"answers at temperature 0 identical to the baseline's: {outputs['equal']} of {outputs['pairs']}{noise}."


# --- files -----------------------------------------------------------------------------------


def evidence(result: SearchResult, judgement: Judgement, about: Tuned, prompts: TunePrompts) -> Tuned:
    """The key `tuned` of the new profile: how its values were found, and the speed that they gave.

    ``about`` holds from, date, inventory, engine and budget_s.
    """
    kinds = list(dict.fromkeys(request["kind"] for request in prompts.final))
    tried: dict[str, str | float | None] = {}
    for record in result.tried:
        speed = speed_over_original(result, record)
        tried[record.candidate.id] = round(speed, 3) if speed else None
        if record.out:
            tried[record.candidate.id] = f"out: {record.out}"
    data: Tuned = {**about, "spent_s": round(result.spent_s), "verdict": judgement.sentence, "rule": _RULE}
    if judgement.over_profile:
        data["over_profile"] = _rounded(judgement.over_profile)
    if judgement.over_baseline:
        data["over_baseline"] = _rounded(judgement.over_baseline)
    if judgement.equal_outputs:
        data["equal_outputs"] = judgement.equal_outputs
    if judgement.outputs:
        data["outputs"] = f"{judgement.outputs['word']}: {judgement.outputs['said']}"
    data["searched_with"] = f"{count(len(prompts.search), 'prompt')} of the kinds {listing(kinds)} (suite {SUITE})"
    data["judged_with"] = f"{count(len(prompts.final), 'answer')} of the profile's own prompts of these kinds"
    data["ended"] = result.ended
    data["tried"] = tried
    if notes := [*prompts.notes, *foreign_load_note(result)]:
        data["notes"] = notes
    return data


def _rounded(estimate: Gain) -> TunedSpeed:
    """The estimate for the profile, rounded to three decimals."""
    return {
        "gain": round(estimate["gain"], 3),
        "low": round(estimate["low"], 3),
        "high": round(estimate["high"], 3),
        "prompts": estimate["n"],
    }


def tuned_profile(profile: Profile, winner: Candidate, proof: Tuned) -> Profile:
    """The new profile: the original with the winner's overrides and the evidence.

    Removes what held for the old values only: `verified`, and the expected acceptance if the draft or method changed.
    """
    # A copy, since YAML writes a list that occurs twice as an anchor and an alias.
    new = with_overrides(profile, copy.deepcopy(winner.overrides))
    new["title"] = f"{profile['title']}, tuned"
    before = profile["speculation"]
    after = new["speculation"]
    if (before["method"], before.get("draft")) != (after["method"], after.get("draft")):
        new.pop("expect", None)
    new.pop("verified", None)
    new["tuned"] = proof
    return new


class _Dumper(yaml.SafeDumper):
    """Writes lists on one line, as the shipped profiles do."""


_Dumper.add_representer(
    list, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)
)


def profile_yaml(profile: Profile) -> str:
    """The text of a tuned profile's file."""
    original = printable(profile["tuned"]["from"])
    head_comment = (
        f"# Written by `make tune` from profiles/{original}.yml; how it was measured is\n"
        "# under `tuned`. Change the values as you like: a run measures them again.\n"
    )
    body = yaml.dump(dict(profile), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=140)
    return head_comment + body


def as_json(result: SearchResult, judgement: Judgement) -> str:
    """The content of result.json."""
    tried = [
        {
            "candidate": record.candidate.id,
            "tokens": record.candidate.tokens,
            "out": record.out,
            "starts": record.starts,
            "speed": speed_over_original(result, record),
            "tpot_ms": record.tpot_ms,
            "facts": record.facts,
        }
        for record in result.tried
    ]
    final = []
    for (arm, candidate), outcomes in result.final.items():
        rounds = [outcome.tpot_ms for outcome in outcomes]
        final.append({"arm": arm, "candidate": candidate, "rounds": rounds})
    data = {
        "schema": "drafthouse.tuned/1",
        "word": judgement.word,
        "sentence": judgement.sentence,
        "own": result.original.id,
        "winner": result.winner.id,
        "overrides": result.winner.overrides,
        "why": result.why,
        "ended": result.ended,
        "spent_s": result.spent_s,
        "over_profile": judgement.over_profile,
        "over_baseline": judgement.over_baseline,
        "equal_outputs": judgement.equal_outputs,
        "outputs": judgement.outputs,
        "tried": tried,
        "loaded": [asdict(point) for point in points_of(result.loaded, result.original.id)],
        "final": final,
    }
    return json.dumps(data, indent=1) + "\n"
