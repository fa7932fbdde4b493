"""A box's home with the real supervisord and the real llama.cpp in it: what a step of an experiment is measured on."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drafthouse.experiment.loop import measure_one_step
from drafthouse.host.port_holder import foreign_listener
from drafthouse.profiles.experiment_plan import steps_of_round
from drafthouse.serving.readiness import ready_file, wait_until_ready
from drafthouse.serving.runtimes import Runtime, runtime_of
from drafthouse.serving.supervisor import Program, Supervisor, configuration
from tests.support.builders import make_resolved
from tests.support.engines import PROGRAMS, engine_home, packaged_weights
from tests.support.ports import free_port
from tests.unit.bench.test_step import lay_suites, suite

LOOKUP = ("--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "3")


@dataclass
class LlamaBox:
    """A home; ``before`` are shell lines that its serve scripts run first."""

    home: Path
    port: int
    kinds: Mapping[str, int]
    before: str = ""
    turns: list[dict[str, int]] = field(default_factory=list)

    @property
    def supervisor(self) -> Supervisor:
        return Supervisor(self.home / "supervisor", Path(sys.executable).parent / "supervisord")

    @property
    def runtime(self) -> Runtime:
        return runtime_of("process", self.home)

    def resolved(self) -> Any:
        """A resolved profile of two arms that take turns on one port."""
        resolved = make_resolved(kinds=list(self.kinds), rounds=1, suites=["s"])
        turns = self.turns or [{"baseline": self.port}, {"speculative": self.port}]
        # Every prompt in every round.
        asked = {"anchors": sum(self.kinds.values()), "fresh": 0}
        resolved["experiment"] |= {"once": [], "turns": turns, **asked}
        resolved["experiment"]["steps"] = steps_of_round(resolved["experiment"], 1)
        resolved["engine"] |= {"health": "/health", "ready_timeout_s": 300}
        resolved["target"]["served_name"] = "smol"
        resolved["site"] |= {"home": str(self.home), "host": "127.0.0.1", "port": self.port, "runtime": "process"}
        return {
            **resolved,
            "result_dir": str(self.home / "results"),
            "key_file": str(self.home / "key"),
            "suites_file": lay_suites(self.home, s=suite("s", **self.kinds)),
        }

    def serve(self, arms: Mapping[str, int]) -> None:
        """Have exactly these arms run, anew, as the role `serve` does it."""
        engine, model = engine_home("llamacpp"), packaged_weights("smollm2-135m-q4")
        programs = []
        for arm, port in arms.items():
            words = [str(engine / "bin" / "python"), str(PROGRAMS / "llama-server"), "-m", str(model), "-c", "2048"]
            words += ["-np", "1", "-t", "1", "-a", "smol", "--metrics", "--api-key-file", str(self.home / "key")]
            words += LOOKUP if arm == "speculative" else ()
            script = self.home / "serve" / arm / "serve.sh"
            script.parent.mkdir(parents=True, exist_ok=True)
            script.write_text(f'#!/bin/bash\n{self.before}\nexec {shlex.join(words)} "$@"\n')
            script.chmod(0o755)
            programs.append(Program(arm, [str(script), "--port", str(port)], f"{self.home}/logs/{arm}.log"))
        self.supervisor.converge(configuration(self.supervisor.home, programs), list(arms), fresh=True)

    def wait(self, arms: Mapping[str, int]) -> None:
        """Wait for them, as the module `engine_ready` does it. Raises DrafthouseError."""
        for arm, port in arms.items():
            wait_until_ready(
                self.runtime, name=arm, base_url=f"http://127.0.0.1:{port}", health="/health", model="smol",
                key="the-key", timeout_s=300, progress=lambda event: None, keep=ready_file(self.home, arm),
                stranger=lambda port=port: foreign_listener(port, "127.0.0.1", self.home),  # type: ignore[misc]
            )  # fmt: skip

    def measure(self, number: int = 0, timeout_s: float = 300.0) -> Any:
        """Serve and measure a step, and return what was kept. Raises DrafthouseError."""
        step = self.resolved()["experiment"]["steps"][number]
        self.serve(step["arms"])
        self.wait(step["arms"])
        return self.measured(number, timeout_s)

    def measured(
        self,
        number: int = 0,
        timeout_s: float = 300.0,
        on_progress: Callable[[Any], object] = lambda event: None,
    ) -> Any:
        """Measure a step on what is served, and return what was kept. Raises DrafthouseError."""

        def tell(event: Any, important: bool = False) -> None:
            on_progress(event)

        resolved = self.resolved()
        path = measure_one_step(resolved, resolved["experiment"]["steps"][number], timeout_s, tell)
        kept: Any = json.loads(path.read_text("utf-8"))
        return kept


@contextmanager
def llama_box(before: str = "", home: Path | None = None, **kinds: int) -> Iterator[LlamaBox]:
    """A home in a folder with a short name: a socket's path may have 107 letters at most."""
    with tempfile.TemporaryDirectory(prefix="dh-") as folder:
        box = LlamaBox(home or Path(folder), free_port(), kinds or {"chat": 6}, before)
        (box.home / "logs").mkdir(parents=True)
        (box.home / "key").write_text("the-key\n")
        try:
            yield box
        finally:
            box.supervisor.shut_down()
