"""Two boxes with a real engine behind one front: what is split, what a kill costs, a drain, and what is open."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.conftest import BIN
from tests.fleet.lab import FRONT_PORT, GATEWAY_PORT, Lab, Load, Node, ended, fleet, until
from tests.support.programs import needs

pytestmark = needs("curl")

_ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "llamacpp": ("cpu-smollm2-ngram", {"target": "smollm2-135m-q4", "serve": {"parallel": 4}}),
    "vllm": ("cpu-smollm2-vllm-ngram", {}),
}
# Every port of a host, without waiting for any of them.
_SCAN = """\
import errno, json, socket, sys
found = []
for port in range(1, 65536):
    with socket.socket() as one:
        one.settimeout(2)
        if one.connect_ex((sys.argv[1], port)) == 0:
            found.append(port)
print(json.dumps(found))
"""


@pytest.fixture(scope="module", params=["llamacpp", pytest.param("vllm", marks=pytest.mark.soak)])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with fleet(*_ENGINES[request.param]) as running:
        yield running


@pytest.fixture(autouse=True)
def _both_take_requests(lab: Lab) -> None:
    until(lambda: all(lab.ready(box) == 200 for box in lab.boxes))
    time.sleep(6)  # what the front remembers of a failure


def share(lab: Lab, number: int) -> list[float]:
    """Ask so many things at once; return the tokens that each box made for them."""
    before = [lab.made(box) for box in lab.boxes]
    threads, streams = lab.ask_many(number, tokens=16)
    ended(threads)
    assert all(one.whole for one in streams), streams
    return [lab.made(box) - one for box, one in zip(lab.boxes, before, strict=True)]


def test_requests_are_split_and_the_key_is_one(lab: Lab) -> None:
    made = share(lab, 8)
    # Half of them each; the probes ask for a token now and then.
    assert min(made) > 0.3 * sum(made), made
    keys = {(lab.home(box) / "secrets" / "api_key").read_text() for box in lab.boxes}
    assert len(keys) == 1
    assert lab.key not in lab.played[0].output
    assert lab.ask(key="another").status == 401
    assert lab.key not in "".join(map(lab.log, lab.boxes))


def test_an_engine_that_is_killed_costs_its_own_streams_and_comes_back(lab: Lab, figure: Callable[[str], None]) -> None:
    victim = lab.boxes[1]
    threads, streams = lab.ask_many(8, tokens=200)
    until(lambda: all(one.begun or one.error for one in streams))
    pid = lab.engine_pid(victim)
    os.kill(pid, signal.SIGKILL)
    later, more = lab.ask_many(6, tokens=16)
    ended([*threads, *later])
    assert all(one.whole for one in more), more
    lost = [one for one in streams if not one.whole]
    assert 1 <= len(lost) <= 4, streams
    assert all(one.begun for one in lost)
    figure(f"fleet: {len(lost)} of 8 streams were on the engine that was killed; 6 of 6 new requests succeeded")
    until(lambda: lab.engine_pid(victim) not in (0, pid) and lab.ready(victim) == 200)
    until(lambda: share(lab, 8)[1] > 16)


def test_a_drain_under_load_loses_no_request(lab: Lab) -> None:
    drained = lab.boxes[1]
    with Load(lab, threads=4, tokens=32) as load:
        until(lambda: len(load.streams) > 4)
        lab.command("drain", "box2")
        assert (lab.ready(drained), lab.ready(lab.boxes[0])) == (503, 200)
        before, seen = lab.made(drained), len(load.streams)
        until(lambda: len(load.streams) > seen + 8)
        # Its prober still asks for a token at a time.
        assert lab.made(drained) - before < 32
        status = lab.command("status")
        assert "1 of 2 replicas ready" in status, status
        assert "drained by hand" in status
        lab.command("undrain", "box2")
        until(lambda: lab.made(drained) - before > 64)
    assert all(one.whole for one in load.streams), [one for one in load.streams if not one.whole]


def test_a_second_run_changes_nothing(lab: Lab) -> None:
    again = lab.play("site.yml", "--tags", "fleet", "--diff")
    assert (again.status, again.changed) == (0, 0), again.output[-4000:]


def open_ports(seen_from: Node, host: Node) -> list[int]:
    found: list[int] = json.loads(seen_from.run(str(BIN / "python"), "-c", _SCAN, host.address))
    return found


def test_from_a_third_host_nothing_is_open_but_the_gateways(lab: Lab) -> None:
    assert open_ports(lab.stranger, lab.boxes[0]) == [GATEWAY_PORT, FRONT_PORT]
    assert open_ports(lab.stranger, lab.boxes[1]) == [GATEWAY_PORT]


def test_stop_ends_the_front_too(lab: Lab) -> None:
    """The last test of the file: nothing serves behind it."""
    done = lab.play("playbooks/stop.yml")
    assert done.status == 0, done.output[-4000:]
    assert open_ports(lab.stranger, lab.boxes[0]) == []
