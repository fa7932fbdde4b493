"""Three boxes with a real engine behind one front: kills, a drain, an upgrade and a measurement, all under load."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.procfs import commands
from drafthouse.profiles.workspace import ROOT
from drafthouse.serving.out_of_traffic import DRAIN, RUN, out_file
from tests.e2e.conftest import BIN
from tests.fleet.lab import FRONT_PORT, GATEWAY_PORT, MODEL, Lab, Load, Node, Stream, ended, fleet, until
from tests.support.programs import needs
from tests.support.tales import SHORTEST

pytestmark = needs("curl")

# One thread each: the boxes share two cores, and one that is measured shares them with the two that serve.
SERVE = {"parallel": 4, "threads": 1}
OVERRIDES: dict[str, Any] = {"target": "smollm2-135m-q4", "serve": SERVE, "experiment": SHORTEST["experiment"]}
CHANGED: dict[str, Any] = {**OVERRIDES, "serve": {**SERVE, "context": 3072}}
#: The engine and the weights are there; nothing here has a way to an index.
INSTALLED = ("--skip-tags", "host,weights", "-e", "benchmark_wait_s=5")
# Every port of a host, without waiting for any of them.
_SCAN = """\
import json, socket, sys
found = []
for port in range(1, 65536):
    with socket.socket() as one:
        one.settimeout(2)
        if one.connect_ex((sys.argv[1], port)) == 0:
            found.append(port)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with fleet("cpu-smollm2-ngram", OVERRIDES) as running:
        yield running


@pytest.fixture(autouse=True)
def _all_take_requests(lab: Lab) -> None:
    if not lab.calm():
        until(lab.calm)
        time.sleep(3)  # until the front has looked again


def failed(streams: list[Stream], since: float = 0.0) -> list[Stream]:
    """The requests that were sent after ``since`` and did not come to their end."""
    return [stream for stream in streams if not stream.whole and stream.asked >= since]


def share(lab: Lab, number: int) -> list[float]:
    """Ask so many things at once; the tokens that each box made for them."""
    before = [lab.made(box) for box in lab.boxes]
    threads, streams = lab.ask_many(number, tokens=16)
    ended(threads)
    assert not failed(streams)
    return [lab.made(box) - made for box, made in zip(lab.boxes, before, strict=True)]


def release(lab: Lab, box: Node) -> str:
    """What the box's speculative engine was started with."""
    return (lab.home(box) / "serve" / "cpu-smollm2-ngram" / "speculative" / "serve.sh").read_text()


def test_requests_are_split_and_the_key_is_one(lab: Lab) -> None:
    made = share(lab, 9)
    assert min(made) > 0.2 * sum(made), made
    keys = {(lab.home(box) / "secrets" / "api_key").read_text() for box in lab.boxes}
    assert len(keys) == 1
    assert lab.key not in lab.played[0].output
    assert lab.ask(key="another").status == 401
    assert lab.key not in "".join(map(lab.log, lab.boxes))


def test_a_second_run_changes_nothing(lab: Lab) -> None:
    again = lab.play("site.yml", "--tags", "fleet", "--diff")
    assert (again.status, again.changed) == (0, 0), again.output[-4000:]


def open_ports(seen_from: Node, host: Node) -> list[int]:
    found: list[int] = json.loads(seen_from.run(str(BIN / "python"), "-c", _SCAN, host.address))
    return found


def test_from_outside_nothing_is_open_but_the_front_and_the_gateways(lab: Lab) -> None:
    ports = [open_ports(lab.stranger, box) for box in lab.boxes]
    assert ports == [[GATEWAY_PORT, FRONT_PORT], [GATEWAY_PORT], [GATEWAY_PORT]]


