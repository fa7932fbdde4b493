"""A fleet's front with the real Caddy before two boxes' gateways: who gets what, and what a death or a drain costs."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons.fleet.ready import Readiness, answering
from drafthouse.addons.gateway import Replica, Settings, files, problems
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.files import lay_out
from drafthouse.core.places import ORDER
from drafthouse.core.requirement_lines import read_lock
from drafthouse.host.env_recipe import EnvRecipe
from drafthouse.host.venv import ensure_env
from drafthouse.profiles.render import program_entries
from drafthouse.profiles.workspace import ROOT
from drafthouse.serving.out_of_traffic import DRAIN, FOLDER, out_file
from tests.fakes import in_process
from tests.support.gateway import KEY, TEMPLATES, Gateway, give_key, make_certificate, real_caddy, settings_for, started
from tests.support.ports import free_port

pytestmark = pytest.mark.alone  # what is in flight when an engine is killed is known by the clock

CHAT = "/v1/chat/completions"
APART_S = 0.05
SEEN_S = 3.0  # the front checks every 2 s


@dataclass
class Answer:
    """What a client saw: ``whole`` if the stream ended with [DONE]."""

    status: int
    text: str

    @property
    def whole(self) -> bool:
        return self.status == 200 and self.text.rstrip().endswith("data: [DONE]")


@dataclass
class Box:
    """A box of the fleet: its gateway, and an engine that can be killed."""

    gateway: Gateway
    port: int
    engine: Any = None

    def start(self) -> None:
        self.engine, _ = in_process.started("tests.fakes.clock_server", {"tokens": 120}, self.port)

    def kill(self) -> None:
        os.kill(self.engine.pid, signal.SIGKILL)
        self.engine.communicate(timeout=120)

    def asked(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/record", timeout=60) as answer:
            return len(json.load(answer)["requests"])

    @contextmanager
    def out(self, owner: str) -> Iterator[None]:
        """The box is out of traffic while the block runs, and the front knows."""
        file = out_file(Path(self.gateway.settings.home), owner)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("a test\n")
        time.sleep(SEEN_S)
        try:
            yield
        finally:
            file.unlink()


@dataclass
class Fleet:
    """Two boxes behind a front."""

    boxes: list[Box]
    front: Gateway

    def ask(self, key: str = KEY, said: str = "yes?", path: str = CHAT, session: str = "") -> Answer:
        trust = ssl.create_default_context(cafile=self.front.certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", self.front.settings.port, timeout=120, context=trust)
        body = {"model": "clock", "stream": True, "messages": [{"role": "user", "content": said}]}
        try:
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "x-session-id": session}
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode())
        except (OSError, http.client.HTTPException) as error:
            return Answer(200, f"broken off: {error}")
        finally:
            connection.close()

    def ask_many(self, number: int) -> tuple[list[threading.Thread], list[Answer]]:
        answers: list[Answer] = []
        threads = [threading.Thread(target=lambda: answers.append(self.ask()), daemon=True) for _ in range(number)]
        for thread in threads:
            thread.start()
            # Two that come at the very same moment see the same numbers of connections, and choose the same box.
            time.sleep(APART_S)
        return threads, answers

    def settled(self) -> None:
        """Wait until both boxes take requests again: no earlier test's failure keeps one out."""
        end = time.monotonic() + 120
        while True:
            before = [box.asked() for box in self.boxes]
            threads, answers = self.ask_many(4)
            for thread in threads:
                thread.join(120)
            if all(after > one for after, one in zip([box.asked() for box in self.boxes], before, strict=True)):
                assert all(answer.whole for answer in answers), answers
                return
            assert time.monotonic() < end, self.front.log.read_text()


def front_settings(home: Path, replicas: list[Replica], **more: Any) -> Settings:
    make_certificate(home)
    key_file = str(home / "secrets" / "api_key")
    return Settings(
        home=str(home), port=free_port(), upstream="", key_file=key_file, binary=real_caddy(), max_body_mb=1,
        replicas=tuple(replicas), **more,
    )  # fmt: skip


def replica_of(name: str, box: Gateway) -> Replica:
    return Replica(name, "127.0.0.1", box.settings.port, Path(box.certificate).read_text())


@contextmanager
def answers_ready(home: Path, settings: Settings, port: int) -> Iterator[None]:
    """What answers /ready, as the program on a box does."""
    (home / FOLDER).mkdir()
    order = {
        "base_url": f"http://127.0.0.1:{port}", "health": "/v1/models", "metrics_path": "/metrics", "model": "clock",
        "key_file": settings.key_file,
    }  # fmt: skip
    (home / FOLDER / ORDER).write_text(json.dumps(order))
    with answering(home, Readiness(home)):
        yield


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with ExitStack() as stack:
        boxes = []
        for name in ("a", "b"):
            home, port = tmp_path_factory.mktemp(name), free_port()
            settings = replace(settings_for(home, f"127.0.0.1:{port}", real_caddy()), replica=True, health="/v1/models")
            box = Box(stack.enter_context(started(settings)), port)
            stack.enter_context(answers_ready(home, settings, port))
            box.start()
            stack.callback(box.kill)
            boxes.append(box)
        home = tmp_path_factory.mktemp("front")
        give_key(home, KEY)
        replicas = [replica_of(name, box.gateway) for name, box in zip("ab", boxes, strict=True)]
        yield Fleet(boxes, stack.enter_context(started(front_settings(home, replicas))))


@pytest.fixture(autouse=True)
def _settled(fleet: Fleet) -> None:
    fleet.settled()


