"""What a converged run costs while hosts are added: rented boxes in containers, 1, 2, 4 ... 32 of them at once.

One box goes the whole way with the small weights and an engine that computes nothing
(`tests/fakes/stand_in_engine.py`): engines of 32 boxes on these cores would be most of what is measured. The others are
copies of it, with its host name, as results belong to a box. So what is measured is Ansible: SSH, tasks, modules, and
the doctor's few requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafthouse.profiles.workspace import ROOT
from tests.hosts.hosts import Ended, Host, Lab
from tests.support.tales import BESIDE_OTHERS

SIZES = (1, 2, 4, 8, 16, 32)
_PROGRAM = "/opt/stand-in/llama-server"
VARIABLES: dict[str, Any] = {
    "profile": "cpu-smollm2-ngram", "overrides": BESIDE_OTHERS, "drafthouse_engine_program": _PROGRAM,
}  # fmt: skip
RUN_S = 3600
_STARTS = "/workspace/drafthouse/served/start.sh"


@dataclass(frozen=True)
class Cost:
    """A converged run: how many boxes, wall time (s), and CPU seconds of the controller, its ssh included."""

    boxes: int
    seconds: float
    cpu_seconds: float

    @property
    def each(self) -> float:
        """The controller's CPU seconds for each box."""
        return self.cpu_seconds / self.boxes


@contextmanager
def copies(lab: Lab, many: int, reports: Path) -> Iterator[list[Host]]:
    """Yield so many boxes that have everything and serve; they are removed at the end, and their image."""
    first = lab.start("rental", "grown-1")
    first.put(_PROGRAM, (ROOT / "tests/fakes/stand_in_engine.py").read_bytes(), "0755")
    inventory = lab.inventory([first], like="vastai")
    ended = lab.play("site.yml", inventory, timeout=RUN_S, report_folder=str(reports), **VARIABLES)
    assert ended.status == 0, ended.output[-3000:]
    image = f"drafthouse-test/{lab.name}"
    first.container.commit(image)
    boxes = [first]
    try:
        for number in range(2, many + 1):
            boxes.append(lab.start("rental", f"grown-{number}", wait=False, image=image, hostname="grown-1"))
        for box in boxes[1:]:
            box.wait()
            box.exec("sh", "-c", f"{_STARTS} >/dev/null 2>&1 </dev/null &")
        yield boxes
    finally:
        for box in boxes:
            box.remove()
        lab.client.images.remove(image, force=True)


def measured(
    lab: Lab, boxes: Sequence[Host], reports: Path, sizes: Sequence[int], say: Callable[[str], None] = print
) -> list[Cost]:
    """What converged runs of so many of the boxes cost, each after a run that may still change something."""
    inventory = lab.inventory(boxes, like="vastai")

    def site(many: int) -> Ended:
        words = ("--limit", ",".join(["localhost", *(box.name for box in boxes[:many])]))
        ended = lab.play("site.yml", inventory, *words, timeout=RUN_S, report_folder=str(reports), **VARIABLES)
        assert ended.status == 0, ended.output[-3000:]
        return ended

    first = site(max(sizes))
    say(f"growth: {max(sizes)} copies, first run: {first.seconds:.0f} s, {first.changed} changed")
    costs = []
    for many in sizes:
        ended = site(many)
        assert ended.changed == 0, ended.output[-3000:]
        costs.append(Cost(many, ended.seconds, ended.cpu_seconds))
        say(f"growth: {many} converged: {ended.seconds:.0f} s, {costs[-1].each:.2f} CPU s here for each")
    return costs
