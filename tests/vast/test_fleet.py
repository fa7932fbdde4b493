"""Two boxes by one command, real containers behind both: reached side by side, one fails, one command ends all."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

from drafthouse.cloud.vast.ledger import FILE, rentals
from tests.fakes.vast_server import ALWAYS, Fault, Life
from tests.vast.cloud import Cloud, recap


def test_two_boxes_from_one_command_to_one_end(cloud: Cloud, figure: Callable[[str], None]) -> None:
    # The first that is asked for never becomes a box: the next offer takes its place.
    cloud.vast.market.lives = [Life(dies_after=0)]
    began = time.monotonic()
    numbers = cloud.rent_all("BOXES=2", "MAX_PRICE=0.80", "MAX_TOTAL=1.20", "REGION=same", "ALL_OR_NOTHING=1")
    figure(f"rented: two boxes by one command, one of which is replaced: {time.monotonic() - began:.0f} s")
    assert len(numbers) == 2
    assert cloud.vast.count("create") == 3
    assert "the box is 'exited'" in cloud.said
    (hour,) = re.findall(r"^costs +\$(\S+) an hour", cloud.said, re.M)
    assert 0 < float(hour) <= 1.20
    for number in numbers:
        assert f"instance {number} runs: 1 x RTX 4090" in cloud.said
        cloud.boxes[number].wait()

    listed = cloud.run("ansible-inventory", "-i", "vastai", "--list")
    hosts = json.loads(listed.output[listed.output.index("{") :])["vastai"]["hosts"]
    assert hosts == [f"vast-{number}" for number in numbers]
    ping = ("ansible", "-i", "vastai", "all", "-m", "ansible.builtin.ping")
    both = cloud.run(*ping)
    assert both.status == 0 and both.output.count("ping: pong") == 2, both.output

    # One stops answering: a run over both names it and goes on with the other, and the ledger has it until it is ended.
    first, second = numbers
    cloud.boxes[second].container.kill()
    play = cloud.play("site.yml --tags preflight")
    assert play.status != 0
    assert (recap(play.output, f"vast-{first}")["unreachable"], recap(play.output, f"vast-{first}")["failed"]) == (0, 0)
    assert recap(play.output, f"vast-{second}")["unreachable"] == 1, play.output
    assert f"it is still billing: make destroy ARGS={second}" in play.output
    assert {one.instance for one in rentals(cloud.state / FILE).values() if one.is_open} == set(numbers)

    ended = cloud.run("make", "destroy")
    assert ended.status == 0, ended.output
    assert not cloud.vast.ours
    assert cloud.vast.billing() == cloud.vast.others


def test_all_or_nothing_leaves_no_container(cloud: Cloud) -> None:
    cloud.vast.faults.append(Fault("create", skip=1, status=400, error="insufficient_credit", times=ALWAYS))
    assert cloud.rent_all("BOXES=2", "MAX_PRICE=0.80", "ALL_OR_NOTHING=1", status=2) == []
    assert "code: rental-incomplete" in cloud.said
    assert cloud.vast.billing() == cloud.vast.others
    assert not [one for one in rentals(cloud.state / FILE).values() if one.is_open]
