"""The monitoring: what an inventory asks for, its files, whether Prometheus takes them, and how it is asked."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.addons.monitoring import Settings, build_files, prometheus_script_path
from drafthouse.addons.monitoring_ready import wait_for_monitoring
from drafthouse.addons.prometheus_rules import Pace
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_from, site_of_inventory
from tests.support.prometheus import checked

pytestmark = pytest.mark.processes

GPU, CPU, NVIDIA = "rtx6000-qwen-eagle3", "cpu-smollm2-ngram", "rtx6000-gptoss-trtllm-eagle3"
ON = {"monitoring": {"enabled": True}}


def resolved(inventory: str = "workstation", profile: str = GPU, version: str | None = None, **site: Any) -> Any:
    given = {**site_of_inventory(inventory), **ON, **site}
    return resolved_profile(profile, given, {"engine_version": version} if version else None)


def monitored(**wishes: Any) -> Any:
    found: dict[str, Any] = resolved(**wishes)["monitoring"]
    return found


# --- what an inventory asks for ---------------------------------------------------------------------


def test_nobody_has_it_who_does_not_ask() -> None:
    assert resolved(monitoring={"enabled": False, "port": 8000})["monitoring"] is None
    site = site_of_inventory("workstation")
    assert "monitoring" not in site
    assert resolved_profile(GPU, site)["monitoring"] is None


def test_a_workstation_with_a_gpu_has_all_of_it() -> None:
    found = monitored(gateway=True)
    assert found["ports"] == {"prometheus": 9490, "node": 9491, "blackbox": 9492, "dcgm": 9493, "grafana": 9494}
    assert (found["listen"], found["open_ports"]) == ("127.0.0.1", [])
    assert (found["retention_days"], found["retention_gb"]) == (15, 2)
    assert found["programs"] == ["prometheus", "blackbox", "node"]
    assert (found["gpu"], found["grafana"], found["gateway"]["port"]) == (True, True, 8443)
    assert (found["dialect"], found["path"], found["key"]) == ("vllm", "/metrics", False)
    assert (found["target"], found["health"]) == ("127.0.0.1:8000", "/health")


def test_a_rental_has_what_is_its_own() -> None:
    found = monitored(inventory="vastai", profile="h100-llama33-draft3b")
    assert found["programs"] == ["prometheus", "blackbox"]
    assert (found["gpu"], found["grafana"], found["node"]) == (False, False, False)


def test_llama_server_is_asked_with_its_key() -> None:
    found = monitored(inventory="local", profile=CPU)
    assert (found["dialect"], found["key"]) == ("llamacpp", True)


@pytest.mark.parametrize(("version", "dialect"), [("1.2.1", ""), ("1.3.0rc19", "trtllm")])
def test_tensorrt_llm_is_asked_where_its_version_has_counters(version: str, dialect: str) -> None:
    found = monitored(profile=NVIDIA, version=version)
    assert (found["dialect"], found["path"]) == (dialect, "/prometheus/metrics")


def test_it_asks_for_no_new_measurement() -> None:
    assert measured_key(resolved()) == measured_key(resolved(monitoring={"enabled": True, "port": 9000}))


@pytest.mark.parametrize(
    ("site", "where"),
    [
        ({"monitoring": {"port": 9490}}, "site: monitoring.enabled"),
        ({"monitoring": True}, "site: monitoring"),
        ({"monitoring": {"enabled": True, "prot": 1}}, "site: monitoring.prot"),
        ({"monitoring": {"enabled": True, "retention_days": 0}}, "site: monitoring.retention_days"),
        ({"monitoring": {"enabled": True, "port": 7997}}, "site.monitoring.port"),
        ({"gateway": True, "monitoring": {"enabled": True, "port": 8440}}, "site.monitoring.port"),
        ({"monitoring": {"enabled": True, "listen": "everywhere"}}, "site.monitoring.listen"),
        (
            {
                "inventory": "vastai",
                "profile": "h100-llama33-draft3b",
                "monitoring": {"enabled": True, "listen": "0.0.0.0"},
            },
            "site.monitoring.listen",
        ),
        ({"runtime": "process", "monitoring": {"enabled": True, "grafana": True}}, "site.monitoring.grafana"),
    ],
    ids=str,
)
def test_a_site_that_will_not_do(site: dict[str, Any], where: str) -> None:
    with pytest.raises(DrafthouseError) as caught:
        resolved(**site)
    assert [problem.where for problem in caught.value.problems] == [where]


def test_who_listens_elsewhere_is_opened_by_the_firewall() -> None:
    found = monitored(monitoring={"enabled": True, "listen": "0.0.0.0", "port": 9000})
    assert found["open_ports"] == [9000, 9004]
    found = monitored(monitoring={"enabled": True, "listen": "::", "grafana": False})
    assert found["open_ports"] == [9490]


def test_an_inventorys_words_arrive() -> None:
    found = site_from({"drafthouse_monitoring": ON["monitoring"]})
    assert found["monitoring"] == ON["monitoring"]


# --- the files --------------------------------------------------------------------------------------


def settings(home: Path, keeper: str = "supervisor", **wishes: Any) -> Settings:
    wished = monitored(home=str(home), **wishes)
    key = home / "secrets/api_key"
    key.parent.mkdir(parents=True, exist_ok=True)
    key.write_text("a-secret-key\n")
    return Settings(
        home=str(home),
        process_manager=keeper,
        box="box",
        key_file=str(key),
        requested=wished,
        binaries={name: f"/usr/bin/{name}" for name in wished["programs"]},
        images={"grafana": "grafana/grafana:1", "dcgm": "dcgm-exporter:1"},
    )


def made(one: Settings) -> Any:
    return build_files(ROOT / "templates", one)


def contents(one: Settings) -> dict[str, str]:
    """What the files hold, by their names below the monitoring's folder."""
    entries = made(one)["entries"]
    return {entry["path"].removeprefix(f"{one.folder}/"): entry["content"] for entry in entries if "content" in entry}


