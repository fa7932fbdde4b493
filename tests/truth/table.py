"""The table of what the verdict says where the truth is known, and what each row must hold.

Run as `make truth` (SEED=7 draws everything anew, RUNS=100 is quicker): `python -m tests.truth.table --help`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from tests.truth import ladder_laws
from tests.truth.laws import LAWS, Law
from tests.truth.simulator import Experiment, Layout, Outcome

#: Experiments a law and gain.
RUNS = 400
GAINS = (1.0, 1.1, 1.15, 1.2, 1.3)
#: A gain of this much in gain and sum must not be called none.
REAL = 1.15
HEAD = (
    "| law | false `pays` of {runs} | power at 1.10/1.15/1.20/1.30, % | `cannot say` at 1.00/1.30, % | "
    "answers at 1.00/1.15/1.30 |\n|---|---|---|---|---|"
)


@dataclass
class Row:
    """What came of one law, by gain."""

    law: Law
    words: dict[float, Counter[str]] = field(default_factory=dict)
    answers: dict[float, float] = field(default_factory=dict)
    sums: dict[float, float] = field(default_factory=dict)
    """The true ratio of the sums of seconds: the mean over the experiments."""

    def share(self, gain: float, word: str) -> float:
        """The share of the runs at that gain that ended in the word."""
        return self.words[gain][word] / self.words[gain].total()

    def problems(self) -> list[str]:
        """Where the row misses its bars."""
        bars, name, found = self.law.bars, self.law.name, []
        false = self.share(1.0, "pays") if 1.0 in self.words else 0.0
        if bars.false_pays is not None and false > bars.false_pays:
            found.append(f"{name}: {false:.1%} false `pays`, more than {bars.false_pays:.1%}")
        for gain, least in bars.pays:
            if gain in self.words and self.share(gain, "pays") < least:
                found.append(f"{name}: power {self.share(gain, 'pays'):.1%} at {gain}, less than {least:.0%}")
        unsure = self.share(1.3, "cannot say") if 1.3 in self.words else 0.0
        if bars.cannot_say_at_1_3 is not None and unsure > bars.cannot_say_at_1_3:
            found.append(f"{name}: {unsure:.1%} `cannot say` at 1.3, more than {bars.cannot_say_at_1_3:.0%}")
        for gain in self.words:
            denied = self.share(gain, "does not pay")
            if min(gain, self.sums[gain]) >= REAL and denied > bars.does_not_pay:
                found.append(f"{name}: {denied:.1%} `does not pay` at {gain}")
        return found


def outcomes(law: Law, gain: float, runs: int, seed: int, layout: Layout | None = None) -> list[Outcome]:
    """What came of so many experiments of a law; each has random numbers of its own."""
    return [experiment_of(law, gain, seed, number, layout).run() for number in range(runs)]


def experiment_of(law: Law, gain: float, seed: int, number: int, layout: Layout | None = None) -> Experiment:
    """One experiment of a law, by its number."""
    place = sum(map(ord, law.name))
    chance = np.random.default_rng([seed, place, round(1000 * gain), number])
    return Experiment(law, gain, chance, layout or Layout())


def row_of(law: Law, runs: int, seeds: Sequence[int], gains: Sequence[float] = GAINS) -> Row:
    """A row of the table: ``runs`` experiments at each gain, of every seed."""
    row = Row(law)
    for gain in gains:
        found: list[Outcome] = []
        sums: list[float] = []
        for seed in seeds:
            for number in range(runs):
                experiment = experiment_of(law, gain, seed, number)
                found.append(experiment.run())
                sums.append(experiment.true_sum)
        row.words[gain] = Counter(outcome.word for outcome in found)
        row.answers[gain] = fmean(outcome.answers for outcome in found)
        row.sums[gain] = fmean(sums)
    return row


def line_of(row: Row) -> str:
    """The row as Markdown; false `pays` of `RUNS`, averaged over the seeds."""
    false = RUNS * row.share(1.0, "pays")
    power = "/".join(f"{100 * row.share(gain, 'pays'):.0f}" for gain in GAINS[1:])
    unsure = "/".join(f"{100 * row.share(gain, 'cannot say'):.0f}" for gain in (1.0, 1.3))
    answers = "/".join(f"{row.answers[gain]:.0f}" for gain in (1.0, 1.15, 1.3))
    return f"| {row.law.name} | {false:.1f} | {power} | {unsure} | {answers} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default="1", help="another one changes every draw; several, as '1 2 3', are pooled")
    parser.add_argument("--runs", type=int, default=RUNS, help="experiments a law and gain")
    given = parser.parse_args(argv)
    seeds = [int(word) for word in given.seed.split()]
    print(HEAD.format(runs=RUNS))
    problems: list[str] = []
    for law in LAWS:
        row = row_of(law, given.runs, seeds)
        print(line_of(row), flush=True)
        problems += row.problems()
    print("\n| law of the ladder | what it says | in | of | may or must be |\n|---|---|---|---|---|")
    for one in ladder_laws.table(seeds[0]):
        print(f"| {one.law} | {one.said} | {one.found} | {one.ladders} | {one.bar} |", flush=True)
        if not one.holds:
            problems.append(f"{one.law}: {one.said} in {one.found} of {one.ladders}, and not {one.bar}")
    print("\n" + "\n".join(problems or ["every bar holds"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
