"""The role monitoring, played on this machine under the supervisor: the real Prometheus reads a real llama-server."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.profiles.monitoring_settings import monitoring_of
from drafthouse.serving.supervisor import Supervisor
from tests.e2e.conftest import Ended, play
from tests.support.engines import LlamaServer, engine_home, llama_server, packaged_weights
from tests.support.ports import free_port
from tests.support.prometheus import answered, awaited, real, series

KEY = "e2e-key-of-the-monitoring-0001"
PACE = {"interval_s": 1, "window_s": 10, "hold_s": 10}
COPY = "Copy this text exactly: " + "The river ran under the old bridge, past the mill and the meadow. " * 4
SPEAK_S = 300
Role = Callable[..., Ended]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("mon")
    (home / "secrets").mkdir(mode=0o700)
    file = home / "secrets/api_key"
    file.touch(mode=0o600)
    file.write_text(f"{KEY}\n")
    return home


@pytest.fixture(scope="module")
def engine(home: Path) -> Iterator[LlamaServer]:
    flags = ["--model", str(packaged_weights("smollm2-135m-q4")), "--api-key-file", str(home / "secrets/api_key")]
    flags += ["--metrics", "--ctx-size", "2048", "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"]
    with llama_server(engine_home("llamacpp"), *flags) as running:
        yield running


@pytest.fixture(scope="module")
def wished(home: Path, engine: LlamaServer) -> Any:
    site: Any = {
        "manage_host": True, "runtime": "process", "home": str(home), "host": "127.0.0.1", "port": engine.port,
        "monitoring": {"enabled": True, "port": free_port(5)},
    }  # fmt: skip
    catalogue: Any = {"metrics": {"dialect": "llamacpp", "key": True}, "health": "/health"}
    arms: Any = {"speculative": {"config": None}}
    found = monitoring_of(site, profile="a-profile", engine=catalogue, arms=arms, gpu=False, gateway=None)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def role(home: Path, wished: dict[str, Any]) -> Iterator[Role]:
    given = {
        "monitoring_keeper": "supervisor",
        "monitoring_runtime": "process",
        "monitoring_home": str(home),
        "monitoring_python": sys.executable,  # it has supervisor
        "monitoring_wished": wished,
        "monitoring_key_file": str(home / "secrets/api_key"),
        "monitoring_pace": PACE,
        "monitoring_binaries": {name: real(name) for name in wished["programs"]},
    }
    task = {"name": "Monitoring", "ansible.builtin.include_role": {"name": "monitoring"}}
    book = home / "monitoring.yml"
    book.write_text(yaml.safe_dump([{"name": "Monitoring", "hosts": "all", "gather_facts": False, "tasks": [task]}]))

    def run(*words: str, **changed: Any) -> Ended:
        return play(str(book), *words, **{**given, **changed})

    yield run
    run(monitoring_state="stopped")


@pytest.fixture(scope="module")
def url(role: Role, wished: dict[str, Any]) -> str:
    done = role()
    assert done.status == 0, done.output
    assert KEY not in done.output
    return f"http://127.0.0.1:{wished['ports']['prometheus']}"


@contextlib.contextmanager
def traffic(engine: LlamaServer) -> Iterator[None]:
    """Ask the engine again and again while the block runs."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            engine.greedy(COPY, 48, KEY)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        ended.set()
        asking.join()


def programs(home: Path) -> dict[str, int]:
    return {name: info["pid"] for name, info in Supervisor(home / "monitoring/supervisor").programs().items()}


def test_a_real_engine_gives_data_to_every_rule_and_query(url: str, home: Path, engine: LlamaServer) -> None:
    rules = [rule for group in answered(url, "rules")["groups"] for rule in group["rules"]]
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording"}
    board = json.loads((home / "monitoring/grafana/boards/drafthouse.json").read_text())
    asked = {target["expr"] for panel in board["panels"] for target in panel.get("targets", [])}
    assert asked <= recorded

    empty = sorted(recorded)

    def all_seen() -> bool:
        empty[:] = [name for name in empty if not series(url, name)]
        return not empty

    # Beside the questions: an engine that is slow here counts at the end of a request, and is read after it.
    with traffic(engine), contextlib.suppress(AssertionError):
        awaited(all_seen, SPEAK_S, "data of every rule")
    assert empty == []
    (rate,) = series(url, "max_over_time(drafthouse:acceptance_rate:ratio[5m])")
    assert 0 < float(rate["value"][1]) <= 1
    assert rate["metric"]["profile"] == "a-profile"


def test_the_key_stands_in_no_file_of_its_own(url: str, home: Path) -> None:
    for path in (home / "monitoring").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_stopped_it_keeps_what_was_recorded_and_absent_leaves_nothing(url: str, role: Role, home: Path) -> None:
    assert role(monitoring_state="stopped").status == 0
    assert programs(home) == {}
    assert (home / "monitoring/data").is_dir()
    assert role(monitoring_state="absent").status == 0
    assert not (home / "monitoring").exists()
    again = role(monitoring_state="absent")
    assert (again.status, again.changed) == (0, 0), again.output
