"""site.yml on many hosts at once: what it costs this machine, and that a converged run changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.growth import SIZES, copies, measured
from tests.hosts.hosts import Ended, Host, Lab
from tests.support.tales import BESIDE_OTHERS

HOSTS = 8
# Measured is Ansible, not the engine.
OVERRIDES: dict[str, Any] = {"runtimes": ["docker"], **BESIDE_OTHERS}
BARE_S = 3600  # eight engines on whatever this machine has


@pytest.fixture
def boxes(lab: Lab) -> Iterator[list[Host]]:
    hosts = [lab.start("workstation", wait=False) for _ in range(HOSTS)]
    for host in hosts:
        host.wait()
    yield hosts
    for host in hosts:
        host.remove()


@pytest.fixture
def inventory(lab: Lab, boxes: list[Host], image: str) -> Path:
    variables = {
        "profile": "cpu-smollm2-ngram",
        "overrides": OVERRIDES,
        "drafthouse_engine_image": image,
        "container_engine_source": "distribution",
        "container_engine_settings": {"insecure-registries": [image.partition("/")[0]]},
    }
    return lab.inventory(boxes, group_vars=variables, like="workstation")


@pytest.mark.soak
def test_eight_hosts_at_once(
    lab: Lab, boxes: list[Host], inventory: Path, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    def site(*words: str) -> Ended:
        return lab.play("site.yml", inventory, *words, timeout=BARE_S, report_folder=str(tmp_path))

    def told(what: str, ended: Ended, hosts: int) -> None:
        figure(
            f"{what}: {ended.seconds:.0f} s, {ended.tasks} tasks, "
            f"{ended.cpu_seconds / hosts:.1f} CPU s of this machine's for each host"
        )

    bare = site()
    told(f"{HOSTS} bare hosts", bare, HOSTS)
    assert bare.status == 0, bare.output[-3000:]
    assert len(list(tmp_path.rglob("report.json"))) == HOSTS
    again = site()
    told(f"{HOSTS} converged hosts", again, HOSTS)
    assert (again.status, again.changed) == (0, 0)
    alone = site("--limit", boxes[0].name)
    told("one of them", alone, 1)
    assert (alone.status, alone.changed) == (0, 0)


@pytest.mark.soak
def test_one_to_thirty_two_converged_boxes(lab: Lab, tmp_path: Path, figure: Callable[[str], None]) -> None:
    """A box costs the controller no more among 32 than among 4, and a part of what it costs alone."""
    with copies(lab, max(SIZES), tmp_path) as boxes:
        costs = measured(lab, boxes, tmp_path, SIZES, figure)
    each = {cost.boxes: cost.each for cost in costs}
    assert each[32] <= each[1] / 2
    assert each[32] <= each[4] * 1.25
    assert len(list(tmp_path.rglob("report.json"))) == max(SIZES)
