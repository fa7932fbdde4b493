"""Every way to fool the verdict that once worked, by a real server in the real loop: each gets the word it deserves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from drafthouse.analysis.words import DOES_NOT_PAY, INVALID, PAYS
from tests.fakes.cheating_server import cheating_server
from tests.fakes.clock_server import Running
from tests.truth.live import Arms, decided, profile_for

#: llama.cpp gives no scores: only texts, lengths, usage and seconds can tell. All of its GPU profiles ask the same.
PROFILE = "rtx3090-qwen38-llamacpp-mtp"
TRIES = 3
#: Each prompt at one temperature. A slow prompt's answer takes seconds, and four are asked at once.
SETTINGS: Any = {"suites": ["mixed"], "once": [], "temperatures": [0.0, 0.6], "concurrency": 4}
CLOCK: Any = {"ttft_ms": 10, "interval_ms": 10, "tokens": 48, "tokens_per_chunk": 1}
#: Twice as fast: three tokens in the time of one and a half.
DRAFTING: Any = {**CLOCK, "interval_ms": 15, "tokens_per_chunk": 3, "drafted": 3, "name": "speculative"}
#: Not faster by the clock: three tokens in the time of three.
IDLE: Any = {**DRAFTING, "interval_ms": 30}


class Cheat(NamedTuple):
    """What the speculative arm does, the word that it gets, a part of the sentence, and the rounds it may take."""

    options: dict[str, Any]
    word: str
    said: str
    most_rounds: int = 2


CHEATS = {
    "nothing": Cheat({}, PAYS, "faster per token"),
    "three of 16 prompts ten times slower": Cheat(
        {"slow_share": 3 / 16}, DOES_NOT_PAY, "(the slowest: ", most_rounds=6
    ),
    "another text from token 0 on in 14 of 16": Cheat({"other_share": 14 / 16}, DOES_NOT_PAY, "wrong output: "),
    "usage half again as high, texts that part": Cheat(
        {**IDLE, "usage_factor": 1.5, "parts_at": 17}, INVALID, "usage and the text disagree"
    ),
    "hidden tokens that usage counts": Cheat(
        {**IDLE, "hidden_tokens": 20, "ttft_ms": 310, "parts_at": 17}, INVALID, "usage and the text disagree"
    ),
    "ignores the temperature": Cheat({"ignores_temperature": True}, DOES_NOT_PAY, "the temperature is ignored"),
    "answers twice as long": Cheat({"longer": 2.0}, DOES_NOT_PAY, "longer than the baseline's"),
    "another model's fluent text": Cheat({"other_share": 1.0}, DOES_NOT_PAY, "wrong output: "),
    "another context": Cheat({"context": 1024}, INVALID, "the servers' own answer of context"),
    "a cache of another type": Cheat({"cache_dtype": "fp8_e5m2"}, INVALID, "the servers' own answer of cache_dtype"),
}


@pytest.fixture(scope="module")
def baseline() -> Iterator[Running]:
    with cheating_server(**CLOCK) as server:
        yield server


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_gets_the_word_that_it_deserves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, baseline: Running, name: str
) -> None:
    cheat = CHEATS[name]
    with cheating_server(**{**DRAFTING, **cheat.options}) as speculative:
        arms = Arms({"baseline": baseline, "speculative": speculative})
        for number in range(TRIES):
            folder = tmp_path / str(number)
            resolved = profile_for(PROFILE, folder, arms, **SETTINGS, most_rounds=cheat.most_rounds)
            note = decided(resolved, arms, monkeypatch)
            # A machine that stands still for a whole answer reads it in one piece.
            if "without a TPOT" not in note["sentence"]:
                break
    assert (note["word"], cheat.said in note["sentence"]) == (cheat.word, True), note["sentence"]
