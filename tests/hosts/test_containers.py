"""Containers as they are defined, on a real container engine: made, left alone, mended, recorded and made again."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.docker_api import DockerApi
from drafthouse.profiles.container import arm_container, engine_words
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from drafthouse.serving.containers import (
    drifted,
    list_containers,
    published_ports,
    record_of_present,
    remove,
    run_alone,
)
from drafthouse.serving.runtimes import ContainerRuntime
from tests.e2e.conftest import Ended, play
from tests.hosts.hosts import Lab
from tests.support.ports import free_port

ARMS = ("baseline", "speculative")
# What is told of a container that nobody is attached to, and of limits that are none: the same in other words.
SAME = {"AttachStdout": (False, True), "AttachStderr": (False, True), "Ulimits": (None, [])}
# The profile, and what of the site shows in its container.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "TensorRT-LLM, opened to others": ("rtx6000-gptoss-trtllm-eagle3", {"allow_cidrs": ["192.0.2.0/24"]}),
    "vLLM on two GPUs": ("rtx6000-qwen-eagle3", {"gpus": ["0", "1"]}),
    "llama.cpp": ("rtx4090-llama32-llamacpp-draft1b", {}),
}


@pytest.fixture(scope="module")
def image(lab: Lab) -> str:
    return lab.images.image("base")


@pytest.fixture(autouse=True)
def nothing(image: str) -> Iterator[None]:
    """No container of an arm, before and after."""
    remove(list(list_containers()))
    yield
    remove(list(list_containers()))


def resolved(folder: Path, image: str, profile: str = "rtx6000-qwen-eagle3", **site: Any) -> Any:
    """A profile whose containers are of the base image."""
    places = {"home": str(folder / "home"), "models_dir": str(folder / "models"), "port": free_port()}
    found: Any = resolved_profile(profile, {**site_of_inventory("workstation"), **places, **site})
    for arm in found["arms"].values():
        arm["container"]["image"] = image
    return {key: value for key, value in found.items() if key not in ("extras", "suites", "prompts")}


def living(found: Any) -> Any:
    """The same, where there is no GPU: a shell that says a word and stays, published as the engine would be."""
    for arm in found["arms"].values():
        arm["container"] |= {"gpus": False, "command": [], "entrypoint": ["/bin/sh", "-c", "echo up; exec sleep 600"]}
    return found


def told(arm: str) -> Any:
    return DockerApi().call("GET", f"/containers/drafthouse-{arm}/json")


def made(folder: Path, found: Any, arms: dict[str, int], *words: str, **more: Any) -> Ended:
    """Play the one task that the role `serve` has."""
    containers = [arm_container(found, arm, port) for arm, port in arms.items()]
    given = {"containers": containers, "label": "drafthouse.arm", "home": found["site"]["home"], **more}
    task = {"name": "Ensure exactly these arms run", "drafthouse.core.containers": given}
    return played(folder, [task], {}, *words)


def played(folder: Path, tasks: list[Any], variables: Any, *words: str) -> Ended:
    book = folder / "containers.yml"
    variables = {"ansible_python_interpreter": sys.executable, **variables}
    book.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "vars": variables, "tasks": tasks}]))
    return play(str(book), *words)


def asked_before(found: Any, arm: str, port: int) -> dict[str, Any]:
    """The request to Docker's API for an arm's container, as boxes still have it from before `profiles/container.py`.

    ``found`` is a resolved profile. The request is community.docker's, to which the role `serve` left it then.
    """
    container = found["arms"][arm]["container"]
    inside = f"{container['port']}/tcp"
    files = "".join(file["content"] for file in found["arms"][arm]["files"])
    health = (
        f"exec 3<>/dev/tcp/127.0.0.1/{found['site']['port']}"
        f" && printf 'GET {found['engine']['health']} HTTP/1.0\\r\\n\\r\\n' >&3"
        " && read -r line <&3 && [[ $line == *' 200 '* ]]"
    )
    seconds = 1_000_000_000
    host: dict[str, Any] = {
        "Binds": container["mounts"],
        "PortBindings": {inside: [{"HostIp": ip.strip("[]"), "HostPort": str(port)} for ip in container["published"]]},
        "Ulimits": [{"Name": name, "Soft": limit, "Hard": limit} for name, limit in container["ulimits"].items()],
        "RestartPolicy": {"Name": "unless-stopped", "MaximumRetryCount": 0},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "20m", "max-file": "3"}},
    }
    if container["ipc"]:
        host["IpcMode"] = container["ipc"]
    if container["gpus"]:
        named = container.get("device_ids")
        devices = {"Count": 0, "DeviceIDs": named} if named else {"Count": -1}
        host["DeviceRequests"] = [{"Driver": "nvidia", "Capabilities": [["gpu"]], **devices}]
    return {
        "Image": container["image"],
        "Entrypoint": container["entrypoint"],
        "Cmd": container["command"],
        "Env": [f"{name}={value}" for name, value in container["environment"].items()],
        "ExposedPorts": {inside: {}},
        "AttachStdout": True,
        "AttachStderr": True,
        "Healthcheck": {
            "Test": ["CMD", "/bin/bash", "-c", health],
            "Interval": 30 * seconds,
            "Timeout": 10 * seconds,
            "Retries": 3,
            "StartPeriod": found["engine"]["ready_timeout_s"] * seconds,
        },
        "Labels": {
            "drafthouse.arm": arm,
            "drafthouse_at": f"drafthouse-{arm} {port}",
            "drafthouse.definition": sha256((files + json.dumps(container, sort_keys=True)).encode()).hexdigest(),
        },
        "HostConfig": host,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_docker_tells_what_is_defined_and_what_an_older_version_made_is_the_same(
    kind: str, image: str, tmp_path: Path
) -> None:
    profile, site = KINDS[kind]
    found = resolved(tmp_path, image, profile, **site)
    ports = {arm: free_port() for arm in ARMS}
    for arm in ARMS:
        DockerApi().call("POST", "/containers/create", asked_before(found, arm, ports[arm]), name=f"drafthouse-{arm}")
    older = {arm: told(arm) for arm in ARMS}
    # It would be started as it is: nothing is removed for it.
    planned = made(tmp_path, found, ports, "--check", "-vv")
    assert "removed: []" in planned.output, planned.output[-3000:]
    for arm in ARMS:
        remove([f"drafthouse-{arm}"])
        words = engine_words(arm_container(found, arm, ports[arm]))
        body = {**words["Config"], "HostConfig": words["HostConfig"]}
        DockerApi().call("POST", "/containers/create", body, name=f"drafthouse-{arm}")
        ours_now = told(arm)
        for part in ("Config", "HostConfig"):
            other = {
                key: (value, older[arm][part].get(key))
                for key, value in ours_now[part].items()
                if value != older[arm][part].get(key) and key != "Hostname"
            }
            assert other.items() <= SAME.items()
            assert ours_now[part].keys() == older[arm][part].keys()


def test_a_second_run_changes_nothing_and_a_change_makes_one_anew(image: str, tmp_path: Path) -> None:
    found, port = living(resolved(tmp_path, image)), free_port()
    assert made(tmp_path, found, {"baseline": port}, "--check").changed == 1
    assert list_containers() == {}
    first = made(tmp_path, found, {"baseline": port})
    assert (first.status, first.changed) == (0, 1), first.output[-3000:]
    assert (list_containers(), published_ports()) == ({"drafthouse-baseline": True}, {port})
    before = told("baseline")
    assert made(tmp_path, found, {"baseline": port}).changed == 0
    assert told("baseline")["State"]["StartedAt"] == before["State"]["StartedAt"]
    # Asked to be fresh it is started again, and stays the same one.
    assert made(tmp_path, found, {"baseline": port}, fresh=True).changed == 1
    after = told("baseline")
    assert after["Id"] == before["Id"] and after["State"]["StartedAt"] != before["State"]["StartedAt"]
    # Somebody changed it by hand.
    DockerApi().call("POST", "/containers/drafthouse-baseline/update", {"RestartPolicy": {"Name": "no"}})
    assert made(tmp_path, found, {"baseline": port}).changed == 1
    assert told("baseline")["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert told("baseline")["Id"] != before["Id"]
    # The other arm at the same port: the first one goes.
    assert made(tmp_path, found, {"speculative": port}).changed == 1
    assert list_containers() == {"drafthouse-speculative": True}
    assert made(tmp_path, found, {}).changed == 1
    assert list_containers() == {}


def test_a_stranger_at_the_port_is_named(image: str, tmp_path: Path) -> None:
    found = living(resolved(tmp_path, image))
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        refused = made(tmp_path, found, {"baseline": port})
    assert refused.status != 0
    assert f"port {port} is taken" in refused.lines("found")[0]
    assert list_containers() == {}


def test_what_a_release_keeps_makes_the_same_container_again(image: str, tmp_path: Path) -> None:
    found = living(resolved(tmp_path, image))
    assert made(tmp_path, found, {"speculative": found["site"]["port"]}).status == 0
    before, kept = told("speculative"), record_of_present(found, "speculative")
    assert kept["Image"] == before["Image"]
    # As an older version has it: all that Docker had told.
    recorded: Any = {key: before[key] for key in ("Config", "HostConfig", "Image")}
    for one in (kept, recorded):
        remove(list(list_containers()))
        assert drifted("speculative", one) == "the container drafthouse-speculative is not running"
        run_alone("speculative", json.loads(json.dumps(one)))
        again = told("speculative")
        assert again["Id"] != before["Id"] and again["State"]["Running"]
        for part in ("Config", "HostConfig"):
            assert {**again[part], "Hostname": ""} == {**before[part], "Hostname": ""}
        assert drifted("speculative", one) == ""
        # And a run finds it as it should be.
        assert made(tmp_path, found, {"speculative": found["site"]["port"]}).changed == 0


def test_what_a_container_says_of_itself(image: str, tmp_path: Path) -> None:
    found, runtime = living(resolved(tmp_path, image)), ContainerRuntime()
    assert runtime.state("baseline").why == "no such container"
    assert made(tmp_path, found, {"baseline": free_port()}).status == 0
    assert runtime.state("baseline").running
    assert (runtime.printed("baseline"), runtime.tail("baseline", 5)) == ("up\n", "up")
    assert runtime.printed("baseline", runtime.mark("baseline")) == ""
    assert runtime.ending("baseline") == ""
    assert DockerApi().execute("drafthouse-baseline", ["/bin/echo", "inside"]) == "inside\n"
    pid = runtime.state("baseline").pid
    DockerApi().call("POST", "/containers/drafthouse-baseline/kill", signal="KILL")
    assert not runtime.state("baseline").running
    assert runtime.state("baseline").why == "exit status 137"
    runtime.start("baseline")
    assert runtime.state("baseline").pid not in (None, pid)
    assert runtime.ending("baseline") == "exit status 137"
    runtime.stop("baseline")
    assert not runtime.state("baseline").running
