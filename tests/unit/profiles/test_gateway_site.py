"""What a gateway changes of a site: where the engine listens, and what the firewall opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.host.firewall import rules as firewall
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.workspace import resolved_profile, site_from, site_of_inventory
from tests.support.refusals import refuses

pytestmark = pytest.mark.processes

GPU = "rtx6000-qwen-eagle3"
OPEN: dict[str, Any] = {"allow_cidrs": ["192.0.2.0/24"]}


def resolved(inventory: str = "workstation", profile: str = GPU, **site: Any) -> Any:
    return resolved_profile(profile, {**site_of_inventory(inventory), **site})


def listens(data: Mapping[str, Any]) -> list[str]:
    """The addresses that the baseline arm is told to listen on, or is published on."""
    arm = data["arms"]["baseline"]
    if data["site"]["runtime"] == "docker":
        return list(arm["container"]["published"])
    return [flag[1] for flag in arm["flags"] if flag[0] == "--host"]


@pytest.mark.parametrize("runtime", ["docker", "process"])
def test_with_a_gateway_the_engine_stays_on_loopback(runtime: str) -> None:
    assert listens(resolved(runtime=runtime, **OPEN)) != ["127.0.0.1"]
    data = resolved(runtime=runtime, gateway=True, **OPEN)
    assert listens(data) == ["127.0.0.1"]
    assert data["gateway"] == {"port": 8443, "name": ""}


def test_a_name_brings_the_usual_port() -> None:
    assert resolved(gateway=True, gateway_name="llm.example.org")["gateway"] == {"port": 443, "name": "llm.example.org"}
    named = resolved(gateway=True, gateway_name="llm.example.org", gateway_port=8444)
    assert named["gateway"] == {"port": 8444, "name": "llm.example.org"}
    assert resolved()["gateway"] is None
    assert resolved(gateway=False, gateway_name="llm.example.org")["gateway"] is None


def test_a_gateway_asks_for_no_new_measurement() -> None:
    assert measured_key(resolved()) == measured_key(resolved(gateway=True, gateway_port=9443))


@pytest.mark.parametrize(
    ("site", "where"),
    [
        ({"gateway_port": 8000}, "site.gateway_port"),
        ({"gateway_port": 8001}, "site.gateway_port"),
        ({"gateway_name": "10.0.0.1"}, "site.gateway_name"),
        ({"gateway_name": "box"}, "site.gateway_name"),
        ({"host": "0.0.0.0"}, "site.host"),
        ({"gateway_port": 0}, "site: gateway_port"),
        ({"gateway": "perhaps"}, "site: gateway"),
        ({"gateway_prot": 8443}, "site: gateway_prot"),
    ],
    ids=str,
)
def test_a_site_that_will_not_do(site: dict[str, Any], where: str) -> None:
    with pytest.raises(DrafthouseError) as caught:
        resolved(**{"gateway": True, **site})
    assert [problem.where for problem in caught.value.problems] == [where]


def test_words_of_the_command_line() -> None:
    words = site_from({"drafthouse_gateway": "true", "drafthouse_gateway_port": "9443"})
    assert (words["gateway"], words["gateway_port"]) == (True, 9443)
    assert site_from({"drafthouse_gateway": "False"})["gateway"] is False


# --- the firewall -----------------------------------------------------------------------------------


def test_the_gateways_port_is_opened_and_the_engines_is_closed() -> None:
    wished = firewall.wishes([8443], ["192.0.2.0/24"], ["docker0"], [22], [8000, 8001])
    rules = firewall.rules(wished, 4)
    assert [rule for rule in rules if "192.0.2.0/24" in rule and "8443" not in rule] == []
    assert sum("192.0.2.0/24" in rule for rule in rules) == 2
    for port in (8000, 8001, 8443):
        assert f"-A DRAFTHOUSE-INPUT -p tcp -m tcp --dport {port} -j DROP" in rules
        assert f"-A DRAFTHOUSE-INPUT -i lo -p tcp -m tcp --dport {port} -j ACCEPT" in rules
    with refuses("firewall-would-lock-out"):
        firewall.wishes([8443], [], [], [22], [22])