def test_the_key_is_asked_for_and_nothing_else_is_there(fleet: Fleet) -> None:
    assert fleet.ask("wrong").status == 401
    assert [fleet.ask(path=path).status for path in ("/metrics", "/ready", "/metrics/../v1/x")] == [404, 404, 404]
    assert fleet.ask(said="x" * 1_100_000).status == 413


def test_without_any_replica_it_says_so_and_waits_for_one_a_while(fleet: Fleet) -> None:
    with ExitStack() as stack:
        for box in fleet.boxes:
            stack.enter_context(box.out(DRAIN))
        late = threading.Timer(3, stack.close)
        late.start()
        assert fleet.ask().whole
        late.join()
    with ExitStack() as stack:
        for box in fleet.boxes:
            stack.enter_context(box.out(DRAIN))
        answer = fleet.ask()
        assert answer.status in (502, 503)
        assert "error" in json.loads(answer.text)


@pytest.fixture(scope="module")
def routed(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The same boxes behind a front with vllm-router, from its lock."""
    folder = tmp_path_factory.mktemp("routed")
    give_key(folder, KEY)
    environment = ROOT / ".cache" / "fleet" / "vllm-router"
    lock = read_lock((ROOT / "roles/program/files/vllm-router.txt").read_text("utf-8"))
    uv = Path(sys.executable).with_name("uv")
    ensure_env(EnvRecipe(str(environment), [], lock), str(uv) if uv.exists() else None)
    router = folder / "fleet" / "router"
    port = free_port(4)
    data = {"port": port, "replicas": 2, "policy": "consistent_hash"}
    entries = program_entries(TEMPLATES, str(router), "fleet/router.sh.j2", data)
    lay_out([{"path": str(folder / "fleet"), "mode": "0755"}, *entries])
    (router / "venv").symlink_to(environment)
    replicas = [replica_of(name, box.gateway) for name, box in zip("ab", fleet.boxes, strict=True)]
    with started(front_settings(folder, replicas, router_port=port)) as front:
        process = subprocess.Popen([router / "serve.sh"])
        try:
            one = Fleet(fleet.boxes, front)
            end = time.monotonic() + 120
            while not one.ask().whole:
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.5)
            yield one
        finally:
            process.terminate()
            process.wait(120)


@pytest.mark.soak
def test_behind_vllm_router_a_session_stays_with_its_replica(routed: Fleet, tmp_path: Path) -> None:
    for session in ("one", "two", "three"):
        before = [box.asked() for box in routed.boxes]
        assert all(routed.ask(session=session, said="a secret of mine").whole for _ in range(3))
        assert 0 in [box.asked() - one for box, one in zip(routed.boxes, before, strict=True)]
    assert routed.ask("wrong").status == 401
    home = Path(routed.front.settings.home)
    found = [file for file in home.rglob("*") if file.is_file() and "venv" not in file.parts]
    assert not [file for file in found if b"a secret of mine" in file.read_bytes()]


@pytest.mark.soak
def test_behind_vllm_router_a_drained_box_gets_no_request(routed: Fleet) -> None:
    for drained, other in (routed.boxes, reversed(routed.boxes)):
        with drained.out(DRAIN):
            time.sleep(6)  # it asks every two seconds
            before = drained.asked()
            assert all(routed.ask(session=session).whole for session in ("one", "two", "three"))
            assert drained.asked() == before
        assert other.asked()
        time.sleep(6)


def test_another_certificate_is_no_replica(fleet: Fleet, tmp_path: Path) -> None:
    """A stranger at a box's address gets neither key nor prompt."""
    home = tmp_path / "stranger"
    home.mkdir()
    make_certificate(home)
    give_key(home, KEY)
    stranger = Path(home, "gateway", "tls", "certificate.pem").read_text()
    told = Replica("a", "127.0.0.1", fleet.boxes[0].gateway.settings.port, stranger)
    one = tmp_path / "front"
    one.mkdir()
    give_key(one, KEY)
    before = fleet.boxes[0].asked()
    with started(front_settings(one, [told])) as front:
        answer = Fleet(fleet.boxes, front).ask()
    assert answer.status in (502, 503)
    assert fleet.boxes[0].asked() == before


def test_only_its_owner_reaches_the_front_s_admin_api(fleet: Fleet) -> None:
    folder = Path(fleet.front.settings.folder) / "data" / "admin"
    assert folder.stat().st_mode & 0o777 == 0o700
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(folder / "admin.sock"))
        one.sendall(b"GET /reverse_proxy/upstreams HTTP/1.0\r\n\r\n")
        text = one.makefile("rb").read()
    dials = [f"127.0.0.1:{box.gateway.settings.port}" for box in fleet.boxes]
    assert {upstream["address"] for upstream in json.loads(text.partition(b"\r\n\r\n")[2])} == set(dials)


def test_outside_the_box_ready_has_no_reason(fleet: Fleet) -> None:
    with fleet.boxes[0].out(DRAIN):
        trust = fleet.boxes[0].gateway.trust()
        connection = http.client.HTTPSConnection(
            "127.0.0.1", fleet.boxes[0].gateway.settings.port, timeout=60, context=trust
        )
        connection.request("GET", "/ready")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (503, b"")
        connection.close()


def test_neither_key_nor_prompt_is_in_a_log(fleet: Fleet) -> None:
    fleet.ask(said="a prompt that nobody reads")
    for gateway in (fleet.front, *(box.gateway for box in fleet.boxes)):
        text = gateway.log.read_text()
        assert KEY not in text
        assert not re.search("nobody reads", text)


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    wrong = Replica("a", "10.0.0.1 {", 8443, "")
    (tmp_path / "secrets").mkdir()
    settings = front_settings(tmp_path, [wrong])
    assert [problem.where for problem in problems(settings)] == ["a"]
    with pytest.raises(DrafthouseError):
        files(TEMPLATES, settings)
