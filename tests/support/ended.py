"""A playbook that has ended, as the tests of playbooks look at it."""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass


@dataclass
class Ended:
    """A playbook that has ended: what it printed, and how long it took in seconds, on the clock and of the CPU."""

    status: int
    output: str
    seconds: float
    cpu_seconds: float = 0.0

    @property
    def tasks(self) -> int:
        """The number of tasks that were not skipped."""
        return self.output.count("\nTASK [")

    @property
    def changed(self) -> int:
        """The number of changed tasks over all hosts, from the recap."""
        return sum(int(number) for number in re.findall(r"changed=(\d+)", self.output))

    def lines(self, word: str) -> list[str]:
        """The lines that begin with ``word``."""
        return [line for line in self.output.splitlines() if line.startswith(f"{word}: ")]


def cpu_seconds() -> float:
    """What all processes have taken that were waited for: of a playbook here that is Ansible's side and the box's."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
