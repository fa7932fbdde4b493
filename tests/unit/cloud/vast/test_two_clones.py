"""Two clones rent with one account at once, and are killed at any moment: each names and ends its own boxes alone.

`pytest tests/unit/cloud/vast/test_two_clones.py` runs two rounds; with `-m soak` twenty, whose seed is printed.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cloud.vast.ledger import LABEL, read
from tests.fakes.vast_server import Life, Running, vast_server
from tests.support.vast_bench import Bench, made, others, start, start_rent

pytestmark = pytest.mark.processes
Process = subprocess.Popen[str]
DEADLINE_S = 120.0


def bills_of(bench: Bench) -> set[int]:
    """The numbers of the boxes that bill by this clone's ledger: what their labels say, and not what it remembers."""
    known = read(bench.ledger).rentals
    labels = {number: LABEL.fullmatch(str(one["label"])) for number, one in bench.vast.instances.items()}
    mine = {number for number, found in labels.items() if found and found.group(1) in known}
    return mine & set(bench.vast.billing())


def killed_somewhere(rng: random.Random, vast: Running, running: Sequence[Process], share: float) -> int:
    """Kill some of what runs, each at a request of anybody's; wait for all, and return how many were killed."""
    doomed = {each: len(vast.asked) + rng.randrange(1, 30) for each in running if rng.random() < share}
    until = time.monotonic() + DEADLINE_S
    while any(each.poll() is None for each in running):
        for each, at in doomed.items():
            if each.poll() is None and len(vast.asked) >= at:
                each.send_signal(signal.SIGKILL)
        assert time.monotonic() < until
        time.sleep(0.005)
    return sum(each.returncode == -signal.SIGKILL for each in running)


def a_round(seed: int, folder: Path, resolved: Any) -> tuple[int, int]:
    """Rent, list and end with both clones; return how many boxes there were, and how many kills."""
    rng = random.Random(seed)
    lives = [Life(**rng.choice(({}, {}, {"stuck": True}, {"dies_after": 0}, {"dies_after": 2}))) for _ in range(8)]
    with vast_server(lives=lives) as vast:
        clones = []
        for name in ("one", "two"):
            (folder / name).mkdir(parents=True)
            clones.append(made(vast, folder / name, resolved))
        words = [("--boxes", str(rng.choice((1, 2))), "--wait-min", "0.03") for _ in clones]
        renting = [start_rent(bench, *given) for bench, given in zip(clones, words, strict=True)]
        kills = killed_somewhere(rng, vast, renting, share=0.8)
        boxes = len(set(vast.billing()) - set(vast.others))
        assert boxes == sum(len(bills_of(bench)) for bench in clones), "no box without a clone that knows it"
        for bench in clones:
            others_bill = set(vast.billing()) - bills_of(bench)
            mine = bills_of(bench)
            listing = start(bench, "destroy", "--list", "--settle-s", "0.3")
            said = listing.communicate(timeout=DEADLINE_S)[0]
            assert all(str(number) in said for number in mine), said
            kills += killed_somewhere(rng, vast, [start(bench, "destroy", "--settle-s", "0.3")], share=0.5)
            last = start(bench, "destroy", "--settle-s", "0.3")
            said = last.communicate(timeout=DEADLINE_S)[0]
            assert last.returncode == 0, said
            assert not bills_of(bench)
            assert set(vast.billing()) == others_bill, "nothing of anybody else's is ended"
        assert vast.billing() == vast.others
        assert others(vast) == clones[0].before
    return boxes, kills


def rounds(seeds: Sequence[int], folder: Path, resolved: Any, figure: Callable[[str], None]) -> None:
    done = [a_round(seed, folder / str(seed), resolved) for seed in seeds]
    boxes, kills = (sum(column) for column in zip(*done, strict=True))
    assert kills
    figure(
        f"two clones, one account: {len(done)} rounds, {boxes} boxes left by rent, {kills} kills, all named and ended"
    )


def test_two_clones_and_kills(tmp_path: Path, resolved: Any, figure: Callable[[str], None]) -> None:
    rounds((1, 2), tmp_path, resolved, figure)


@pytest.mark.soak
def test_two_clones_and_kills_for_long(tmp_path: Path, resolved: Any, figure: Callable[[str], None]) -> None:
    first = random.SystemRandom().randrange(10**6)
    print(f"seeds {first} to {first + 19}")
    rounds(range(first, first + 20), tmp_path, resolved, figure)
