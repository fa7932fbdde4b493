"""A fleet of two engines of known law behind a real Caddy: both arms, counters of each, and one that is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from drafthouse.addons.gateway import certificate_file
from drafthouse.profiles.workspace import ROOT
from tests.fakes.crossover_server import Law, known_crossover
from tests.fakes.in_process import started
from tests.support.gateway import KEY, make_certificate, real_caddy
from tests.support.ports import free_port

pytestmark = pytest.mark.alone

CADDYFILE = """{{
	admin off
	auto_https off
	storage file_system {home}/caddy
}}
https://127.0.0.1:{port} {{
	tls {folder}/certificate.pem {folder}/key.pem
	@nobody not header Authorization "Bearer {key}"
	respond @nobody 401
	reverse_proxy {upstreams} {{
		lb_policy round_robin
		lb_try_duration 10s
		header_down X-Drafthouse-Replica {{http.reverse_proxy.upstream.hostport}}
	}}
}}
"""
# One box crosses at about 6 requests at a time, so two cross at about 12.
BASELINE = {"fixed_ms": 20.0, "each_ms": 0.2, "ttft_ms": 20, "tokens": 16, "tokens_per_chunk": 2}
SPECULATIVE = {**BASELINE, "fixed_ms": 10.0, "each_ms": 1.764}
DRAFTED = (2, 3)


@dataclass
class Fleet:
    """Two engines, each a process at a port of its own, and what is in front of them."""

    url: str
    ca: str
    ports: tuple[int, int]
    engines: list[subprocess.Popen[str]] = field(default_factory=list)

    def serve(self, law: dict[str, Any], drafted: tuple[int, int] = (0, 0)) -> None:
        """Have both engines serve by a law, from the beginning."""
        self.end()
        for number in range(2):
            self.serve_one(number, law, drafted[number])

    def serve_one(self, number: int, law: dict[str, Any], drafted: int = 0) -> None:
        process, _ = started("tests.fakes.crossover_server", {**law, "drafted": drafted}, self.ports[number])
        self.engines.insert(number, process)

    def end(self) -> None:
        for process in self.engines:
            process.kill()
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()
        self.engines.clear()

    def names(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.ports]

    def words(self, *more: str) -> list[str]:
        metrics = [word for name in self.names() for word in ("--metrics", f"{name}=http://{name}/metrics")]
        return [
            sys.executable, str(ROOT / "scripts" / "drafthouse"), "bench", "--base-url", self.url, "--model", "clock",
            "--ca", self.ca, "--kind", "chat", "--num-prompts", "8", *metrics, *more,
        ]  # fmt: skip


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    make_certificate(tmp_path)
    certificate, port = Path(certificate_file(str(tmp_path))), free_port()
    ports = free_port(), free_port()
    upstreams = " ".join(f"127.0.0.1:{one}" for one in ports)
    file = tmp_path / "Caddyfile"
    file.write_text(CADDYFILE.format(home=tmp_path, port=port, folder=certificate.parent, key=KEY, upstreams=upstreams))
    made = Fleet(f"https://127.0.0.1:{port}", str(certificate), ports)
    with caddy(file, tmp_path / "caddy.log", port):
        yield made
        made.end()


@contextmanager
def caddy(file: Path, log: Path, port: int) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [real_caddy(), "run", "--adapter", "caddyfile", "--config", str(file)], stdout=output, stderr=output
        )
        try:
            until = time.monotonic() + 60
            while not listens(port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(60)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def bench(fleet: Fleet, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        fleet.words(*more), capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "OPENAI_API_KEY": KEY},
    )  # fmt: skip


def test_both_arms_over_the_fleet(fleet: Fleet, tmp_path: Path) -> None:
    out, page = tmp_path / "fleet.json", tmp_path / "fleet.md"
    load = ["--ladder", "2,6,24", "--time", "2.5", "--narrow", "0.000001", "--processes", "2", "--result", str(out)]
    fleet.serve(BASELINE)
    first = bench(fleet, "--arm", "baseline", *load)
    assert first.returncode == 0, first.stderr
    assert "no crossover: only baseline was measured" in first.stdout
    fleet.serve(SPECULATIVE, DRAFTED)
    second = bench(fleet, "--arm", "speculative", *load)
    assert second.returncode == 0, second.stderr
    ladder = json.loads(out.read_text())
    assert [(one["arm"], one["level"]) for one in ladder["steps"]] == [
        (arm, level) for arm in ("baseline", "speculative") for level in (2, 6, 24)
    ]
    for step in ladder["steps"]:
        assert (step["status"], step["failed"]) == ("ok", 0), step["notes"]
        # Counted by the engines, named by the front: two tellings of the same requests.
        assert sum(one["requests"] for one in step["replicas"]) == step["completed"]
        assert [one["name"] for one in step["replicas"]] == fleet.names()
        assert [part["where"] for part in step["clients"]] == ["this machine"] * 2
    report_words = ["fleet-report", str(out), "--json", "--markdown", str(page)]
    told = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "drafthouse"), *report_words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    report = json.loads(told.stdout)
    assert report["boxes"] == 2
    (sentence,) = report["sentences"].values()
    assert sentence.startswith("with 2 boxes speculation pays")
    one = [Law(fixed_ms=float(law["fixed_ms"]), each_ms=float(law["each_ms"])) for law in (BASELINE, SPECULATIVE)]
    two = 2 * known_crossover(one[0], one[1], 1.03)
    (crossover,) = report["crossover"].values()
    # The levels are far apart, and between them the curve is taken for a straight line.
    assert 0.6 * two < crossover["pays_until"] < 1.8 * two
    baseline, speculative = report["arms"]
    assert [one["acceptance_rate"] for one in baseline["replicas"]] == [None, None]
    assert [round(one["acceptance_rate"], 1) for one in speculative["replicas"]] == [50.0, 33.3]
    assert all(one["failed"] == 0 for one in speculative["replicas"])
    assert KEY not in page.read_text() + out.read_text() + second.stdout + second.stderr
    assert "50.0 % | 33.3 %" in page.read_text()


def test_a_replica_that_is_killed_makes_its_step_invalid(fleet: Fleet, tmp_path: Path) -> None:
    out = tmp_path / "fleet.json"
    fleet.serve(BASELINE)
    process = subprocess.Popen(
        fleet.words("--ladder", "8", "--time", "6", "--narrow", "0.000001", "--processes", "2", "--result", str(out)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OPENAI_API_KEY": KEY},
    )  # fmt: skip
    victim = fleet.names()[1]
    until = time.monotonic() + 120
    # Once the step's own requests (`[1.8.0.N]`) have reached it.
    while "[1.8.0" not in urlopen(f"http://{victim}/record", timeout=60).read().decode():
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.05)
    dead = fleet.engines.pop(1)
    os.kill(dead.pid, signal.SIGKILL)
    dead.wait(60)
    fleet.serve_one(1, BASELINE)
    said, _ = process.communicate(timeout=300)
    (step,) = json.loads(out.read_text())["steps"]
    assert step["status"] == "broken", said
    assert any(note.startswith(f"{victim}: restarted during") for note in step["notes"]), step["notes"]
    assert step["failed"] > 0
    lost = {one["name"]: one for one in step["replicas"]}[victim]
    assert (lost["requests"], lost["said"]) == (None, "its engine was restarted")
    # Streams that had begun there were cut off, and are its own.
    assert lost["failed"] > 0


def test_a_certificate_that_is_not_the_front_s_and_a_worker_that_is_away(fleet: Fleet, tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_certificate(other)
    fleet.serve(BASELINE)
    out = tmp_path / "fleet.json"
    refused = bench(fleet, "--ladder", "1", "--time", "0.5", "--ca", certificate_file(str(other)))
    assert refused.returncode == 2
    assert "certificate verify failed" in refused.stdout + refused.stderr
    away = f"http://127.0.0.1:{free_port()}/metrics"
    told = bench(fleet, "--ladder", "1", "--time", "0.5", "--metrics", f"away={away}", "--result", str(out))
    assert told.returncode == 0, told.stderr
    (step,) = json.loads(out.read_text())["steps"]
    assert step["status"] == "ok"
    assert any(note.startswith("the counters of away could not be read") for note in step["notes"])
    assert [one["requests"] is None for one in step["replicas"]] == [False, False, True]


def test_an_inventory_says_where_the_engines_are(fleet: Fleet, tmp_path: Path) -> None:
    fleet.serve(SPECULATIVE, DRAFTED)
    inventory, key, out = tmp_path / "hosts.yml", tmp_path / "key", tmp_path / "fleet.json"
    hosts = {
        name: {"ansible_connection": "local", "drafthouse_port": port}
        for name, port in zip(("one", "two"), fleet.ports, strict=True)
    }
    port = int(fleet.url.rpartition(":")[2])
    own = {"drafthouse_fleet": {"port": port, "name": "127.0.0.1"}}
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": own}}))
    key.write_text(KEY)
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "scripts" / "drafthouse"), "fleet-measure", "--inventory", str(inventory), "--",
            "--model", "clock", "--ca", fleet.ca, "--api-key-file", str(key), "--kind", "chat", "--num-prompts", "4",
            "--arm", "speculative", "--ladder", "2", "--time", "1", "--narrow", "0.000001", "--result", str(out),
        ],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (step,) = json.loads(out.read_text())["steps"]
    assert [one["name"] for one in step["replicas"]] == ["one", "two"]
    assert sum(one["requests"] for one in step["replicas"]) == step["completed"]
    # The front names them by address.
    assert [one["failed"] for one in step["replicas"]] == [None, None]
    assert "one" in done.stdout
    assert KEY not in done.stdout + done.stderr + out.read_text()
