"""The demo's two minutes are not bought with the truth: its own settings, judged by the real loop, on known servers.

Two servers of known clock stand for the arms of the demo's profile. Each answer has noise of its own and each start a
level of its own; what the profile asks is sent by the real client, kept, put together, judged and decided as on a box.
"""

from __future__ import annotations

import math
import multiprocessing
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.words import PAYS
from drafthouse.experiment.more_rounds import RoundDecision
from tests.fakes.clock_server import clock_server
from tests.truth.live import Arms, decided, profile_for

pytestmark = [pytest.mark.soak, pytest.mark.alone]

PROFILE = "cpu-smollm2-ngram"
DEMOS = 20
#: Each in a process of its own, with servers of its own. All of them mostly wait: one takes some 4 % of a core.
SIDE_BY_SIDE = 4
#: The baseline's time per token: a little less than the demo's engine takes on two cores, and enough that a server or
#: client that wakes late for a moment is no part of the law.
TPOT_MS = 10.0
#: Standard deviations of logarithms: of each answer, and of each start.
NOISE_SD, START_SD = 0.05, 0.01
#: An answer of 64 tokens is then 21 whole intervals behind its first chunk: the gain is exact.
TOKENS_A_CHUNK = 3

Figure = Callable[[str], None]


class Servers(Arms):
    """The two arms; a fresh start is a new level and new noise."""

    def start(self, gain: float, seed: int) -> None:
        chance = random.Random(seed)
        for arm, server in self.running.items():
            tokens, faster = (TOKENS_A_CHUNK, gain) if arm == "speculative" else (1, 1.0)
            level = math.exp(chance.gauss(0.0, START_SD))
            interval_ms = TPOT_MS * tokens / faster * level
            server.change(interval_ms=interval_ms, noise_sd=NOISE_SD, seed=chance.randrange(1 << 30))


def begin_together(others: Barrier) -> None:
    """Wait until every process has imported this file."""
    others.wait()


def told(folder: Path, gain: float, number: int) -> RoundDecision:
    """Run one demo against servers of its own; return what was decided last."""
    clock: dict[str, Any] = {"ttft_ms": 20, "interval_ms": TPOT_MS, "tokens_per_chunk": 1, "metrics": "llamacpp"}
    drafting = {**clock, "tokens_per_chunk": TOKENS_A_CHUNK, "drafted": 8}
    with (
        clock_server(**clock) as baseline,
        clock_server(**drafting) as speculative,
        pytest.MonkeyPatch.context() as patch,
    ):
        servers = Servers({"baseline": baseline, "speculative": speculative})
        resolved = profile_for(PROFILE, folder, servers)
        return decided(resolved, servers, patch, lambda step: servers.start(gain, 1000 * number + step))


@pytest.mark.parametrize(("gain", "least", "most"), [(1.0, 0, 0), (1.5, DEMOS - 1, DEMOS)])
def test_twenty_demos_say_what_is_true(tmp_path: Path, figure: Figure, gain: float, least: int, most: int) -> None:
    words: Counter[str] = Counter()
    rounds = 0
    spawn = multiprocessing.get_context("spawn")
    # What a process imports at its start is no part of the law either: none measures while another still does.
    with ProcessPoolExecutor(SIDE_BY_SIDE, spawn, begin_together, (spawn.Barrier(SIDE_BY_SIDE),)) as pool:
        numbers = range(DEMOS)
        folders = [tmp_path / str(number) for number in numbers]
        for number, last in enumerate(pool.map(told, folders, [gain] * DEMOS, numbers)):
            print(f"demo {number}, {last['done']} rounds: {last['sentence']}", flush=True)
            words[last["word"]] += 1
            rounds += last["done"]
    said = ", ".join(f"{word} {times}" for word, times in words.most_common())
    figure(f"the demo's settings, true gain {gain:.2f}: {said} of {DEMOS}, {rounds / DEMOS:.1f} rounds on average")
    assert not words["invalid"]
    assert least <= words[PAYS] <= most
