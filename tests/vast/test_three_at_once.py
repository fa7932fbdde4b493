"""Three rented boxes in one run, one of which dies under it; another ends itself at its deadline."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from tests.hosts.hosts import Host
from tests.support.waiting import until
from tests.vast.cloud import HOME, PATIENCE_S, PROFILE, WATCH, Cloud, recap

# Where a box is half-way: its arms are put in place, after its engine and weights; or it measures, and Ansible follows.
IN_PLACE = ("test", "-e", f"{HOME}/serve/{PROFILE}/speculative/serve.sh")
MEASURING = ("pgrep", "-f", r"AnsiballZ_benchmark\.py$")
SOON_S = 25
Figure = Callable[[str], None]


def is_so(box: Host, words: Sequence[str]) -> bool:
    return box.exec(*words, check=False).returncode == 0


@pytest.mark.parametrize(
    "when", [IN_PLACE, pytest.param(MEASURING, marks=pytest.mark.soak)], ids=["placed", "measures"]
)
def test_three_at_once_and_one_dies(cloud: Cloud, when: tuple[str, ...], figure: Figure) -> None:
    numbers = cloud.rent_all("BOXES=3", "MAX_TOTAL=2.40")
    third = numbers[-1]

    def die() -> None:
        until(lambda: is_so(cloud.boxes[third], when), "third box that is half-way", PATIENCE_S)
        cloud.dies(third)

    dying = threading.Thread(target=die, daemon=True)
    dying.start()
    site = cloud.play("site.yml", before=("scripts/drafthouse", "rented", "--destroy", "on-success", "--"))
    dying.join(120)
    figure(f"rented: three at once, one of which dies half-way: site.yml {site.seconds:.0f} s")
    assert site.status != 0
    for number in numbers[:2]:
        counts = recap(site.output, f"vast-{number}")
        assert (counts["failed"], counts["unreachable"]) == (0, 0), site.output[-4000:]
    counts = recap(site.output, f"vast-{third}")
    assert counts["failed"] + counts["unreachable"] == 1, site.output[-4000:]
    hosts = sorted(json.loads(path.read_text())["host"] for path in cloud.reports.rglob("report.json"))
    assert hosts == [f"vast-{number}" for number in numbers[:2]]
    # What became of the third, and what goes on costing money.
    (line,) = [line for line in site.output.splitlines() if line.startswith(f"vast-{third}: lost in '")]
    assert "vast.ai says 'exited'" in line
    assert f"make destroy ARGS={third}" in line
    assert "DESTROY=on-success (the run did not succeed): still billing" in site.output
    for number in numbers:
        assert f"  instance {number}, $" in site.output

    # A box like the one that is gone: the same key and the same scripts.
    first, second = (cloud.boxes[number] for number in numbers[:2])
    for file in ("secrets/api_key", f"serve/{PROFILE}/speculative/serve.sh", f"serve/{PROFILE}/baseline/serve.sh"):
        assert first.exec("cat", f"{HOME}/{file}").stdout == second.exec("cat", f"{HOME}/{file}").stdout
    assert first.exec("cat", f"{HOME}/secrets/api_key").stdout.strip() == cloud.api_key

    # One ends by itself at its deadline, with the key that the platform gave it; maybe under the playbook.
    soon = int(time.time()) + SOON_S
    play = cloud.play("site.yml --tags host", "--limit", f"vast-{numbers[0]}", drafthouse_deadline=soon)
    assert "this box destroys itself in" in play.output, play.output[-3000:]
    late = until(lambda: numbers[0] not in cloud.vast.instances, "end at the deadline", 60)
    assert time.time() >= soon - 1
    used = {asked.key for asked in cloud.vast.asked if asked.route == "destroy"}
    assert used and cloud.vast.key not in used
    figure(f"rented: a box at its deadline, ended by itself ({WATCH}): waited {late:.0f} s")

    assert cloud.run("make", "destroy").status == 0
    assert not cloud.vast.ours
    assert cloud.vast.billing() == cloud.vast.others
