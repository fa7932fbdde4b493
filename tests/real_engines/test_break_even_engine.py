"""What a drafted token costs by the real llama.cpp's own ladder: the same, whatever the text gets accepted.

What a text gets accepted is set by llama.cpp itself (``--spec-synth-rates``): the drafts are looked up and checked as
ever, so that they cost what they cost; only how many of them hold is thrown with dice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drafthouse.analysis.break_even_results import points_of_ladder
from tests.support.break_even import compared, crossed, measured
from tests.support.client_load import two_cores
from tests.support.engines import engine_home, llama_server, packaged_weights

pytestmark = [pytest.mark.alone, pytest.mark.soak]

LEVELS = (1, 2, 4, 8)
K, PROMPTS, TOKENS = 3, 16, 64
#: Which share of the drafted tokens holds.
FAIR, GOOD = 0.85, 1.0


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Run what is started inside on one core, ourselves included."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def wording(number: int) -> str:
    """A short prompt in which two words soon stood before. Prompts differ at their end: what begins alike is cached."""
    return f"one two one two one two {number}"


def ladder_of(rate: float, cores: tuple[int, int]) -> Any:
    weights, slots = str(packaged_weights("smollm2-135m-q4")), str(LEVELS[-1])
    common = ("-m", weights, "-c", "8192", "-np", slots, "-t", "1", "--metrics")
    lookup = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "2", "--spec-ngram-simple-size-m", str(K))
    synthetic = ("--spec-synth-rates", ",".join([str(rate)] * K))
    home = engine_home("llamacpp")
    asked: Any = {"prompts": PROMPTS, "tokens": TOKENS, "wording": wording}
    with contextlib.ExitStack() as running:
        with on_core(cores[0]):
            servers = {
                "baseline": running.enter_context(llama_server(home, *common)),
                "speculative": running.enter_context(llama_server(home, *common, *lookup, *synthetic)),
            }
        with on_core(cores[1]):
            # The arms take turns at each level: what the machine does meanwhile meets both.
            steps = [
                asyncio.run(measured(arm, server.base, level, number, **asked))
                for number in (1, 2)
                for level in LEVELS
                for arm, server in servers.items()
            ]
    return crossed(LEVELS, steps)


@pytest.mark.skipif(two_cores() is None, reason="needs two cores: one for the engine, one for the client")
def test_what_one_text_tells_of_another_on_a_real_engine(figure: Callable[[str], None]) -> None:
    cores = two_cores()
    assert cores is not None
    fair, good = (ladder_of(rate, cores) for rate in (FAIR, GOOD))
    pairs = list(zip(points_of_ladder(fair, K), points_of_ladder(good, K), strict=True))
    for one, other in pairs:
        figure(
            f"llama.cpp, {one.level:g} at once: a drafted token costs {one.cost:.2f} target steps "
            f"({one.low:.2f}-{one.high:.2f}) by a fair text, "
            f"{other.cost:.2f} ({other.low:.2f}-{other.high:.2f}) by a good one"
        )
    _, crossing = compared(fair, good, K, "a good text by a fair one's ladder")
    figure(f"llama.cpp, {crossing}")
    # What is taken from one text to another. A lookup drafts now and then, and a CPU's kernels like some sizes of a
    # batch better: one load of the four may differ. Where the texts cross is shown and not asked: the cost rises so
    # slowly with the load here that a few per cent move it by more than a step.
    assert sum(one.low <= other.high and other.low <= one.high for one, other in pairs) >= len(LEVELS) - 1
