"""The gateway's door with the real Caddy: closed, it holds what comes; open again, nothing has failed."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons.gateway import files, problems
from drafthouse.addons.gateway_door import door_folder
from drafthouse.addons.watchdog.switch import Door
from tests.fakes import in_process
from tests.support.gateway import KEY, TEMPLATES, Gateway, real_caddy, settings_for, started, with_
from tests.support.ports import free_port

pytestmark = pytest.mark.processes

#: More than any buffer between a client and the engine takes.
LONG = 600_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway whose engine is away: its port is nobody's."""
    home = tmp_path_factory.mktemp("d")
    settings = with_(settings_for(home, f"127.0.0.1:{free_port()}", real_caddy()), hold_s=120)
    with started(settings) as running:
        yield running


@pytest.fixture
def door(gateway: Gateway) -> Iterator[Door]:
    one = Door(door_folder(gateway.settings.home))
    yield one
    one.open()


def ask(gateway: Gateway, key: str = KEY, said: str = "yes?") -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection("127.0.0.1", gateway.settings.port, timeout=180, context=gateway.trust())
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        body = {"model": "clock", "messages": [{"role": "user", "content": said}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def asked_beside(gateway: Gateway, number: int) -> tuple[list[threading.Thread], list[tuple[int, bytes]]]:
    """Ask so many things at once, each of them long and no two the same."""
    answers: list[tuple[int, bytes]] = []

    def one(said: str) -> None:
        answers.append(ask(gateway, said=said))

    threads = [threading.Thread(target=one, args=(str(at) * LONG,), daemon=True) for at in range(number)]
    for thread in threads:
        thread.start()
    return threads, answers


def test_open_it_passes_at_once_and_an_engine_that_is_away_is_said_at_once(gateway: Gateway, door: Door) -> None:
    assert door.exists
    began = time.monotonic()
    assert ask(gateway)[0] == 502
    assert time.monotonic() - began < gateway.settings.hold_s / 2


@contextmanager
def engine_of(gateway: Gateway) -> Iterator[Callable[[], list[str]]]:
    """Have an engine behind the gateway; yields what tells all that it was asked."""
    port = int(gateway.settings.upstream.rpartition(":")[2])
    engine, _ = in_process.started("tests.fakes.clock_server", {"plain": True}, port)

    def asked() -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/record", timeout=60) as answer:
            return [one["request"]["messages"][0]["content"] for one in json.load(answer)["requests"]]

    try:
        yield asked
    finally:
        engine.terminate()
        engine.communicate(timeout=120)


def test_what_comes_while_it_is_closed_reaches_the_next_engine_whole(gateway: Gateway, door: Door) -> None:
    door.close()
    threads, answers = asked_beside(gateway, 5)
    time.sleep(1.5)
    assert answers == []
    # The key is asked for before anybody waits.
    assert ask(gateway, "wrong")[0] == 401
    with engine_of(gateway) as asked:
        door.open()
        for thread in threads:
            thread.join(120)
        assert [status for status, _ in answers] == [200] * 5
        assert sorted(asked()) == [str(at) * LONG for at in range(5)]
        # From then on directly.
        assert ask(gateway)[0] == 200


def test_closed_again_it_holds_again(gateway: Gateway, door: Door) -> None:
    """Also what could come through by the connection of somebody who has just been let through."""
    with engine_of(gateway) as asked:
        for _ in range(2):
            before = len(asked())
            door.close()
            threads, answers = asked_beside(gateway, 3)
            time.sleep(1)
            assert (answers, len(asked())) == ([], before)
            door.open()
            for thread in threads:
                thread.join(120)
            assert [status for status, _ in answers] == [200] * 3


def test_the_longest_wait_has_an_end(tmp_path: Path) -> None:
    settings = with_(settings_for(tmp_path / "d", f"127.0.0.1:{free_port()}", real_caddy()), hold_s=1)
    with started(settings) as running:
        door = Door(door_folder(settings.home))
        door.close()
        began = time.monotonic()
        status, body = ask(running)
        assert (status, json.loads(body)["error"]["code"]) == (502, "engine_away")
        assert time.monotonic() - began > 0.9  # and it has an end


def test_without_it_the_files_are_as_they_were(tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "x", "127.0.0.1:8000", "caddy")
    text = "".join(file["content"] for file in files(TEMPLATES, settings) if "content" in file)
    for word in ("unix/", "lb_try", "closed"):
        assert word not in text
    assert "door" not in text


@pytest.mark.parametrize(
    ("changed", "where"), [({"hold_s": -1}, "gateway_hold_s"), ({"home": "/" + "h" * 100, "hold_s": 9}, "gateway_home")]
)
def test_what_is_no_setting_is_said(tmp_path: Path, changed: dict[str, Any], where: str) -> None:
    settings = settings_for(tmp_path / "x", "127.0.0.1:8000", "caddy")
    assert [one.where for one in problems(replace(settings, **changed))] == [where]
