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