def test_an_engine_that_is_killed_costs_its_own_streams_and_one_request_at_most(
    lab: Lab, figure: Callable[[str], None]
) -> None:
    victim = lab.boxes[1]
    threads, streams = lab.ask_many(9, tokens=96)
    until(lambda: all(stream.begun or stream.error for stream in streams))
    pid = lab.engine_pid(victim)
    os.kill(pid, signal.SIGKILL)
    later = [lab.ask(tokens=8) for _ in range(12)]
    ended(threads)
    assert len(failed(later)) <= 1, later
    assert all(stream.status == 502 for stream in failed(later)), later
    lost = failed(streams)
    assert 1 <= len(lost) <= 4, streams
    assert all(stream.begun for stream in lost)
    figure(
        f"fleet: a killed engine lost {len(lost)} of 9 streams; of 12 requests after it {len(failed(later))} got 502"
    )
    until(lambda: lab.engine_pid(victim) not in (0, pid) and lab.ready(victim) == 200)
    until(lambda: share(lab, 9)[1] > 16)


def kill_box(box: Node) -> int:
    """Kill all that runs on a box at once; how many processes that were."""
    listed = subprocess.run(["ip", "netns", "pids", box.name], capture_output=True, text=True, check=True).stdout
    pids = [int(word) for word in listed.split() if int(word) != box.pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)  # no supervisor starts anything meanwhile
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return len(pids)


def test_200_requests_while_a_box_is_killed_and_comes_back(lab: Lab, figure: Callable[[str], None]) -> None:
    victim = lab.boxes[2]
    with Load(lab, threads=4, tokens=12, pause_s=0.2) as load:
        until(lambda: len(load.streams) > 20)
        assert kill_box(victim) > 3
        killed = time.monotonic()
        until(lambda: len(load.streams) > 60)
        back = lab.play(f"{lab.book} site.yml", "--tags", "gateway", "--limit", "box3")
        assert back.status == 0, back.output[-4000:]
        until(lambda: lab.ready(victim) == 200)
        made = lab.made(victim)
        until(lambda: len(load.streams) > 200 and lab.made(victim) > made + 48)
    lost = failed(load.streams)
    assert not failed(load.streams, killed), failed(load.streams, killed)
    assert len(lost) <= 4, lost
    figure(f"fleet: {len(load.streams)} requests while a box was killed and came back: {len(lost)} lost, which it had")


def test_a_drain_under_load_loses_no_request(lab: Lab) -> None:
    drained = lab.boxes[1]
    with Load(lab, threads=4, tokens=32, pause_s=0.2) as load:
        until(lambda: len(load.streams) > 4)
        lab.command("drain", "box2")
        assert [lab.ready(box) for box in lab.boxes] == [200, 503, 200]
        before, seen = lab.made(drained), len(load.streams)
        until(lambda: len(load.streams) > seen + 12)
        assert lab.made(drained) == before
        status = lab.command("status")
        assert "2 of 3 boxes ready" in status, status
        assert "drain: drained by hand" in status
        lab.command("undrain", "box2")
        until(lambda: lab.made(drained) - before > 64)
    assert not failed(load.streams)


def test_a_box_that_is_not_reached_is_named_and_the_others_go_on(lab: Lab) -> None:
    box = {"ansible_host": "127.0.0.2", "ansible_port": 9, "ansible_connection": "ssh", "drafthouse_home": "/nowhere"}
    more = lab.folder / "more.json"
    more.write_text(json.dumps({"all": {"hosts": {"box4": box}}}))
    done = lab.play("site.yml", "--tags", "fleet", "-i", str(more))
    assert done.status == 4, done.output[-2000:]
    assert re.search(r"not behind the front, because\s.*\sbox4\b", done.output, re.DOTALL)
    assert "undefined" not in done.output
    assert not failed([lab.ask(tokens=8) for _ in range(6)])


