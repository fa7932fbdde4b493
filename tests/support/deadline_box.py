"""A rented box's watch over its deadline, under clocks of the test's own."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ansible_collections.drafthouse.core.plugins.modules import deadline as module

from drafthouse.cloud.deadline import program
from drafthouse.core.procfs import Clocks

URL = "https://console.vast.ai"
DEADLINE = 1_800_000_000
HOUR = 3600.0
#: What gives a watch its order, on the box; to mypy the clocks of a module are Ansible's.
armed: Callable[..., bool] = module.armed


def written(folder: Path) -> Path:
    """The program, as it stands on a box."""
    path = folder / "deadline.py"
    path.write_text(program(), "utf-8")
    return path


def loaded(script: Path) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("deadline_program", script)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Box:
    """A watch in a folder, under clocks of the test's own."""

    def __init__(self, code: ModuleType, folder: Path) -> None:
        self.code, self.folder = code, folder
        self.watch = code.Watch(str(folder))
        self.now: dict[str, Any] = {"wall": DEADLINE - HOUR, "up": 5000.0, "boot": "first"}
        self.asked: list[str] = []
        self.answers: list[int] = []
        self.always: int | None = None  # what every further request is answered with
        # What the provider says: its time, and since when the box is rented.
        self.provider: Callable[[], tuple[float, float | None] | None] = lambda: None

    def passes(self, seconds: float, wall: float | None = None) -> None:
        self.now["up"] += seconds
        self.now["wall"] += seconds if wall is None else wall

    def machine_restarts(self, away: float) -> None:
        self.now = {"wall": self.now["wall"] + away, "up": 10.0, "boot": f"{self.now['boot']}-again"}
        self.watch = self.code.Watch(str(self.folder))

    def once(self) -> float:
        """Let it look once; return after how many seconds it wants to look again."""

        def ask(verb: str, body: Any) -> int:
            self.asked.append(verb)
            return self.answers.pop(0) if self.answers else self.always or 200

        wait: float = self.watch.once(dict(self.now), ask, self.provider)
        return wait

    def rented(self, life_s: float = HOUR, deadline: int = DEADLINE) -> None:
        """Give it the start script's order."""
        (self.folder / "arm.json").write_text(json.dumps({"deadline": deadline, "life_s": life_s, "url": URL}))

    def order(self, left_s: float = HOUR, deadline: int = DEADLINE) -> bool:
        return armed(self.folder, deadline, left_s, URL, self.clocks)

    @property
    def clocks(self) -> Clocks:
        return Clocks(self.now["wall"], self.now["up"], self.now["boot"])

    @property
    def left(self) -> float:
        return float(json.loads((self.folder / "clock.json").read_text())["left_s"])

    @property
    def journal(self) -> list[str]:
        return [json.loads(line)["what"] for line in (self.folder / "journal.jsonl").read_text().splitlines()]
