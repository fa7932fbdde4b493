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
from tests.truth.coverage import BAR, SIZES, coverage
from tests.truth.coverage import LAWS as MEDIAN_LAWS
from tests.truth.laws import LAWS, Law
from tests.truth.simulator import Layout, Outcome, run

#: Bars: false `pays` without a gain, of so many runs, and `cannot say` where nothing disturbs.
FALSE_PAYS, OF = 5, 400
CANNOT_SAY_SHARE = 0.05
#: The law whose power is promised: 5 % noise, starts that differ by 2 %.
POWER_LAW = "starts differ, sd 2 %"
POWER = {1.2: 0.95, 1.5: 1.0}
GAINS = (1.0, 1.1, 1.2, 1.5)
#: Power and its rounds are told from fewer runs: a share of 0.95 of 100 is known to 0.02.
POWER_RUNS = 0.25
#: Samples of each size and law: a share of 0.95 is known to 0.001.
COVERAGE_RUNS = 40_000


@dataclass
class Row:
    """What came of one law, by gain."""

    law: Law
    words: dict[float, Counter[str]] = field(default_factory=dict)
    rounds: dict[float, float] = field(default_factory=dict)

    def share(self, gain: float, word: str) -> float:
        """Return the share of the runs at that gain that ended in the word."""
        return self.words[gain][word] / self.words[gain].total()

    def problems(self) -> list[str]:
        """Return where the row misses its bar."""
        found = []
        if self.law.bar and self.share(1.0, "pays") > FALSE_PAYS / OF:
            found.append(f"{self.law.name}: {self.share(1.0, 'pays'):.1%} false `pays`, more than {FALSE_PAYS} of {OF}")
        for gain, counts in self.words.items():
            if counts["invalid"]:
                found.append(f"{self.law.name}: {counts['invalid']} invalid at {gain}")
            if self.law.quiet and self.share(gain, "cannot say") > CANNOT_SAY_SHARE:
                found.append(f"{self.law.name}: {self.share(gain, 'cannot say'):.1%} `cannot say` at {gain}")
        if self.law.name == POWER_LAW:
            found += [
                f"{self.law.name}: power {self.share(gain, 'pays'):.1%} at {gain}, less than {least:.0%}"
                for gain, least in POWER.items()
                if gain in self.words and self.share(gain, "pays") < least
            ]
        return found


def outcomes(law: Law, gain: float, runs: int, seed: int, layout: Layout | None = None) -> list[Outcome]:
    """Return what came of so many experiments of a law; each has random numbers of its own."""
    place = sum(map(ord, law.name))
    return [run(law, gain, np.random.default_rng([seed, place, round(1000 * gain), n]), layout) for n in range(runs)]


def row_of(law: Law, runs: int, seed: int, gains: Sequence[float] = GAINS) -> Row:
    """Return a row of the table: ``runs`` without a gain, a quarter of that with one."""
    row = Row(law)
    for gain in gains:
        found = outcomes(law, gain, runs if gain == 1.0 else max(1, round(POWER_RUNS * runs)), seed)
        row.words[gain] = Counter(one.word for one in found)
        row.rounds[gain] = fmean(one.rounds for one in found)
    return row


def line_of(row: Row) -> str:
    """Return the row as Markdown."""
    cells = [row.law.name, str(row.words[1.0]["pays"])]
    cells += [f"{100 * row.share(gain, 'pays'):.0f} %" for gain in GAINS[1:]]
    cells.append(" / ".join(f"{100 * row.share(gain, 'cannot say'):.0f}" for gain in GAINS) + " %")
    cells.append(" / ".join(f"{row.rounds[gain]:.1f}" for gain in GAINS))
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="another one changes every draw")
    parser.add_argument("--runs", type=int, default=OF, help="experiments a law without a gain; with one a quarter")
    args = parser.parse_args(argv)
    print(f"| law | false `pays` of {args.runs} | power at 1.10 | 1.20 | 1.50 | `cannot say` | rounds |")
    print("|---|---|---|---|---|---|---|")
    problems: list[str] = []
    for law in LAWS:
        row = row_of(law, args.runs, args.seed)
        print(line_of(row), flush=True)
        problems += row.problems()
    found = coverage(COVERAGE_RUNS, args.seed)
    print("\n| law of the values | least coverage, n = 6 to 60 | n = 7 | 13 | 23 |\n|---|---|---|---|---|")
    for name in MEDIAN_LAWS:
        worst = min(SIZES, key=lambda n: found[name][n])
        shown = " | ".join(f"{100 * found[name][n]:.1f} %" for n in (7, 13, 23))
        print(f"| {name} | {100 * found[name][worst]:.1f} % (n = {worst}) | {shown} |")
        # Three standard errors: the least of fifty-five shares lies below the truth.
        slack = 3 * (0.05 * 0.95 / COVERAGE_RUNS) ** 0.5
        if found[name][worst] < BAR - slack:
            problems.append(f"{name}: the interval of {worst} values covers {found[name][worst]:.1%}")
    print("\n| law of the ladder | what it says | in | of | may or must be |\n|---|---|---|---|---|")
    for one in ladder_laws.table(args.seed):
        print(f"| {one.law} | {one.said} | {one.found} | {one.ladders} | {one.bar} |", flush=True)
        if not one.holds:
            problems.append(f"{one.law}: {one.said} in {one.found} of {one.ladders}, and not {one.bar}")
    print("\n" + "\n".join(problems or ["every bar holds"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