SITES: dict[str, dict[str, Any]] = {
    "workstation, GPU, gateway": {"gateway": True, "gateway_name": "llm.example.org"},
    "workstation, IPv6": {"monitoring": {"enabled": True, "listen": "::1"}},
    "rental": {"inventory": "vastai", "profile": "h100-llama33-draft3b"},
    "local, llama.cpp": {"inventory": "local", "profile": CPU},
    "TensorRT-LLM without counters": {"profile": NVIDIA},
    "TensorRT-LLM with counters": {"profile": NVIDIA, "version": "1.3.0rc19"},
    "an Alertmanager": {"monitoring": {"enabled": True, "alertmanager": "127.0.0.1:9093"}},
}


@pytest.mark.parametrize("site", SITES)
def test_prometheus_takes_its_configuration(site: str, tmp_path: Path) -> None:
    one = settings(tmp_path, **SITES[site])
    for entry in made(one)["entries"]:
        path = Path(entry["path"])
        if "content" in entry:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(entry["content"])
    checked("check", "config", "prometheus.yml", folder=Path(one.folder))


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("keeper", ["supervisor", "systemd"])
def test_scripts_are_valid_and_say_where_they_listen(keeper: str, site: str, tmp_path: Path) -> None:
    one = settings(tmp_path, keeper, **SITES[site])
    found = contents(one)
    assert {name.split("/")[1] for name in found if name.startswith("programs/")} == set(one.requested["programs"])
    listen = "[::1]" if "IPv6" in site else "127.0.0.1"
    for name, port in made(one)["programs"].items():
        script = found[f"programs/{name}/serve.sh"]
        subprocess.run(["sh", "-n"], input=script, text=True, check=True, timeout=180)
        at = listen if name == "prometheus" else "127.0.0.1"
        lines = [line.strip(" \\'") for line in script.splitlines()]
        assert f"--web.listen-address={at}:{port}" in lines
    prometheus = found["programs/prometheus/serve.sh"]
    assert "--storage.tsdb.retention.time=15d" in prometheus
    assert "--storage.tsdb.retention.size=2GB" in prometheus


