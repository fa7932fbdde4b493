"""Serving again, with a real supervisord: after a change that failed, by hand, from arm to arm, and with the box."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
import threading
import time
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.filter.core import to_json
from ansible_collections.drafthouse.core.plugins.modules import release as release_module

from drafthouse.core.box_archive import archive, needed_by
from drafthouse.core.docker_api import EngineError
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.container import LABEL, arm_container, definition, engine_words
from drafthouse.profiles.workspace import ROOT
from drafthouse.serving import containers
from drafthouse.serving.history import BALLAST_BYTES
from drafthouse.serving.promote import accept, record_end, would_accept
from drafthouse.serving.releases import release_ids
from drafthouse.serving.restore import (
    drift,
    outcome_of_restore,
    put_back,
    put_back_current,
    restore_at_boot,
    roll_back,
    switch_arm,
)
from tests.support.little_box import Box, little_box
from tests.support.loosely import current_server, read_history

pytestmark = pytest.mark.processes


@pytest.fixture
def box() -> Iterator[Box]:
    with little_box() as one:
        yield one


def events(box: Box) -> list[str]:
    return [event["event"] for event in read_history(box.home)]


def test_what_serves_already_is_noted_once(box: Box) -> None:
    one = box.resolved("one")
    assert would_accept(box.home, one, "speculative")
    assert box.serve(one) is not None
    assert put_back(box.home, "0001", "speculative") < 20
    assert not would_accept(box.home, one, "speculative")
    before = (box.home / "served" / "history.jsonl").stat().st_mtime_ns
    assert accept(box.home, one, "speculative", "again") is None
    assert (box.home / "served" / "history.jsonl").stat().st_mtime_ns == before
    assert would_accept(box.home, one, "baseline")
    assert would_accept(box.home, box.resolved("two"), "speculative")


def test_one_that_runs_as_it_should_is_left_alone(box: Box) -> None:
    box.serve(box.resolved("one"))
    put_back(box.home, "0001", "speculative")
    pid = box.supervisor.programs()["speculative"]["pid"]
    assert drift(box.home) == ""
    put_back(box.home, "0001", "speculative")
    assert box.supervisor.programs()["speculative"]["pid"] == pid


def test_the_last_good_server_comes_back_after_a_change_of_the_same_profile(box: Box) -> None:
    box.serve(box.resolved("one"))
    put_back(box.home, "0001", "speculative")
    # A change that got as far as its first arm, with other files at the same places.
    box.start(box.resolved("dies"), "baseline")
    assert "baseline runs instead of the speculative arm" in drift(box.home) or "nothing runs" in drift(box.home)
    said = outcome_of_restore(box.home)
    assert said.found.startswith(
        "the last good server runs again: release 0001 (little, the speculative arm, little 1)"
    )
    assert box.said() == "one-speculative"
    assert drift(box.home) == ""


def test_files_that_were_changed_are_seen_and_mended(box: Box) -> None:
    box.serve(box.resolved("one"))
    put_back(box.home, "0001", "speculative")
    script = box.home / "serve" / "little" / "speculative" / "serve.sh"
    script.write_text("#!/bin/sh\nexit 1\n")
    assert drift(box.home) == f"{script} differs from the release's"
    put_back_current(box.home)
    assert "one-speculative" in script.read_text()
    script.write_bytes(b"\xff\xfe")
    assert drift(box.home) == f"{script} differs from the release's"


def test_what_is_gone_is_said_before_anything_is_ended(box: Box) -> None:
    box.serve(box.resolved("one", weights="of-one"))
    box.serve(box.resolved("two"))
    put_back(box.home, "0002", "speculative")
    (box.home / "of-one").unlink()
    with pytest.raises(DrafthouseError, match=r"release 0001 needs missing files: .*of-one") as caught:
        roll_back(box.home)
    assert "the last good server runs again: release 0002" in caught.value.problems[1].found
    assert box.said() == "two-speculative"


def test_a_release_without_the_record_of_its_run_is_said_to_lack_it(box: Box) -> None:
    box.serve(box.resolved("one"))
    box.serve(box.resolved("two"))
    for record in box.home.rglob("0001/running-*.json"):
        record.unlink()
    put_back(box.home, "0002", "speculative")
    with pytest.raises(DrafthouseError, match="release 0001 does not record how it was run"):
        put_back(box.home, "0001", "speculative")
    assert box.said() == "two-speculative"


def test_back_and_back_again(box: Box) -> None:
    for name in ("one", "two", "three"):
        box.serve(box.resolved(name))
    assert roll_back(box.home, why="make rollback")[0]["release"] == "0002"
    assert box.said() == "two-speculative"
    assert (current_server(box.home) or {})["release"] == "0002"
    assert roll_back(box.home)[0]["release"] == "0001"
    with pytest.raises(DrafthouseError, match="no earlier release"):
        roll_back(box.home)
    assert roll_back(box.home, to="3")[0]["release"] == "0003"
    assert box.said() == "three-speculative"
    with pytest.raises(DrafthouseError, match="no release '9'"):
        roll_back(box.home, to="9")
    assert events(box) == ["served"] * 3 + ["rolled_back"] * 3


def test_nothing_to_go_back_to_on_a_bare_box(box: Box) -> None:
    with pytest.raises(DrafthouseError, match="nothing has served here yet"):
        roll_back(box.home)
    assert put_back_current(box.home) is None
    assert record_end(box.home, "make stop") is None


@pytest.mark.parametrize(("name", "why"), [("dies", "no-such-flag"), ("mute", "does not answer a request: status 500")])
def test_an_earlier_release_that_does_not_serve_any_more(box: Box, name: str, why: str) -> None:
    # It was accepted once; what it needs is there, and yet it does not answer.
    box.serve(box.resolved(name))
    box.serve(box.resolved("two"))
    put_back(box.home, "0002", "speculative")
    with pytest.raises(DrafthouseError) as caught:
        roll_back(box.home)
    one, two = caught.value.problems
    assert why in one.found
    assert two.found.startswith("the last good server runs again: release 0002")
    assert box.said() == "two-speculative"
    assert (current_server(box.home) or {})["release"] == "0002"


def test_arms_change_and_change_back(box: Box) -> None:
    box.serve(box.resolved("one"))
    put_back(box.home, "0001", "speculative")
    facts, _ = switch_arm(box.home, "baseline", "acceptance 8 %")
    assert (facts["release"], facts["arm"]) == ("0001", "baseline")
    assert box.said() == "one-baseline"
    assert drift(box.home) == ""
    assert box.supervisor.running() == ["baseline"]
    switch_arm(box.home, "speculative", "the trial")
    assert box.said() == "one-speculative"
    assert events(box) == ["served", "switched", "switched"]
    with pytest.raises(DrafthouseError, match="no arm 'stock'"):
        switch_arm(box.home, "stock", "?")
    assert release_ids(box.home) == ["0001"]


def test_after_a_stop_nothing_comes_back(box: Box) -> None:
    box.serve(box.resolved("one"))
    assert (record_end(box.home, "make stop") or {})["release"] == "0001"
    box.supervisor.shut_down()
    assert drift(box.home) == ""
    assert restore_at_boot(box.home) == 0
    assert box.supervisor.running() == []


def test_the_box_starts_and_serves_with_what_lies_on_it(box: Box, tmp_path: Path) -> None:
    """By the archive alone, and the interpreter of the box's own environment."""
    box.serve(box.resolved("one"))
    put_back(box.home, "0001", "speculative")
    # Killed while it measured something else, and then the box lost its power.
    box.start(box.resolved("dies"), "baseline")
    box.supervisor.shut_down()
    name, data = archive()
    (tmp_path / name).write_bytes(data)
    words = [str(box.home / "venv" / "bin" / "python"), "-I", str(tmp_path / name), "restore", str(box.home)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert "release 0001 (little, the speculative arm, little 1) answers after" in done.stdout
    assert box.said() == "one-speculative"
    assert read_history(box.home)[-1]["why"].startswith("the box started: nothing runs")
    # A second start finds it serving.
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_box_that_cannot_serve_says_why_when_it_starts(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    box.serve(box.resolved("one"))
    box.supervisor.shut_down()
    (box.home / "weights").unlink()
    assert restore_at_boot(box.home) == 1
    assert "release 0001 needs missing files" in capsys.readouterr().err


def test_what_is_needed_travels_and_needs_no_library() -> None:
    for name, text in needed_by(["serving.restore", "serving.rollback_guard"]).items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            else:
                found = [str(node.module)] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            for module in found:
                # By its absolute name the library imports what only a type checker reads.
                assert module.partition(".")[0] in {*sys.stdlib_module_names, "drafthouse"}, (name, module)


def test_what_dies_after_a_while_does_not_replace_what_serves(box: Box) -> None:
    box.serve(box.resolved("one"))
    put_back(box.home, "0001", "speculative")
    two = box.resolved("brief")
    box.start(two, "speculative")
    with pytest.raises(DrafthouseError, match="the speculative arm died"):
        accept(box.home, two, "speculative", "why", lives_s=60)
    assert (current_server(box.home) or {})["release"] == "0001"


def test_what_lives_replaces_it_and_the_first_one_need_not_wait(box: Box) -> None:
    begun = time.monotonic()
    one = box.resolved("one")
    box.start(one, "speculative")
    accept(box.home, one, "speculative", "why", lives_s=600)
    accept(box.home, one, "speculative", "the same again", lives_s=600)
    assert time.monotonic() - begun < 300
    two = box.resolved("two")
    box.start(two, "speculative")
    put_back_s = time.monotonic()
    accept(box.home, two, "speculative", "why", lives_s=3)
    assert time.monotonic() - put_back_s > 1.5
    assert (current_server(box.home) or {})["release"] == "0002"


def test_progress_is_told(box: Box) -> None:
    told: list[str] = []
    box.serve(box.resolved("one"))
    put_back(box.home, "0001", "speculative", lambda event: told.append(str(event["text"])))
    assert told[0] == "restoring release 0001: little, the speculative arm"


def test_the_role_and_we_know_a_container_by_the_same_hash() -> None:
    container = {"image": "ä:1", "mounts": ["/a:/b:ro"], "gpus": False, "ipc": None, "environment": {"A": "1"}}
    data = {"files": [{"content": "one\n"}, {"content": "two\n"}], "container": container}
    resolved: Any = {"arms": {"baseline": data}}
    text = "one\ntwo\n" + to_json(container, sort_keys=True)
    assert definition(resolved, "baseline") == hashlib.sha256(text.encode()).hexdigest()


def test_nobody_is_in_the_way_of_two_at_once(box: Box) -> None:
    """The box's own start, twice at the same moment: one server, and it answers."""
    box.serve(box.resolved("one"))
    box.supervisor.shut_down()
    status: list[int] = []
    code = "import sys; from drafthouse.serving.restore import restore_at_boot; "
    words = [sys.executable, "-c", code + "sys.exit(restore_at_boot(sys.argv[1]))", str(box.home)]

    def start() -> None:
        status.append(subprocess.run(words, cwd=ROOT / "src", timeout=180, check=False).returncode)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The later one finds it served, or somebody at work.
    assert 0 in status
    assert box.said() == "one-speculative"
    assert box.supervisor.running() == ["speculative"]


def test_a_supervisor_that_is_ending_runs_nothing_and_its_refusal_is_said(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.serve(box.resolved("one"))
    put_back(box.home, "0001", "speculative")
    supervisor = box.supervisor

    class Ending:
        def getPID(self) -> int:
            return 1

        def __getattr__(self, name: str) -> Any:
            raise xmlrpc.client.Fault(6, "SHUTDOWN_STATE")

    monkeypatch.setattr(type(supervisor), "rpc", lambda _: Ending())
    assert supervisor.running() == []
    assert drift(box.home) == "nothing runs instead of the speculative arm"
    with pytest.raises(DrafthouseError, match=r"supervisord rejects the request: .*SHUTDOWN_STATE"):
        put_back(box.home, "0001", "speculative")
    monkeypatch.undo()


# --- containers, by a container engine of the tests' own ---------------------------------------------


class Engine:
    """What of a container engine is asked: containers by name, and images by name and number."""

    def __init__(self) -> None:
        self.containers: dict[str, dict[str, Any]] = {}
        self.images = {"engine:1": "sha256:1"}
        self.asked: list[str] = []

    def add(self, arm: str, definition: str = "d", port: int = 8000, state: str = "running") -> Any:
        name = f"drafthouse-{arm}"
        labels = {
            LABEL: arm,
            "drafthouse_at": f"{name} {port}",
            "drafthouse.definition": definition,
        }
        made = {
            "Config": {"Hostname": "a1b2", "Image": "engine:1", "Labels": labels, "Entrypoint": ["/bin/bash", arm]},
            "HostConfig": {"Binds": [f"/h/serve/x/{arm}:/s:ro"]}, "Image": self.images["engine:1"], "state": state,
        }  # fmt: skip
        self.containers[name] = made
        return made

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        self.asked.append(f"{method} {path}")
        words = path.strip("/").split("/")
        if path == "/containers/json":
            return [
                {"Names": [f"/{name}"], "State": one["state"],
                 "Mounts": [{"Source": bind.split(":")[0]} for bind in one["HostConfig"]["Binds"]]}
                for name, one in self.containers.items()
            ]  # fmt: skip
        if words[0] == "images":
            name = words[1]
            if name not in self.images and name not in self.images.values():
                raise EngineError(404, f"No such image: {name}")
            return {"Id": self.images.get(name, name)}
        if path == "/containers/create":
            image = self.images.get(body["Image"], body["Image"])
            config = {name: value for name, value in body.items() if name != "HostConfig"}
            self.containers[query["name"]] = {
                "Config": config, "HostConfig": body["HostConfig"], "Image": image, "state": "created",
            }  # fmt: skip
            return {}
        if method == "DELETE":
            return self.containers.pop(words[1]) and None
        if method == "POST":
            self.containers[words[1]]["state"] = "running" if words[2] == "start" else "exited"
            return None
        if words[1] not in self.containers:
            raise EngineError(404, f"No such container: {words[1]}")
        one = self.containers[words[1]]
        return {**one, "State": {"Running": one["state"] == "running"}}

    def recorded(self, name: str = "drafthouse-speculative") -> Any:
        """What a release of an older version has: all that was told of the container, but its host's name."""
        one = json.loads(json.dumps(self.containers[name]))
        one["Config"].pop("Hostname", None)
        return {key: one[key] for key in ("Config", "HostConfig", "Image")}


def contained(resolved: Any) -> Any:
    """The same profile, in containers."""
    for arm, data in resolved["arms"].items():
        data["container"] = {
            "image": "engine:1", "entrypoint": ["/bin/bash", arm], "command": [], "published": ["127.0.0.1"],
            "port": 8000, "gpus": False, "environment": {}, "ipc": None, "ulimits": {}, "cache": None,
            "mounts": [f"{resolved['site']['home']}/serve/little/{arm}:/s:ro"],
        }  # fmt: skip
    return {**resolved, "site": {**resolved["site"], "runtime": "docker"}}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(containers, "DockerApi", lambda **_: made)
    monkeypatch.setattr(containers, "has_engine", lambda: True)
    return made


def test_a_container_comes_back_as_it_was(engine: Engine) -> None:
    engine.add("speculative")
    kept = engine.recorded()
    assert containers.drifted("speculative", kept) == ""
    engine.containers.clear()
    engine.add("baseline")
    assert containers.drifted("speculative", kept) == "the container drafthouse-speculative is not running"
    containers.run_alone("speculative", kept)
    assert list(engine.containers) == ["drafthouse-speculative"]
    assert engine.recorded() == kept
    assert containers.drifted("speculative", kept) == ""
    # One that runs as it should is left alone; one that was stopped is started, and not made anew.
    engine.asked.clear()
    containers.run_alone("speculative", kept)
    engine.containers["drafthouse-speculative"]["state"] = "exited"
    containers.run_alone("speculative", kept)
    assert [one for one in engine.asked if not one.startswith("GET")] == [
        "POST /containers/drafthouse-speculative/start"
    ]


@pytest.mark.parametrize("other", [{"definition": "another"}, {"port": 8001}])
def test_another_container_of_the_same_name_is_made_anew(engine: Engine, other: Any) -> None:
    """At another port, too: there an arm is measured beside the other one."""
    engine.add("speculative")
    kept = engine.recorded()
    engine.add("speculative", **other)
    assert containers.drifted("speculative", kept) == "the container drafthouse-speculative was replaced by another one"
    containers.run_alone("speculative", kept)
    assert engine.recorded() == kept


@pytest.mark.parametrize("arm", ["speculative", "baseline"])
def test_what_is_recorded_is_what_is_defined_of_the_image_that_ran(box: Box, engine: Engine, arm: str) -> None:
    """The arm that served, and the other one of its release."""
    one = contained(box.resolved("one"))
    engine.add("speculative")
    recorded = containers.record_of_present(one, "speculative")
    kept = recorded if arm == "speculative" else containers.record_of_image(recorded["Image"], one, arm)
    assert kept["Image"] == "sha256:1"
    containers.run_alone(arm, kept)
    assert list(engine.containers) == [f"drafthouse-{arm}"]
    made, words = engine.containers[f"drafthouse-{arm}"], engine_words(arm_container(one, arm))
    assert {"Config": made["Config"], "HostConfig": made["HostConfig"]} == words
    assert containers.drifted(arm, kept) == ""
    # A run that wants the same finds it as it should be.
    assert not containers.plan([arm_container(one, arm)], LABEL).changes


def test_the_very_image_that_served_is_taken(engine: Engine) -> None:
    engine.add("speculative")
    kept = engine.recorded()
    containers.require_image(kept)
    # The name is another image's by now, and the old one is still there.
    engine.images = {"engine:1": "sha256:2", "old": "sha256:1"}
    engine.containers.clear()
    containers.run_alone("speculative", kept)
    assert engine.containers["drafthouse-speculative"]["Image"] == "sha256:1"
    engine.images = {"engine:1": "sha256:2"}
    with pytest.raises(DrafthouseError, match=r"the image engine:1 \(sha256:1\) is gone"):
        containers.require_image(kept)


def test_an_engine_that_is_not_ours_to_ask_is_nothing_to_a_process(
    box: Box, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with Docker, whose user may not use it: what serves there as a process serves well."""

    def refused(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(engine, "call", refused)
    box.serve(box.resolved("one"))
    put_back(box.home, "0001", "speculative")
    assert drift(box.home) == ""
    with pytest.raises(DrafthouseError, match="Permission denied"):
        containers.list_containers()


def test_containers_of_this_home_alone_are_in_the_way_of_a_process(box: Box, engine: Engine) -> None:
    box.serve(box.resolved("one"))
    put_back(box.home, "0001", "speculative")
    engine.add("baseline")
    assert drift(box.home) == ""
    mine = engine.add("speculative")
    mine["HostConfig"]["Binds"] = [f"{box.home}/serve/little/speculative:/s:ro"]
    assert drift(box.home) == "drafthouse-speculative also runs"
    put_back(box.home, "0001", "speculative")
    assert list(engine.containers) == ["drafthouse-baseline"]


def test_an_image_that_is_gone_is_said_before_anything_is_ended(box: Box, engine: Engine) -> None:
    one = contained(box.resolved("one"))
    engine.add("speculative")
    accept(box.home, one, "speculative", "it pays")
    engine.add("baseline")
    engine.images.clear()
    engine.asked.clear()
    with pytest.raises(DrafthouseError, match=r"the image engine:1 .* is gone"):
        put_back(box.home, "0001", "speculative")
    assert all(one.startswith("GET") for one in engine.asked)
    assert not (box.home / "serve").exists()


def test_what_was_given_back_for_a_full_disk_is_put_aside_again(box: Box) -> None:
    box.serve(box.resolved("one"))
    box.start(box.resolved("dies"), "baseline")
    ballast = box.home / "served" / "ballast"
    # As a change that failed does it, before it has the module run.
    ballast.unlink()
    refused = {"profile": "little", "engine": "little", "version": "2", "why": "it died"}
    given = {"state": "put_back", "why": "", "refused": refused, "progress_file": None}
    assert release_module._done(box.home, given)["changed"]
    assert box.said() == "one-speculative"
    assert events(box) == ["served", "refused"]
    assert ballast.stat().st_size == BALLAST_BYTES
