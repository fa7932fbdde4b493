"""The time that a lane has. No step takes more of it than its share: one that hangs costs the others little."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drafthouse.core.errors import one_problem

#: How long a program has to stop what it started, after the Ctrl-C that ends its time.
_STOPPING_S = 45.0
_KILLED_S = 10.0


@dataclass(frozen=True)
class Clock:
    """Counts down from ``whole_s`` seconds; None: no end."""

    whole_s: float | None = None
    began_s: float = field(default_factory=time.monotonic)

    def left_s(self) -> float:
        """The seconds left, never below 0."""
        if self.whole_s is None:
            return float("inf")
        return max(0.0, self.began_s + self.whole_s - time.monotonic())

    def run(
        self,
        words: Sequence[str],
        most_s: float,
        *,
        cwd: Path | None = None,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Run a program for ``most_s`` seconds at most; return its exit status. ``log``: where its output is added.

        At the end of its time it gets Ctrl-C, with everything that it started, and is killed if it goes on. Raises
        DrafthouseError then.
        """
        seconds = min(most_s, self.left_s())
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(log.open("ab")) if log else None
            # A group of its own: what it started ends with it, and Ctrl-C reaches it through us alone.
            child = subprocess.Popen(words, cwd=cwd, env=env, stdout=out, stderr=out, start_new_session=True)
            try:
                return child.wait(seconds)
            except subprocess.TimeoutExpired:
                _stop(child)
            except BaseException:
                _stop(child)
                raise
        name = " ".join(Path(word).name for word in words[:3])
        found, needed = f"{name}: not ended after {seconds:.0f} s", "a step that ends in its time"
        raise one_problem("program-failed", found, needed, "see what it wrote last, or give more --minutes")


def _stop(child: subprocess.Popen[bytes]) -> None:
    for number, wait_s in ((signal.SIGINT, _STOPPING_S), (signal.SIGKILL, _KILLED_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(wait_s)
            return
