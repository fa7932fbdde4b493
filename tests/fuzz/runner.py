"""Run bad input through the programs that read it, and say what broke.

    python -m tests.fuzz --cases 2000 --seed 7

prints a table of the classes of input, and every traceback with the case that made it.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from drafthouse.core.exit_codes import FAILED, MEANINGS, NOT_HERE
from tests.fakes.vast_server import vast_server
from tests.fuzz import foreign
from tests.fuzz.clone import Ended, call, moved_to
from tests.fuzz.inputs import SHARES, SLOW, Case, Workspace
from tests.fuzz.mutations import MARK
from tests.support.hostile_server import served

#: CPU seconds and memory that a case may take.
LONGEST_S, MOST_BYTES = 30.0, 600_000_000


@dataclass(frozen=True)
class Broken:
    """A case in which something is wrong: its number for `--only`, and what."""

    number: int
    case: Case
    what: str
    ended: Ended

    def __str__(self) -> str:
        said = self.ended.raised or self.ended.text[-1500:]
        return f"case {self.number} ({self.case.kind}: {self.case.name[:300]}): {self.what}\n{said}"


def what_is_wrong(case: Case, ended: Ended) -> str | None:
    """What is wrong with the way a case ended; None where it ended as it should."""
    if ended.raised:
        return "traceback: " + ended.raised.strip().splitlines()[-1][:200]
    if "Traceback (most recent call last)" in ended.text:
        return "a traceback in what it says"
    if ended.code not in MEANINGS:
        return f"the exit status {ended.code}, which docs/exit-codes.md has not"
    if ended.cpu_s > LONGEST_S:
        return f"{ended.cpu_s:.1f} s of CPU"
    if ended.grown_bytes > MOST_BYTES:
        return f"{ended.grown_bytes / 1e6:.0f} MB of memory"
    if Path(MARK).exists():
        return "a program was run that the file names"
    if ended.code in (FAILED, NOT_HERE):
        return _wrong_words(case, ended)
    return None


def _wrong_words(case: Case, ended: Ended) -> str | None:
    """What a refusal does not say: where, found, needed, do, code."""
    if "ansible: " in ended.out or "usage: " in ended.err:
        return None  # their own words
    if case.main.__module__ in ("drafthouse.cli.judge", "drafthouse.cli.report") and "invalid" in ended.out:
        return None  # a verdict
    if case.kind == "catalogue" and re.search(r"^where: .*, as \S+\.yaml of the \w+ arm: ", ended.err, re.MULTILINE):
        return None  # what an engine's entry says stands in the file that a profile renders
    if case.kind == "inventory" and re.search(
        r"^where: (\S+/inventory/\w+: )?(site: |profile$|drafthouse_|overrides|profiles/)", ended.err, re.MULTILINE
    ):
        return None  # which of an inventory's files a variable is from, Ansible does not tell
    if case.main.__module__ == "drafthouse.cli.compare" and (ended.out or ended.code == NOT_HERE):
        return None  # a comparison, with a regression
    if case.main.__name__ == "bench_main" and "did not succeed" in ended.out:
        return None  # of the requests, each with its reason
    if case.main.__module__ == "drafthouse.cli.bench" and "Cannot connect to host 127.0.0.1:9" in ended.err:
        return None
    missing = [word for word in ("found: ", "needed: ", "do: ", "code: ") if word not in ended.text]
    if missing:
        return f"a refusal without {', '.join(missing)}"
    places = re.findall(r"^where: (.*)$", ended.text, re.MULTILINE)
    if case.refusals and case.file and not any(name in place for place in places for name in case.refusals):
        return f"a refusal that does not name the file, but {places[:2]}"
    return None


def kinds_of(cases: int, slow: float = 1.0) -> list[str]:
    """The class of each case: as many of each as its share says, ``slow`` of them where they take long."""
    shares = {kind: share * (slow if kind in SLOW else 1.0) for kind, share in SHARES.items()}
    whole = sum(shares.values())
    kinds = [kind for kind, share in shares.items() for _ in range(max(1, round(cases * share / whole)))]
    return (kinds * 2)[:cases] if len(kinds) < cases else kinds[:cases]


def series(
    folder: Path,
    seed: int,
    kinds: Sequence[str],
    only: int | None = None,
    tell: Callable[[Case, Ended], None] = lambda *_: None,
) -> Iterator[Broken]:
    """Run a case of each of ``kinds`` in this one process, and yield what broke. The same seed gives the same cases."""
    environment = dict(os.environ)
    try:
        answers = type("Of", (foreign.Answers,), {"folder": folder / "served"})
        with vast_server() as vast, served(answers) as address:
            workspace = Workspace(folder, vast, address)
            with moved_to(workspace.root):
                for number, kind in enumerate(kinds):
                    if only not in (None, number):
                        continue
                    case = workspace.case(random.Random(f"{seed} {number}"), kind)
                    with case:
                        ended = call(case.main, case.arguments, case.stdin)
                    tell(case, ended)
                    wrong = what_is_wrong(case, ended)
                    if wrong:
                        yield Broken(number, case, wrong, ended)
    finally:
        os.environ.clear()
        os.environ |= environment


def main() -> int:
    """Run a series, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", type=int, help="this one case alone")
    parser.add_argument("--kind", action="append", help="this class alone (may be repeated)")
    given = parser.parse_args()
    kinds = kinds_of(given.cases)
    if given.kind:
        kinds = [given.kind[number % len(given.kind)] for number in range(given.cases)]
    ran: collections.Counter[str] = collections.Counter()
    codes: collections.Counter[str] = collections.Counter()
    spent: collections.Counter[str] = collections.Counter()

    def tell(case: Case, ended: Ended) -> None:
        ran[case.kind] += 1
        codes[f"{case.kind} {ended.code}"] += 1
        spent[case.kind] += ended.cpu_s  # type: ignore[assignment]
        if given.only is not None:
            print(case.name, case.arguments, case.content[:2000], ended, sep="\n")

    broken: list[Broken] = []
    with tempfile.TemporaryDirectory() as folder:
        for one in series(Path(folder), given.seed, kinds, given.only, tell):
            broken.append(one)
    groups: dict[str, list[Broken]] = {}
    for one in broken:
        frames = [
            line.strip()
            for line in one.ended.raised.splitlines()
            if "/src/drafthouse/" in line or "/ansible_collections/drafthouse" in line or "/scripts/" in line
        ]
        place = re.sub(r".*/(\w+\.py)\", line (\d+), in (\w+).*", r"\1:\2 \3", frames[-1]) if frames else ""
        what = re.sub(r"'[^']*'|\d+|\[.*", "…", one.what)[:110]
        groups.setdefault(f"{one.case.kind}: {what} @ {place}", []).append(one)
    for key, ones in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"{len(ones):4} {key}   e.g. {ones[0].number}: {ones[0].case.name[:160]}")
    print(f"\nseed {given.seed}")
    for kind, count in ran.items():
        own = [one for one in broken if one.case.kind == kind]
        traced = [one for one in own if one.ended.raised]
        said = ", ".join(
            f"{key.split()[1]}: {number}" for key, number in sorted(codes.items()) if key.startswith(kind + " ")
        )
        print(
            f"{kind:10} {count:5} cases  {len(traced):4} tracebacks  {len(own) - len(traced):4} other"
            f"   {spent[kind]:6.1f} s   {said}"
        )
    return 1 if broken else 0
