"""A container's one definition: what `make render` shows is what runs, whatever a profile and a site ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafthouse.profiles.container import Container, arm_container, compose_service, definition, engine_words
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from tests.support.compose import engine_words_of, plain_compose

PROFILES = sorted(path.stem for path in (ROOT / "profiles").glob("*.yml"))
SITES: dict[str, dict[str, Any]] = {
    "as the inventory has it": {},
    "opened to others": {"allow_cidrs": ["192.0.2.0/24"]},
    "on two GPUs, in IPv6": {"gpus": ["0", "GPU-8932f937-d72c-4106"], "host": "::1"},
}


def composed(found: Any) -> dict[str, str]:
    """The compose.yaml of each arm."""
    return {
        file["path"].split("/")[0]: file["content"] for file in found["extras"] if file["path"].endswith("compose.yaml")
    }


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_shown_is_what_runs(profile: str, site: str) -> None:
    found = resolved_profile(profile, {**site_of_inventory("workstation"), "runtime": "docker", **SITES[site]})
    shown = composed(found)
    assert bool(shown) == bool(found["arms"]["baseline"]["container"])
    for arm, content in shown.items():
        service, container = plain_compose(content), arm_container(found, arm)
        assert service["container_name"] == container["name"] == f"drafthouse-{arm}"
        service.pop("build", None)
        assert engine_words_of(service) == engine_words(container)


def test_what_gateway_and_monitoring_ask_is_said_in_both_words() -> None:
    container: Container = {
        "name": "drafthouse-x", "image": "i:1", "labels": {"a": "1"}, "network": "host", "read_only": True,
        "tmpfs": ["/tmp"], "capabilities": ["CAP_NET_BIND_SERVICE"], "without_capabilities": ["ALL"],
        "security": ["no-new-privileges"], "mounts": ["/a:/b:ro"],
    }  # fmt: skip
    assert compose_service(container) == {
        "image": "i:1", "container_name": "drafthouse-x", "network_mode": "host", "volumes": ["/a:/b:ro"],
        "read_only": True, "tmpfs": ["/tmp"], "cap_add": ["CAP_NET_BIND_SERVICE"], "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"], "restart": "unless-stopped", "labels": {"a": "1"},
        "logging": {"driver": "json-file", "options": {"max-size": "20m", "max-file": "3"}},
    }  # fmt: skip
    assert engine_words(container)["HostConfig"] == {
        "Binds": ["/a:/b:ro"], "NetworkMode": "host", "ReadonlyRootfs": True, "Tmpfs": {"/tmp": ""},
        "CapAdd": ["CAP_NET_BIND_SERVICE"], "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"],
        "RestartPolicy": {"Name": "unless-stopped", "MaximumRetryCount": 0},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "20m", "max-file": "3"}},
    }  # fmt: skip


def test_dollars_are_no_variables_of_compose() -> None:
    service = compose_service({"name": "n", "image": "i", "labels": {}, "environment": {"A": "$HOME ${x}"}})
    assert service["environment"] == {"A": "$$HOME $${x}"}


def test_at_another_port_and_in_another_time() -> None:
    found = resolved_profile("rtx6000-qwen-eagle3", site_of_inventory("workstation"))
    container = arm_container(found, "baseline", 8101, 60)
    assert container["ports"] == ["127.0.0.1:8101:8000"]
    assert container["labels"]["drafthouse_at"] == "drafthouse-baseline 8101"
    assert container["health"]["start_period_s"] == 60
    assert "/dev/tcp/127.0.0.1/8000 " in container["health"]["command"][2]


def test_a_changed_script_and_less_asked_for_are_other_containers() -> None:
    found: Any = resolved_profile("rtx6000-gptoss-trtllm-eagle3", site_of_inventory("workstation"))
    before = definition(found, "baseline")
    less = json.loads(json.dumps(found))
    less["arms"]["baseline"]["container"]["ulimits"].pop("stack")
    changed = json.loads(json.dumps(found))
    changed["arms"]["baseline"]["files"][0]["content"] += "\n"
    assert len({before, definition(less, "baseline"), definition(changed, "baseline")}) == 3
