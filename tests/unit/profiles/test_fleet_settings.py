"""What an inventory says of a fleet, and what a site without one stays."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory

PROFILE = "rtx6000-qwen-eagle3"


def resolved(**fleet: Any) -> Any:
    site: Any = site_of_inventory("workstation")
    more: Any = {name: fleet.pop(name) for name in ("gateway_name", "gateway_port", "address") if name in fleet}
    return resolved_profile(PROFILE, {**site, **more, "fleet": fleet})


def test_without_a_fleet_nothing_is_there() -> None:
    data = resolved_profile(PROFILE, site_of_inventory("workstation"))
    assert (data["fleet"], data["gateway"]) == (None, None)


def test_each_box_of_a_fleet_has_a_gateway_and_its_engine_stays_on_loopback() -> None:
    data = resolved()
    assert data["gateway"] == {"port": 8443, "name": ""}
    assert data["fleet"]["port"] == 8444
    assert ["--host", "127.0.0.1"] in data["arms"]["baseline"]["flags"]


def test_the_shipped_inventory_is_one() -> None:
    data = resolved_profile(PROFILE, site_of_inventory("fleet"))
    assert data["fleet"] is not None
    assert data["fleet"]["policy"] == "least_conn"


def test_one_name_for_all_replicas() -> None:
    data = resolved(served_name="qwen")
    assert data["target"]["served_name"] == "qwen"
    assert ["--served-model-name", "qwen"] in data["arms"]["speculative"]["flags"]


def test_with_a_name_of_its_own_it_is_at_443() -> None:
    assert resolved(name="llm.example.org")["fleet"]["port"] == 443


@pytest.mark.parametrize(
    ("fleet", "where"),
    [
        ({"port": 8443}, "site.fleet.port"),
        ({"port": 8000}, "site.fleet.port"),
        ({"port": 7990, "router": "vllm-router"}, "site.fleet.port"),
        ({"port": 0}, "site: fleet.port"),
        ({"name": "no name"}, "site.fleet.name"),
        ({"policy": "ip_hash"}, "site: fleet.policy"),
        ({"router": "nginx"}, "site: fleet.router"),
        ({"router_policy": "cache_aware"}, "site.fleet.router_policy"),
        ({"probe_s": 0}, "site: fleet.probe_s"),
        ({"fornt": "box1"}, "site: fleet.fornt"),
        ({"gateway_name": "box1.example.org"}, "site.gateway_name"),
        ({"address": "10.0.0.1; rm"}, "site: address"),
    ],
)
def test_what_is_wrong_is_named(fleet: dict[str, Any], where: str) -> None:
    with pytest.raises(DrafthouseError) as refused:
        resolved(**fleet)
    assert [problem.where for problem in refused.value.problems] == [where]
