"""What follows from the container engine that a box has: left alone, installed, or refused with the reason."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.docker_api import DockerApi, EngineError
from drafthouse.core.errors import DrafthouseError
from drafthouse.host.docker import engine as container_engine
from drafthouse.host.docker.daemon_plan import last_line
from drafthouse.host.docker.dockerd_flags import option, without
from drafthouse.host.docker.engine import MachineFacts, decide, leaving
from drafthouse.host.docker.gpu_check import _ldd, linked
from tests.support.docker_socket import docker_socket

BARE = MachineFacts(os_id="debian", version="13", codename="trixie", architecture="amd64")
TRIXIE = {"docker.io": "26.1.5+dfsg1-9+b4", "docker-cli": "26.1.5+dfsg1-9+b4", "docker-compose": "2.26.1-4"}
BOOKWORM = {"docker.io": "20.10.24+dfsg1-1", "docker-compose": "1.29.2-3"}
NOBLE = {"docker.io": "28.2.2-0ubuntu1~24.04.1", "docker-compose-v2": "2.37.1+ds1", "docker-compose": "1.29.2-6"}


def test_a_bare_box_gets_what_its_source_calls_the_engine() -> None:
    docker = decide(BARE, "docker", "auto")
    assert docker.install == ("docker-ce", "docker-ce-cli", "containerd.io", "docker-compose-plugin")
    assert docker.repository
    assert not docker.nvidia
    for candidates, names in (
        (TRIXIE, ("docker.io", "docker-cli", "docker-compose")),
        (BOOKWORM, ("docker.io",)),  # docker-compose 1 is another program
        (NOBLE, ("docker.io", "docker-compose-v2")),
    ):
        made = decide(replace(BARE, candidates=candidates), "distribution", "auto")
        assert made.install == names
        assert made.complete
        assert not made.repository
    assert not decide(BARE, "distribution", "auto").complete
    assert "apparmor" in decide(replace(BARE, apparmor_missing=True), "docker", "auto").install


def test_an_engine_that_works_is_left_alone() -> None:
    seen = replace(BARE, answer={"Version": "27.0.3"}, packages={"docker.io": "27.0.3"}, rootless_users=("ann",))
    decision = decide(seen, "docker", "auto")
    assert (decision.engine, decision.install, decision.repository) == ("left alone", (), False)
    assert "27.0.3" in decision.why[1]
    assert "ann" in decision.why[0]
    stopped = replace(BARE, packages={"docker-ce": "5:27.0.3"})
    assert decide(stopped, "distribution", "auto").install == ()
    assert decide(replace(stopped, unfinished=True), "docker", "auto").install != ()


def test_what_is_taken_away_with_the_engine() -> None:
    seen = replace(BARE, packages={"docker.io": "26.1", "docker-cli": "26.1", "runc": "1.1", "podman-docker": "5"})
    ours: Any = {"Names": ["/drafthouse-speculative"], "Labels": {"drafthouse.arm": "speculative"}}
    assert leaving(seen, [ours]) == ("docker.io", "docker-cli")
    assert leaving(BARE, []) == ()
    with pytest.raises(DrafthouseError, match="not ours are running: db, web"):
        leaving(seen, [ours, {"Names": ["/web"], "Labels": {}}, {"Names": ["/db"], "Labels": None}])


def test_the_toolkit_comes_with_the_gpu() -> None:
    seen = replace(BARE, answer={"Version": "29.0.0"})
    assert not decide(seen, "docker", "auto").nvidia
    assert decide(seen, "docker", "always").nvidia_install
    assert decide(replace(seen, gpu_devices=1), "docker", "auto").nvidia_install
    assert not decide(replace(seen, gpus=1), "docker", "never").nvidia
    there = replace(seen, gpus=1, packages={"nvidia-container-toolkit": "1.20.0-1"})
    assert decide(there, "docker", "auto").nvidia
    assert not decide(there, "docker", "auto").nvidia_install
    by_hand = replace(seen, gpus=1, toolkit="1.17.8", has_apt=False, os_id="rocky")
    assert not decide(by_hand, "docker", "auto").nvidia_install


@pytest.mark.parametrize(
    ("change", "found", "do"),
    [
        ({"systemd": False}, "without systemd", "process"),
        ({"snap": True, "command": "/snap/bin/docker"}, "snap", "snap remove docker"),
        ({"command_is_podman": True, "command": "/usr/bin/docker"}, "Podman", "podman-docker"),
        ({"answer": {"Version": "5.4.0", "Components": [{"Name": "Podman Engine"}]}}, "Podman behind", "podman-docker"),
        ({"answer": {"Version": "27.0"}, "rootless_answer": True}, "rootless", "unlink"),
        ({"answer": {"Version": "19.03.9"}}, "19.03.9", "upgrade"),
        ({"missing_users": ("bob",)}, "bob", "create them"),
        ({"os_id": "fedora"}, "fedora", "container_engine_source=distribution"),
        ({"codename": ""}, "debian", "container_engine_source=distribution"),
        ({"gpus": 1, "toolkit": "1.14.3"}, "Toolkit 1.14.3", "--only-upgrade nvidia-container-toolkit"),
        ({"gpus": 1, "packages": {"nvidia-container-toolkit": "1.9.0-1"}}, "Toolkit 1.9.0", "then run again"),
        ({"gpus": 1, "has_apt": False}, "without apt", "the way this system does"),
    ],
)
def test_what_is_refused_says_why_and_what_to_do(change: dict[str, Any], found: str, do: str) -> None:
    with pytest.raises(DrafthouseError) as caught:
        decide(replace(BARE, **change), "docker", "auto")
    (problem,) = caught.value.problems
    assert found in problem.found
    assert do in problem.do


def test_all_reasons_at_once_and_a_relative_of_ubuntu() -> None:
    with pytest.raises(DrafthouseError) as caught:
        decide(replace(BARE, systemd=False, snap=True, missing_users=("bob",)), "docker", "auto")
    assert len(caught.value.problems) == 3
    mint = replace(BARE, os_id="linuxmint", os_like="ubuntu debian", codename="noble")
    assert container_engine.docker_distribution(mint) == "ubuntu"


def test_podman_s_stand_in_is_known_by_its_text(tmp_path: Path) -> None:
    shim = tmp_path / "docker"
    shim.write_text(
        '#!/usr/bin/sh\n[ -e /etc/containers/nodocker ] || echo "Emulate Docker CLI" >&2\nexec podman "$@"\n'
    )
    assert container_engine._is_podman(str(shim))
    shim.write_text("#!/bin/sh\nexec /opt/docker-wrapper\n")
    assert not container_engine._is_podman(str(shim))
    assert not container_engine._is_podman("")


@pytest.mark.processes
def test_a_look_changes_nothing_and_needs_nothing() -> None:
    seen = container_engine.read_machine(["root", "no-such-user"])
    assert seen.missing_users == ("no-such-user",)
    assert seen.os_id


# --- the engine's socket ----------------------------------------------------------------------------


ANSWERS = {
    "/_ping": (200, "text/plain", b"OK"),
    "/info": (200, "application/json", b'{"DockerRootDir": "/var/lib/docker"}\n'),
    "/images/create": (200, "application/json", b'{"status": "1"}\n{"status": "2"}\n'),
    "/late": (200, "application/json", b'{"status": "1"}\n{"error": "no space left"}\n'),
    "/refused": (409, "application/json", b'{"message": "in use"}'),
    # Docker 20.10 names no kind; a length above 127 is no letter of UTF-8.
    "/containers/x/logs": (200, "", b"\x01\0\0\0\0\0\0\x03abc\x02\0\0\0\0\0\0\xc8" + 200 * b"d"),
    "/containers/x/exec": (201, "application/json", b'{"Id": "7"}'),
    "/exec/7/start": (200, "application/vnd.docker.raw-stream", b"\x01\0\0\0\0\0\0\x05GPU 0"),
}


@pytest.fixture
def api() -> Iterator[DockerApi]:
    with docker_socket(ANSWERS) as (path, _):
        yield DockerApi(path)


def test_answers_are_read_by_their_kind(api: DockerApi) -> None:
    assert api.answers()
    assert api.info()["DockerRootDir"] == "/var/lib/docker"
    assert api.call("POST", "/images/create", b"tar", fromSrc="-") == [{"status": "1"}, {"status": "2"}]
    assert api.log("x") == "abc" + 200 * "d"
    assert api.execute("x", ["nvidia-smi", "-L"]) == "GPU 0"
    with pytest.raises(EngineError, match="in use"):
        api.call("GET", "/refused")
    with pytest.raises(EngineError, match="no space left"):
        api.call("POST", "/late")


def test_nobody_there(tmp_path: Path) -> None:
    nobody = DockerApi(str(tmp_path / "nobody"))
    assert not nobody.answers()
    with pytest.raises(DrafthouseError, match="journalctl"):
        nobody.info()


# --- small things -----------------------------------------------------------------------------------


@pytest.mark.processes
def test_libraries_of_a_program() -> None:
    printed = [
        "\tlinux-vdso.so.1 (0x00007ffd1b5f2000)",
        "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1d2a000000)",
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f1d2a3f9000)",
    ]
    assert linked(printed) == ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
    assert linked(["\tnot a dynamic executable"]) == []
    assert all(Path(path).exists() for path in linked(_ldd(os.path.realpath("/bin/sh"))))


def test_words_of_a_command_line() -> None:
    words = ["-H", "fd://", "--config-file=/a.json", "--config-file", "/b.json", "--debug"]
    assert option(words, "--config-file") == "/b.json"
    assert option(["-H", "fd://"], "--config-file") == ""
    assert without(words, "--config-file") == ["-H", "fd://", "--debug"]
    assert last_line("one\n  two http://me:secret@host \n\n") == "two http://***@host"
    assert last_line("") == "(it said nothing)"


def test_decisions_travel_as_json() -> None:
    assert json.loads(json.dumps(asdict(decide(BARE, "docker", "always"))))["nvidia"] is True
