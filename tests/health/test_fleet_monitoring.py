"""The front's Prometheus and two replicas, real llama.cpp behind real gateways: one drafts worse, one is drained."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons import monitoring
from drafthouse.addons.fleet.front import Entry
from drafthouse.addons.fleet.replica import DRAINED, mark, set_mark
from drafthouse.addons.fleet_monitoring import fleet_of
from drafthouse.addons.prometheus_rules import Limits, Pace
from drafthouse.core.files import lay_out
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.support.engines import LlamaServer, ask, engine_home, llama_server, packaged_weights
from tests.support.gateway import KEY, Gateway, real_caddy, settings_for, started
from tests.support.ports import free_port
from tests.support.prometheus import TEMPLATES, answered, awaited, real, series
from tests.support.tales import TALES

# An engine that is slow here counts at the end of a request: rates are over a minute.
PACE = Pace(interval_s=1, window_s=60, hold_s=10)
LIMITS = Limits(apart_drafts=3)
SPEAK_S = 300
STORIES = [json.loads(line)["messages"][0]["content"] for line in Path(TALES["suites"][0]).read_text().splitlines()[:3]]
# The same method with as many tokens of a draft. The sick one drafts after any single token that it has seen before: of
# three of these stories it has 29 of 430 accepted, the other 14 of 54.
WELL, SICK = ("--spec-ngram-simple-size-n", "3"), ("--spec-ngram-simple-size-n", "1")


@dataclass
class Replica:
    """A replica: its engine, and the gateway that is open to the front."""

    engine: LlamaServer
    gateway: Gateway


@contextlib.contextmanager
def replica(folder: Path, lookup: tuple[str, str]) -> Iterator[Replica]:
    flags = ["--model", str(packaged_weights("smollm2-135m-q4")), "--metrics", "--ctx-size", "2048", "-t", "1"]
    flags += ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", "8", *lookup]
    folder.mkdir()
    settings = settings_for(folder, "127.0.0.1:1", real_caddy())
    with llama_server(engine_home("llamacpp"), *flags, "--api-key-file", settings.key_file) as engine:
        its = replace(settings, upstream=f"127.0.0.1:{engine.port}", replica=True, metrics="/metrics")
        with started(its) as gateway:
            yield Replica(engine, gateway)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Replica]]:
    folder = tmp_path_factory.mktemp("f")
    with replica(folder / "a", WELL) as a, replica(folder / "b", SICK) as b:
        yield {"a": a, "b": b}


@pytest.fixture(scope="module")
def url(fleet: dict[str, Replica], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the front's Prometheus and its blackbox exporter, as their rendered scripts have it."""
    home = tmp_path_factory.mktemp("front")
    site: Any = {**site_of_inventory("local"), "monitoring": {"enabled": True, "port": free_port(5)}}
    resolved = resolved_profile("cpu-smollm2-ngram", site)
    wished: Any = {**resolved["monitoring"], "programs": ["prometheus", "blackbox"], "node": False}  # type: ignore[dict-item]
    entries: dict[str, Entry] = {
        name: {
            "address": "127.0.0.1",
            "port": one.gateway.settings.port,
            "certificate": Path(one.gateway.certificate).read_text(),
            "served_name": "smol",
        }
        for name, one in fleet.items()
    }
    (home / "key").write_text(f"{KEY}\n")
    settings = monitoring.Settings(
        str(home), "supervisor", "a", str(home / "key"), wished,
        {name: real(name).path for name in ("prometheus", "blackbox")},
        pace=PACE, limits=LIMITS, fleet=fleet_of(entries, dict.fromkeys(fleet, resolved)),
    )  # fmt: skip
    lay_out(monitoring.files(TEMPLATES, settings)["entries"])
    laid = [path for path in (home / "monitoring").rglob("*") if path.is_file()]
    assert not [path for path in laid if KEY in path.read_text("latin-1")]
    running = []
    try:
        for name in ("blackbox", "prometheus"):
            with (home / f"{name}.log").open("wb") as log:
                script = home / "monitoring/programs" / name / "serve.sh"
                running.append(subprocess.Popen([str(script)], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        yield f"http://127.0.0.1:{wished['ports']['prometheus']}"
    finally:
        for one in running:
            one.terminate()
            one.wait(60)


@contextlib.contextmanager
def traffic(fleet: dict[str, Replica]) -> Iterator[None]:
    """Ask both replicas the same again and again while the block runs."""
    ended = threading.Event()

    def speak(engine: LlamaServer) -> None:
        while not ended.is_set():
            for story in STORIES:
                engine.greedy(story, 32, KEY)

    asking = [threading.Thread(target=speak, args=[one.engine]) for one in fleet.values()]
    for one in asking:
        one.start()
    try:
        yield
    finally:
        ended.set()
        for one in asking:
            one.join()


def accepted_of_a_draft(engine: LlamaServer) -> float:
    counters = [f"llamacpp:spec_decode_num_{of}_total" for of in ("accepted_tokens", "drafts")]
    accepted, drafts = (engine.counter(name, KEY) for name in counters)
    return accepted / drafts


def firing(url: str, name: str) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError):
        alerts = answered(url, "alerts")["alerts"]
        return [one for one in alerts if one["labels"]["alertname"] == name and one["state"] == "firing"]
    return []


def test_the_counters_are_behind_the_key(fleet: dict[str, Replica]) -> None:
    gateway = fleet["a"].gateway
    words = [
        "curl",
        "--silent",
        "--cacert",
        gateway.certificate,
        "--write-out",
        "\n%{http_code}",
        f"{gateway.url}/fleet/metrics",
    ]

    def said(*more: str) -> tuple[str, str]:
        done = subprocess.run([*words, *more], capture_output=True, text=True, check=True)
        body, _, status = done.stdout.rpartition("\n")
        return status, body

    assert said()[0] == "401"
    assert said("--header", "Authorization: Bearer another")[0] == "401"
    status, body = said("--header", f"Authorization: Bearer {KEY}")
    assert status == "200"
    assert "llamacpp:tokens_predicted_total" in body
    # Nothing else of the engine's: neither another path nor another method.
    assert said("--header", f"Authorization: Bearer {KEY}", "--request", "POST")[0] == "404"
    assert ask(f"{fleet['a'].engine.base}/slots", key=KEY)[0] == 200
    for other in ("/slots", "/metrics"):
        words[-1] = f"{gateway.url}{other}"
        assert said("--header", f"Authorization: Bearer {KEY}")[0] == "404"


def test_the_replica_that_drafts_worse_than_its_peer_is_told(url: str, fleet: dict[str, Replica]) -> None:
    with traffic(fleet):
        (alert,) = awaited(lambda: firing(url, "AcceptanceApart"), SPEAK_S, "alert of the sick replica")
    assert alert["labels"]["replica"] == "b"
    assert "the replica b has only" in alert["annotations"]["summary"]
    # By its engine's own counters, too.
    a, b = (accepted_of_a_draft(one.engine) for one in fleet.values())
    assert b < 0.75 * a
    shown = {one["metric"]["replica"] for one in series(url, "drafthouse_fleet:output_tokens:rate")}
    assert shown == {"a", "b"}
    recorded = {
        rule["name"]
        for group in answered(url, "rules")["groups"]
        for rule in group["rules"]
        if rule["type"] == "recording" and rule["name"].startswith("drafthouse_fleet:")
    }
    empty = [name for name in recorded if not series(url, f"last_over_time({name}[5m])")]
    assert empty == []


def test_a_drained_replica_is_out_and_back(url: str, fleet: dict[str, Replica]) -> None:
    home = Path(fleet["a"].gateway.settings.home)
    ready = 'drafthouse_fleet:replica_ready:bool{replica="a"} == 1'
    awaited(lambda: series(url, ready), 60, "replica that is ready")
    set_mark(home, DRAINED, "by the test")
    (alert,) = awaited(lambda: firing(url, "ReplicaOut"), 120, "alert of the drained replica")
    assert alert["labels"]["replica"] == "a"
    assert firing(url, "FleetDown") == []
    mark(home, DRAINED).unlink()
    awaited(lambda: not firing(url, "ReplicaOut"), 60, "end of the alert")