@pytest.mark.soak
def test_an_upgrade_of_all_boxes_under_load_fails_no_request(lab: Lab, figure: Callable[[str], None]) -> None:
    before = [release(lab, box) for box in lab.boxes]
    begun = time.monotonic()
    with Load(lab, threads=2, tokens=16, pause_s=1) as load:
        lab.command("upgrade", ansible=(*INSTALLED, "-e", json.dumps({"overrides": CHANGED})))
    assert not failed(load.streams)
    assert ["3072" in release(lab, box) for box in lab.boxes] == [True] * 3
    assert not any("3072" in text for text in before)
    assert not any(out_file(lab.home(box), RUN).exists() for box in lab.boxes)
    took_s = time.monotonic() - begun
    figure(f"fleet: {len(load.streams)} requests while three boxes were upgraded in {took_s:.0f} s, none failed")


def test_the_first_box_that_fails_ends_an_upgrade(lab: Lab) -> None:
    broken = {**CHANGED, "serve": {**CHANGED["serve"], "extra": {"threads-batch": "none"}}}
    with Load(lab, threads=2, tokens=16, pause_s=1) as load:
        said = lab.command("upgrade", ansible=(*INSTALLED, "-e", json.dumps({"overrides": broken})), status=2)
        assert "box2" not in said.partition("PLAY RECAP")[2], said[-3000:]
        until(lambda: all(lab.ready(box) == 200 for box in lab.boxes), 120)
    assert not failed(load.streams)
    assert all("threads-batch" not in release(lab, box) for box in lab.boxes[1:])


def test_a_run_that_measures_takes_its_box_out_and_is_cleaned_up_after_a_kill(lab: Lab) -> None:
    measured = lab.boxes[1]
    out_file(lab.home(measured), DRAIN).write_text("a person's\n")
    words = [
        str(BIN / "ansible-playbook"), "site.yml", "-i", str(lab.inventory), *INSTALLED, "--limit", "box2",
        "-e", json.dumps({"overrides": CHANGED, "remeasure": True}),
    ]  # fmt: skip
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    with Load(lab, threads=2, tokens=16, pause_s=0.5) as load:
        run = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: out_file(lab.home(measured), RUN).exists())
        until(lambda: any("benchmark" in " ".join(line) for _, line in commands()))
        assert [lab.ready(box) for box in lab.boxes] == [200, 503, 200]
        time.sleep(5)
        run.kill()
        run.wait(60)
        until(lambda: not out_file(lab.home(measured), RUN).exists(), 180)
        assert out_file(lab.home(measured), DRAIN).read_text() == "a person's\n"
        assert lab.ready(measured) == 503
        lab.command("undrain", "box2")
        until(lambda: lab.ready(measured) == 200)
    assert not failed(load.streams)


@pytest.mark.soak
def test_a_load_sweep_through_the_front(lab: Lab, tmp_path: Path, figure: Callable[[str], None]) -> None:
    key, out = lab.home(lab.boxes[0]) / "secrets" / "api_key", tmp_path / "fleet.json"
    bench = [
        str(BIN / "python"), str(ROOT / "scripts" / "drafthouse"), "bench",
        "--base-url", f"https://{lab.boxes[0].address}:{FRONT_PORT}", "--model", MODEL,
        "--ca", str(lab.folder / "state" / "gateway" / "fleet-box1.pem"),
        "--api-key-file", str(key), "--kind", "copy-edit", "--num-prompts", "8",
        "--output-tokens", "48", "--ladder", "1,4,8", "--time", "12", "--result", str(out),
    ]  # fmt: skip
    done = subprocess.run(bench, capture_output=True, text=True, timeout=600, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    for step in json.loads(out.read_text())["steps"]:
        assert (step["status"], step["failed"]) == ("ok", 0), step
        figure(f"fleet: {step['level']} requests at a time through the front: {step['output_throughput']:.0f} tokens/s")


def test_stop_ends_the_front_too(lab: Lab) -> None:
    """The last test of the file: nothing serves behind it."""
    done = lab.play("playbooks/stop.yml")
    assert done.status == 0, done.output[-4000:]
    assert open_ports(lab.stranger, lab.boxes[0]) == []
