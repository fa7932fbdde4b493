"""An OpenAI-compatible server that says something else to each prompt and cheats as it is told, in its own process.

Without a cheat two of them are the arms of an honest experiment: at temperature 0 one prompt gets one answer, above it
another one each time. How fast it is, and how usage counts, is `clock_server`'s.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.fakes.clock_server import Clock, Connection, Running, State
from tests.fakes.in_process import in_process, options_and_port, serve

WORDS = (
    "river", "stone", "lamp", "under", "seven", "quiet", "bridge", "letter", "morning", "salt", "green", "wheel",
    "of", "the", "paper", "north", "candle", "early", "a", "window", "boat", "copper", "is", "field", "winter",
)  # fmt: skip


@dataclass(frozen=True)
class Cheat(Clock):
    """What the server does. A share of prompts is drawn by their text, so that it is the same in every round."""

    metrics: str = "llamacpp"
    name: str = ""  # above temperature 0 servers of other names sample other answers
    slow_share: float = 0.0  # of the prompts: ten times slower
    other_share: float = 0.0  # of the prompts: the fluent text of another model, at every temperature
    parts_at: int = 0  # from this token on every answer is another one, as rounding may do
    ignores_temperature: bool = False
    longer: float = 1.0  # how much longer the answers above temperature 0 are
    context: int = 8192
    cache_dtype: str = "auto"


class Cheating(Connection):
    """One client connection."""

    @property
    def cheat(self) -> Cheat:
        """What the server does."""
        clock = self.state.clock
        assert isinstance(clock, Cheat)
        return clock

    def answer(self, path: str, headers: dict[str, str], body: bytes, now: float) -> None:
        settings: dict[str, dict[str, Any]] = {
            "/props": {"default_generation_settings": {"n_ctx": self.cheat.context}},
            "/server_info": {"context_length": self.cheat.context, "kv_cache_dtype": self.cheat.cache_dtype},
        }
        if path in settings:
            return self.send(200, json.dumps(settings[path]), "application/json")
        return super().answer(path, headers, body, now)

    def draw(self, request: dict[str, Any], *what: object) -> Random:
        """A source of chance that is the same for the same prompt."""
        return Random(f"{request['messages'][-1]['content']} {what}")

    def length(self, request: dict[str, Any]) -> int:
        tokens = self.cheat.tokens * self.draw(request, "length").uniform(0.7, 1.0)
        return round(tokens * self.cheat.longer if request["temperature"] else tokens)

    def slowness(self, request: dict[str, Any]) -> float:
        return 10.0 if self.draw(request, "ten times slower").random() < self.cheat.slow_share else 1.0

    def text(self, request: dict[str, Any], first: int, count: int) -> str:
        cheat = self.cheat
        salt: list[object] = []
        if self.draw(request, "other").random() < cheat.other_share:
            salt.append("another model")
        if request["temperature"] and not cheat.ignores_temperature:
            salt += [cheat.name, request.get("seed"), len(self.state.record)]
        words = []
        for number in range(first, first + count):
            parted = "parted" if cheat.parts_at and number >= cheat.parts_at else ""
            words.append(self.draw(request, number, parted, *salt).choice(WORDS))
        return "".join(f" {word}" for word in words)


@contextmanager
def cheating_server(**options: Any) -> Iterator[Running]:
    """Start a server with these options of `Cheat` on a free port of loopback, and stop it at the end."""
    with in_process("tests.fakes.cheating_server", options) as (base_url, pid):
        yield Running(base_url, pid)


def main() -> None:
    """Read the options, and serve."""
    cheat, port = options_and_port(Cheat, __doc__)
    state = State(cheat)
    asyncio.run(serve(lambda: Cheating(state), port))


if __name__ == "__main__":
    main()
