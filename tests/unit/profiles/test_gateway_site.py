"""What a gateway changes of a site: where the engine listens, what the firewall opens, and where Caddy comes from."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.host.deb_unpack import ensure
from drafthouse.host.debian_programs import PROGRAMS
from drafthouse.host.firewall import rules as firewall
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.workspace import resolved_profile, site_from, site_of_inventory
from tests.support.gateway import real_caddy
from tests.support.refusals import refuses

pytestmark = pytest.mark.processes

GPU = "rtx6000-qwen-eagle3"
CADDY = PROGRAMS["caddy"]
OPEN: dict[str, Any] = {"allow_cidrs": ["192.0.2.0/24"]}


def resolved(inventory: str = "workstation", profile: str = GPU, **site: Any) -> Any:
    return resolved_profile(profile, {**site_of_inventory(inventory), **site})


def listens(data: Mapping[str, Any]) -> list[str]:
    """Return the addresses that the baseline arm is told to listen on, or is published on."""
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
    words: object = site_from({"drafthouse_gateway": "true", "drafthouse_gateway_port": "9443"})
    assert words == {"gateway": True, "gateway_port": 9443}
    found: object = site_from({"drafthouse_gateway": "False"})
    assert found == {"gateway": False}


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


# --- where Caddy comes from -------------------------------------------------------------------------


class Box:
    """A box with apt, as `run` sees it: what each program answers."""

    def __init__(self, offered: str = "2.6.2-5", version: str = "2.6.2", download: int = 0, lists: bool = True) -> None:
        self.offered, self.version, self.download, self.lists = offered, version, download, lists
        self.said: list[str] = []

    def __call__(self, words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
        self.said.append(" ".join(words[:2]))
        out, status = "", 0
        if words[0] == "apt-cache" and self.lists:
            out = f"caddy:\n  Installed: (none)\n  Candidate: {self.offered or '(none)'}\n"
        elif words[:2] == ["apt-get", "update"]:
            self.lists = True
        elif words[:2] == ["apt-get", "download"]:
            status = self.download
            if not status:
                (folder / "caddy.deb").touch()
        elif words[0] == "dpkg-deb":
            (folder / "usr/bin").mkdir(parents=True)
            (folder / "usr/bin/caddy").write_text(self.offered)
        elif words[1:] == ["version"]:
            out = f"v{self.version} h1:abc=\n"
        return subprocess.CompletedProcess(list(words), status, out, "E: it failed" if status else "")


def test_the_distributions_is_unpacked_once_and_again_when_there_is_a_newer_one(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    planned = ensure(CADDY, "", folder, check=True, run=Box(), path="")
    assert (planned.changed, folder.exists()) == (True, False)
    assert ensure(CADDY, "", folder, run=Box(), path="").changed
    again = Box()
    assert not ensure(CADDY, "", folder, run=again, path="").changed
    assert "apt-get download" not in again.said
    assert ensure(CADDY, "", folder, run=Box("2.6.2-5+deb12u1"), path="").changed
    assert (folder / "caddy").read_text() == "2.6.2-5+deb12u1"
    assert sorted(path.name for path in folder.iterdir()) == ["caddy", "package"]
    # Killed between the program and the mark.
    (folder / "package").unlink()
    assert ensure(CADDY, "", folder, run=Box(), path="").changed


def test_a_box_without_lists_gets_them_first(tmp_path: Path) -> None:
    box = Box(lists=False)
    assert ensure(CADDY, "", tmp_path / "bin", run=box, path="").changed
    assert box.said.index("apt-get update") < box.said.index("apt-get download")


@pytest.mark.parametrize(
    ("box", "said"),
    [
        (Box(offered=""), "no package caddy"),
        (Box(download=100), "apt-get download said: E: it failed"),
        (Box(version="2.5.2"), "caddy 2.5.2"),
        (Box(version=""), "no caddy"),
    ],
)
def test_no_caddy_to_be_had(tmp_path: Path, box: Box, said: str) -> None:
    with pytest.raises(DrafthouseError) as caught:
        ensure(CADDY, "", tmp_path / "bin", run=box, path="")
    assert said in caught.value.problems[0].found
    assert "gateway_binary" in caught.value.problems[0].do


def test_the_one_that_is_named(tmp_path: Path) -> None:
    real = real_caddy()
    assert ensure(CADDY, real, tmp_path).path == real
    for wrong in (str(tmp_path / "none"), "/bin/true"):
        with pytest.raises(DrafthouseError, match="no caddy"):
            ensure(CADDY, wrong, tmp_path)
