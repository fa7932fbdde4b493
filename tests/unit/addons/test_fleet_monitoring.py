"""The monitoring of a fleet's front: who is asked, with what, and that Prometheus and the exporter take it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.addons.fleet_monitoring import Fleet
from drafthouse.addons.gateway import certificate_file
from drafthouse.addons.monitoring import Settings, files
from drafthouse.core.errors import DrafthouseError
from tests.support.gateway import make_certificate
from tests.support.prometheus import TEMPLATES, checked, real
from tests.unit.addons.test_fleet_rules import replica
from tests.unit.addons.test_monitoring import CPU, monitored

pytestmark = pytest.mark.processes


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    make_certificate(tmp_path)
    trust = Path(certificate_file(str(tmp_path))).read_text()
    fleet: Fleet = {
        "replicas": [replica("box1"), replica("box2"), replica("box3", "llamacpp"), replica("box4", "")],
        "trust": trust,
    }
    key = tmp_path / "key"
    key.write_text("the-key-of-the-fleet\n")
    wished = monitored(inventory="local", profile=CPU)
    binaries = dict.fromkeys(wished["programs"], "/usr/bin/x")
    return Settings(str(tmp_path), "supervisor", "box1", str(key), wished, binaries, fleet=fleet)


def laid(settings: Settings) -> dict[str, str]:
    """Lay out what is for reading, and return it by its name."""
    found = {}
    for entry in files(TEMPLATES, settings)["entries"]:
        path = Path(entry["path"])
        if "content" in entry:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(entry["content"])
            found[str(path.relative_to(settings.folder))] = entry["content"]
    return found


def test_every_replica_is_asked_itself_over_tls_with_the_key(settings: Settings) -> None:
    found = laid(settings)
    jobs = {job["job_name"]: job for job in yaml.safe_load(found["prometheus.yml"])["scrape_configs"]}
    asked = [target for name in ("fleet_vllm", "fleet_llamacpp") for target in jobs[name]["static_configs"]]
    assert [target["targets"] for target in asked] == [["box1:8443"], ["box2:8443"], ["box3:8443"]]
    for name in ("fleet_vllm", "fleet_llamacpp"):
        job = jobs[name]
        assert (job["scheme"], job["metrics_path"], job["follow_redirects"]) == ("https", "/fleet/metrics", False)
        assert job["tls_config"] == {"ca_file": f"{settings.folder}/fleet.pem"}
        assert job["authorization"] == {"credentials_file": settings.key_file}
    ready = [target["targets"] for target in jobs["fleet_ready"]["static_configs"]]
    assert ready == [[f"https://box{at}:8443/ready"] for at in range(1, 5)]
    # One without counters has its /ready alone; and the key stands in no file.
    assert "fleet_" not in jobs
    assert not [name for name, text in found.items() if "the-key-of-the-fleet" in text]
    checked("check", "config", "prometheus.yml", folder=Path(settings.folder))


def test_the_blackbox_exporter_takes_its_modules(settings: Settings) -> None:
    laid(settings)
    words = [real("blackbox").path, "--config.check", f"--config.file={settings.folder}/blackbox.yml"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_box_that_is_no_front_has_nothing_of_it(settings: Settings) -> None:
    found = laid(replace(settings, fleet=None))
    assert not [name for name, text in found.items() if "fleet" in name or "fleet" in text]


def test_under_systemd_the_key_is_handed_over_even_to_an_engine_without_one(settings: Settings) -> None:
    wished: Any = {**settings.wished, "key": False}
    made = files(TEMPLATES, replace(settings, keeper="systemd", wished=wished))
    unit = next(file["content"] for file in made["units"] if file["path"].endswith("prometheus.service"))
    assert f"LoadCredential=api_key:{settings.key_file}" in unit
    config = laid(replace(settings, keeper="systemd", wished=wished))["prometheus.yml"]
    jobs = {job["job_name"]: job for job in yaml.safe_load(config)["scrape_configs"]}
    assert "authorization" not in jobs["engine"]
    assert jobs["fleet_vllm"]["authorization"]["credentials_file"].startswith("/run/credentials/")


def test_another_replica_is_another_start_of_prometheus(settings: Settings) -> None:
    other: Fleet = {**settings.fleet, "replicas": [replica("box1")]}  # type: ignore[typeddict-item]
    one, two = (laid(each)["programs/prometheus/serve.sh"] for each in (settings, replace(settings, fleet=other)))
    assert one != two


@pytest.mark.parametrize("replicas", [[], [replica("box1"), replica("box1")]], ids=["none", "twice"])
def test_a_fleet_that_is_none_is_refused(settings: Settings, replicas: list[Any]) -> None:
    with pytest.raises(DrafthouseError) as caught:
        files(TEMPLATES, replace(settings, fleet={"replicas": replicas, "trust": ""}))
    assert [problem.where for problem in caught.value.problems] == ["monitoring_fleet"]