def test_the_key_stands_in_no_file_and_goes_only_to_who_wants_it(tmp_path: Path) -> None:
    one = settings(tmp_path, inventory="local", profile=CPU)
    found = contents(one)
    assert "a-secret-key" not in "".join(found.values())
    (engine, health) = yaml.safe_load(found["prometheus.yml"])["scrape_configs"]
    assert engine["authorization"] == {"credentials_file": one.key_file}
    assert engine["follow_redirects"] is False
    assert "authorization" not in health
    # systemd hands over a copy, which only that program sees.
    one = settings(tmp_path, "systemd", inventory="local", profile=CPU)
    engine = yaml.safe_load(contents(one)["prometheus.yml"])["scrape_configs"][0]
    handed = "/run/credentials/drafthouse-monitoring-prometheus.service/api_key"
    assert engine["authorization"] == {"credentials_file": handed}
    units = {Path(unit["path"]).stem: unit["content"] for unit in made(one)["units"]}
    assert f"LoadCredential=api_key:{one.key_file}" in units["drafthouse-monitoring-prometheus"]
    assert all("LoadCredential" not in text for name, text in units.items() if not name.endswith("prometheus"))
    # vLLM shows them to anybody, and need not have one.
    for open_one in (settings(tmp_path), replace(settings(tmp_path), key_file="")):
        assert "authorization" not in contents(open_one)["prometheus.yml"]


def test_another_file_or_key_is_another_program(tmp_path: Path) -> None:
    one = settings(tmp_path, "systemd")

    def units(other: Settings) -> list[str]:
        return [unit["content"] for unit in made(other)["units"]]

    assert units(one) == units(replace(one))
    for other in (
        replace(one, binaries_digest="52428800 1699999999000000000 1234.5"),
        replace(one, pace=Pace(hold_s=300)),
        replace(one, requested={**one.requested, "retention_gb": 3}),
    ):
        changed = [before != after for before, after in zip(units(one), units(other), strict=True)]
        assert changed[0]


def test_the_supervisor_has_no_units(tmp_path: Path) -> None:
    assert made(settings(tmp_path))["units"] == []


def test_containers_are_grafana_and_dcgm_where_there_is_a_gpu(tmp_path: Path) -> None:
    one = settings(tmp_path)
    dcgm, grafana = made(one)["containers"]
    assert (dcgm["name"], dcgm["gpus"]) == ("drafthouse-dcgm", ["all"])
    assert dcgm["environment"]["DCGM_EXPORTER_LISTEN"] == "127.0.0.1:9493"
    fields = contents(one)["dcgm.csv"]
    # The exporter ends where a line has other than three.
    assert {len(line.split(",")) for line in fields.splitlines()} == {3}
    asked = {word for rule in contents(one)["rules.yml"].split() for word in rule.split("(") if "DCGM_" in word}
    assert {word.split("{")[0] for word in asked} == {line.split(",")[0] for line in fields.splitlines()}
    assert (grafana["name"], grafana["read_only"]) == ("drafthouse-grafana", True)
    assert grafana["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert "PASSWORD" not in json.dumps(grafana)
    for mount in dcgm["mounts"] + grafana["mounts"]:
        name = mount.split(":")[0].removeprefix(f"{one.folder}/")
        assert any(path == name or path.startswith(f"{name}/") for path in contents(one)), mount
    assert made(settings(tmp_path, inventory="local", profile=CPU))["containers"] == []


def test_grafana_finds_prometheus_and_the_dashboard(tmp_path: Path) -> None:
    one = settings(tmp_path, monitoring={"enabled": True, "listen": "0.0.0.0", "port": 9000})
    found = contents(one)
    (source,) = yaml.safe_load(found["grafana/datasources/drafthouse.yml"])["datasources"]
    assert source["url"] == "http://127.0.0.1:9000"
    board = json.loads(found["grafana/boards/drafthouse.json"])
    uids = {target["datasource"]["uid"] for panel in board["panels"] for target in panel.get("targets", [])}
    assert uids == {source["uid"]}


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"home": "opt"}, "monitoring_home"),
        ({"home": '/a "home"'}, "monitoring_home"),
        ({"key_file": "/a$b"}, "monitoring_key_file"),
        ({"key_file": "", "requested": {"key": True}}, "monitoring_key_file"),
        ({"pace": Pace(15, 15, 600)}, "monitoring_pace"),
        ({"pace": Pace(1, 10, 5)}, "monitoring_pace"),
    ],
    ids=str,
)
def test_settings_that_will_not_do(changed: dict[str, Any], where: str, tmp_path: Path) -> None:
    one = settings(tmp_path)
    with pytest.raises(DrafthouseError) as caught:
        made(replace(one, **{**changed, "requested": {**one.requested, **changed.get("requested", {})}}))
    assert [problem.where for problem in caught.value.problems] == [where]


