"""docs/proxy.md: a clone and its box where only a proxy and a package index answer."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.fakes.hub_server import Hub, hub_server
from tests.support.forward_proxy import Company, company
from tests.support.programs import needs
from tests.weights.harness import Job, a_model

pytestmark = [pytest.mark.soak, pytest.mark.processes, needs("unshare", "ip", "git")]
HUB = "hub.example"
#: Where wheels lie: PyPI's pages name them there, and a mirror's pages do, too.
FILES = {"files.pythonhosted.org"}


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with hub_server(Hub(a_model())) as server:
        yield server


@pytest.fixture
def network(hub: Hub) -> Iterator[Company]:
    with company({HUB: hub.url}) as made:
        yield made


def test_a_clone_and_its_box_are_set_up(network: Company, tmp_path: Path, figure: Callable[[str], None]) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    asked = {
        "HTTPS_PROXY": network.proxy,
        "PIP_INDEX_URL": network.index, "PIP_TRUSTED_HOST": network.index.split("/")[2],
        "UV_DEFAULT_INDEX": network.index,
    }  # fmt: skip
    # Without what this machine's own environment says of indexes, and without wheels that uv has already.
    plain = {name: os.environ[name] for name in ("PATH", "PIP_CERT", "SSL_CERT_FILE") if name in os.environ}
    plain |= {"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null", "ANSIBLE_CONFIG": str(clone / "ansible.cfg")}

    def within(*words: str, **variables: str) -> str:
        done = subprocess.run(
            [*network.enter, *words], cwd=clone, env={**plain, **variables},
            capture_output=True, text=True, timeout=1200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    within("make", "venv", **asked)
    assert network.asked == FILES
    play = ["site.yml", "-i", "inventory/local", "--tags", "host,weights"]
    within(".venv/bin/ansible-playbook", *play, "-e", json.dumps({"drafthouse_environment": asked}))
    assert list(clone.glob(".drafthouse/engines/*/bin/llama-server"))
    assert list(clone.glob(".drafthouse/models/*/*.gguf"))
    assert network.asked == FILES
    figure("behind a proxy: clone and box set up, and nothing but the index's files was asked for")


def test_weights_come_from_a_hub_through_the_proxy(network: Company, hub: Hub, tmp_path: Path) -> None:
    words = {"endpoint": f"http://{HUB}"}
    straight = Job(hub, tmp_path / "straight", {**words, "tries": 1}, before=network.enter).run()
    assert straight.returned == 1
    proxied = Job(hub, tmp_path / "model", words, {"http_proxy": network.proxy}, before=network.enter).run()
    assert proxied.returned == 0, proxied.text
    assert (tmp_path / "model" / "config.json").exists()
    assert network.asked == {HUB, f"files.{HUB}"}
