"""Two boxes with a real engine behind one front: what is split, what a kill costs, a drain, and what is open."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.e2e.conftest import BIN
from tests.fleet.lab import FRONT_PORT, GATEWAY_PORT, MODEL, PORT, Lab, Load, Node, ended, fleet, until
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
# The port above an engine's, on the address that the other hosts reach, leads to it while this runs.
_RELAY = """\
import asyncio, sys
async def passed(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
async def accepted(reader, writer):
    there = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(passed(reader, there[1]), passed(there[0], writer))
async def main():
    server = await asyncio.start_server(accepted, sys.argv[1], int(sys.argv[2]) + 1)
    await server.serve_forever()
asyncio.run(main())
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
    # vLLM's engine core would stay, with its memory, when its first process is killed.
    until(lambda: not of_group(pid), 30)
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


def of_group(group: int) -> list[str]:
    """Return the processes of a group that live."""
    lines = subprocess.run(["ps", "-eo", "pgid,stat,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in lines.splitlines() if line.split()[0] == str(group) and line.split()[1][0] != "Z"]


@contextmanager
def counters(lab: Lab) -> Iterator[list[str]]:
    """Yield where each engine's counters are read from the front's host: they are on the loopback of their own."""
    relays, words = [], []
    for at, box in enumerate(lab.boxes, 1):
        line = ["ip", "netns", "exec", box.name, str(BIN / "python"), "-c", _RELAY, box.address, str(PORT)]
        relays.append(subprocess.Popen(line))
        words += ["--metrics", f"box{at}=http://{box.address}:{PORT + 1}/metrics"]
    try:
        yield words
    finally:
        for relay in relays:
            relay.kill()
            relay.wait(60)


@pytest.mark.soak
def test_a_load_sweep_through_the_front_measures_both_arms(
    lab: Lab, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    key, out = lab.home(lab.boxes[0]) / "secrets" / "api_key", tmp_path / "fleet.json"
    bench = [
        str(BIN / "python"), str(ROOT / "scripts" / "drafthouse"), "bench",
        "--base-url", f"https://{lab.boxes[0].address}:{FRONT_PORT}", "--model", MODEL,
        "--ca", str(lab.folder / "state" / "gateway" / "fleet-box1.pem"),
        "--api-key-file", str(key), "--metrics-key-file", str(key), "--kind", "copy-edit", "--num-prompts", "8",
        "--output-tokens", "48", "--ladder", "1,4,8", "--time", "12", "--result", str(out),
    ]  # fmt: skip
    with counters(lab) as metrics:
        for arm in ("baseline", "speculative"):
            played = lab.play(str(lab.folder / "boxes.yml"), serve_arms={arm: PORT})
            assert played.status == 0, played.output[-4000:]
            until(lambda: all(lab.ready(box) == 200 for box in lab.boxes))
            done = subprocess.run(
                [*bench, "--arm", arm, *metrics], capture_output=True, text=True, timeout=600, check=False
            )
            print(done.stdout, done.stderr)
            assert done.returncode == 0
    words = [str(ROOT / "scripts" / "drafthouse"), "fleet-report", str(out), "--json"]
    report = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout)
    for step in json.loads(out.read_text())["steps"]:
        assert (step["status"], step["failed"]) == ("ok", 0), step
        assert all(one["output_tokens"] for one in step["replicas"]), step
    assert report["boxes"] == 2
    speculative = report["arms"][1]
    assert all(one["acceptance_rate"] for one in speculative["replicas"]), speculative
    figure(f"fleet: through the front with two real engines: {'; '.join(report['sentences'].values())}")


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