def test_others_can_reach_what_they_read_whatever_the_machines_umask(tmp_path: Path) -> None:
    """Programs of systemd and containers are other users: every folder of ours on their way is named, with its mode."""
    one = settings(tmp_path, "systemd")
    entries = made(one)["entries"]
    modes = {entry["path"]: entry["mode"] for entry in entries if "content" not in entry}
    for entry in entries:
        for folder in Path(entry["path"]).parents:
            if "content" in entry and folder.is_relative_to(one.folder):
                assert modes[str(folder)] == "0755", entry["path"]


def test_where_it_lies_is_where_it_is_looked_for(tmp_path: Path) -> None:
    one = settings(tmp_path)
    assert prometheus_script_path(str(tmp_path)) in [entry["path"] for entry in made(one)["entries"]]


# --- how it is asked --------------------------------------------------------------------------------


class Answers:
    """A Prometheus, as `ask` sees it; ``ready`` after so many questions."""

    def __init__(self, ready: int = 0, **jobs: str) -> None:
        self.ready, self.jobs, self.asked = ready, jobs, 0
        self.rule = {"name": "drafthouse:engine_up:bool", "health": "ok", "lastError": ""}
        self.grafana = 200

    def __call__(self, url: str) -> tuple[int, str]:
        self.asked += 1
        if url.endswith("/-/ready"):
            return (200, "") if self.asked > self.ready else (503, "Service Unavailable")
        if url.endswith("/api/health"):
            return self.grafana, "{}"
        if "/api/v1/rules" in url:
            return 200, json.dumps({"data": {"groups": [{"rules": [self.rule]}]}})
        targets = [
            {"labels": {"job": job}, "health": health, "lastError": "" if health == "up" else "401 Unauthorized"}
            for job, health in self.jobs.items()
        ]
        return 200, json.dumps({"data": {"activeTargets": targets}})


def waited(answers: Answers, *jobs: str, grafana: str = "") -> Any:
    moments = iter(range(1000))
    return wait_for_monitoring(
        "http://p", jobs, grafana=grafana, log="the log", timeout_s=20, ask=answers,
        clock=lambda: float(next(moments)), sleep=lambda s: None,
    )  # fmt: skip


def test_it_waits_until_everything_is_read() -> None:
    answers = Answers(ready=3, engine="up", health="up")
    assert waited(answers, "engine", "health", grafana="http://g").rules == 1
    assert answers.asked > 4


@pytest.mark.parametrize(
    ("answers", "found", "do"),
    [
        (Answers(ready=1000), "Prometheus at http://p: 503", "read the log"),
        (Answers(engine="down"), "nothing can be read from the engine: 401 Unauthorized", "run site.yml --tags report"),
        (Answers(), "nothing can be read from the engine: no such target", "run site.yml --tags report"),
    ],
)
def test_what_it_cannot_see_is_said(answers: Answers, found: str, do: str) -> None:
    with pytest.raises(DrafthouseError) as caught:
        waited(answers, "engine")
    assert caught.value.problems[0].found.startswith(found)
    assert caught.value.problems[0].do.startswith(do)


def test_another_program_on_its_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(b"SSH-2.0-another\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(DrafthouseError) as caught:
            wait_for_monitoring(
                f"http://127.0.0.1:{server.getsockname()[1]}", [], grafana="", log="the log", timeout_s=0
            )
    assert "not an HTTP server" in caught.value.problems[0].found


def test_a_rule_with_an_error_and_a_grafana_that_is_away_are_said() -> None:
    answers = Answers(engine="up")
    answers.rule = {**answers.rule, "health": "err", "lastError": "many-to-many matching"}
    answers.grafana = 502
    with pytest.raises(DrafthouseError) as caught:
        waited(answers, "engine", grafana="http://g")
    assert [problem.found.split(":")[0] for problem in caught.value.problems] == [
        "the rule drafthouse",
        "Grafana at http",
    ]
