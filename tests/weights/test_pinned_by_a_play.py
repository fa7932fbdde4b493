"""The commit of a branch is written down in the clone by the run that used it first, and holds for the next ones."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.pins import read_pins
from tests.e2e.conftest import Ended, play
from tests.fakes.hub_server import COMMIT, Hub, hub_server

NEWER = "d" * 40
HEADER = json.dumps({"w": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}}).encode()
MODEL = {"config.json": b"{}", "model.safetensors": len(HEADER).to_bytes(8, "little") + HEADER + b"abc"}


def fetch(folder: Path, hub: Hub, box: str, **more: Any) -> Ended:
    """Play what `make weights` plays, into a folder of its own for each box."""
    path = folder / box / "model"
    path.parent.mkdir(exist_ok=True)
    item = {
        "id": "m", "name": "M", "source": "hub", "path": str(path), "bytes": 1,
        "details": {"repo": hub.repo, "revision": "main"},
        "pinned": read_pins(Path(os.environ["DRAFTHOUSE_PINS"])).hub.get(f"{hub.repo}@main"),
    }  # fmt: skip
    task = {
        "name": "Fetch",
        "drafthouse.core.weights": {
            "items": [item], "engine_python": sys.executable, "uv": "uv", "lock": str(path.parent / "lock"), **more,
        },
        "environment": {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hf")},
        "vars": {"ansible_python_interpreter": sys.executable},
        "register": "fetched",
    }  # fmt: skip
    words = "{{ fetched.notes }} {{ ansible_facts.drafthouse_profile.weights[0].pinned }}"
    notes = {"name": "Say", "ansible.builtin.debug": {"msg": words}}
    fact = {"drafthouse_profile": {"weights": [item]}}
    tasks = [{"name": "Set", "ansible.builtin.set_fact": fact}, task, notes]
    playbook = folder / f"{box}.yml"
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    return play(str(playbook))


def test_a_second_box_gets_what_the_first_one_got(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = tmp_path / "pins.json"
    monkeypatch.setenv("DRAFTHOUSE_PINS", str(pins))
    with hub_server(Hub(MODEL, commits={NEWER: {**MODEL, "config.json": b'{"a": 1}'}})) as hub:
        first = fetch(tmp_path, hub, "one")
        assert first.status == 0, first.output
        assert read_pins(pins).hub == {"org/model@main": COMMIT}
        assert f"is commit {COMMIT}" in first.output
        hub.refs["main"] = NEWER
        second = fetch(tmp_path, hub, "two")
        assert second.status == 0, second.output
        assert f"main has moved to {NEWER}; this run keeps {COMMIT}" in " ".join(second.output.split())
        assert (tmp_path / "two/model/config.json").read_bytes() == b"{}"
        # The fact that later phases, and the report, read.
        assert second.output.rstrip().count(COMMIT) >= 2
        taken = fetch(tmp_path, hub, "two", repin=True)
        assert taken.status == 0, taken.output
        assert read_pins(pins).hub == {"org/model@main": NEWER}
        assert (tmp_path / "two/model/config.json").read_bytes() == b'{"a": 1}'


@pytest.mark.parametrize("named", ["here", "on the box"])
def test_a_mirror_that_is_named_here_or_on_the_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """The role leaves a box its own mirror, where no other one is named for the run."""
    item = {
        "id": "m", "name": "M", "source": "hub", "path": str(tmp_path / "m"), "bytes": 1,
        "details": {"repo": "org/model", "revision": COMMIT},
    }  # fmt: skip
    variables = {
        "weights_python": sys.executable, "weights_engine_python": sys.executable, "weights_uv": "uv",
        "weights_items": [item], "weights_lock": str(tmp_path / "lock"),
    }  # fmt: skip
    with hub_server(Hub(MODEL)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url) if named == "here" else monkeypatch.delenv("HF_ENDPOINT", False)
        of_box = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": "http://127.0.0.1:9" if named == "here" else hub.url}
        task = {"name": "Fetch", "ansible.builtin.include_role": {"name": "weights"}}
        one = {"hosts": "all", "gather_facts": False, "environment": of_box, "vars": variables, "tasks": [task]}
        (tmp_path / "play.yml").write_text(json.dumps([one]))
        done = play(str(tmp_path / "play.yml"))
        assert done.status == 0, done.output
        assert hub.sent == sum(len(data) for data in MODEL.values())
