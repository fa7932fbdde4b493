"""The role gateway in the docker runtime: Debian's Caddy in an image of the tests, on this machine's own network."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.addons.gateway_door import door_folder
from drafthouse.addons.gateway_ready import request_status, trust_of
from drafthouse.addons.watchdog.switch import Door
from tests.e2e.conftest import Ended, play
from tests.fakes.stepping_server import MODEL, stepping_server
from tests.hosts.hosts import Lab
from tests.support.gateway import KEY, give_key, real_caddy
from tests.support.ports import free_port

IMAGE = "drafthouse-test/caddy:debian"
NAME = "drafthouse-gateway"
PORT = free_port()
Role = Callable[..., Ended]


@pytest.fixture(scope="module")
def client(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The container engine, with an image that has the program where the makers' own has it."""
    found = lab.client
    folder = tmp_path_factory.mktemp("image")
    shutil.copy(real_caddy(), folder / "caddy")
    base = lab.images.image("peer")
    (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY caddy /usr/bin/caddy\nENTRYPOINT []\nCMD []\n")
    found.images.build(path=str(folder), tag=IMAGE)
    yield found
    for container in found.containers.list(all=True, filters={"name": NAME}):
        container.remove(force=True)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("gw")
    give_key(home, KEY)
    return home


@pytest.fixture(scope="module")
def role(home: Path, client: Any) -> Iterator[Role]:
    task = {"name": "Gateway", "ansible.builtin.include_role": {"name": "gateway"}}
    book = home / "gateway.yml"
    book.write_text(yaml.safe_dump([{"name": "Gateway", "hosts": "all", "gather_facts": False, "tasks": [task]}]))
    with stepping_server() as behind, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTHOUSE_STATE", str(home / "state"))
        given = {
            "gateway_runtime": "docker",
            "gateway_home": str(home),
            "gateway_python": sys.executable,  # it has docker
            "gateway_port": PORT,
            "gateway_upstream": f"127.0.0.1:{behind.port}",
            "gateway_key_file": str(home / "secrets/api_key"),
            "gateway_model": MODEL,
            "gateway_image": IMAGE,
        }
        yield lambda *words, **changed: play(str(book), *words, **{**given, **changed})


def status(home: Path, key: str) -> int:
    return request_status(PORT, "", trust_of(str(home / "gateway/tls/certificate.pem")), "/v1/models", key)


def test_it_stands_without_rights_it_does_not_need(role: Role, home: Path, client: Any) -> None:
    done = role()
    assert done.status == 0, done.output
    assert KEY not in done.output
    assert (status(home, ""), status(home, KEY)) == (401, 200)
    container = client.containers.get(NAME)
    settings = container.attrs["HostConfig"]
    assert settings["CapDrop"] == ["ALL"]
    assert settings["ReadonlyRootfs"]
    assert not settings["Privileged"]
    # What anybody who may ask the container engine can see.
    assert KEY not in str(container.attrs)
    assert KEY.encode() not in container.logs()


def test_a_second_run_changes_nothing_and_another_key_makes_another_container(
    role: Role, home: Path, client: Any
) -> None:
    before = client.containers.get(NAME).id
    again = role()
    assert (again.status, again.changed) == (0, 0), again.output
    assert client.containers.get(NAME).id == before
    give_key(home, f"{KEY}-2")
    assert role().status == 0
    assert client.containers.get(NAME).id != before
    assert (status(home, KEY), status(home, f"{KEY}-2")) == (401, 200)


def test_a_closed_door_holds_what_comes_and_open_again_it_lets_it_through(role: Role, home: Path) -> None:
    give_key(home, KEY)
    assert role(gateway_hold_s=120).status == 0
    door = Door(door_folder(str(home)))
    assert door.exists
    for _ in range(2):
        door.close()
        with ThreadPoolExecutor() as pool:
            held = [pool.submit(status, home, KEY) for _ in range(3)]
            time.sleep(1)
            waiting = [one.done() for one in held]
            door.open()
        assert waiting == [False] * 3
        assert [one.result() for one in held] == [200] * 3
    assert status(home, KEY) == 200


def test_without_a_key_no_container_is_asked_for(role: Role, home: Path) -> None:
    missing = home / "secrets/none"
    done = role(gateway_key_file=str(missing))
    assert done.status == 2
    assert "needed: the API key" in done.output
    # Docker makes a folder of a file that is to be mounted and is not there.
    assert not missing.exists()


def test_absent_leaves_nothing(role: Role, home: Path, client: Any) -> None:
    assert role(gateway_state="absent").status == 0
    assert client.containers.list(all=True, filters={"name": NAME}) == []
    assert not (home / "gateway").exists()
