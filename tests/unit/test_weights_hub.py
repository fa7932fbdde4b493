"""The hub as a source: the real huggingface_hub, in a process of its own, against a server of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.module_utils.house import ROOT

from tests.fakes.hub_server import COMMIT, Hub, hub_server

FILES = {"config.json": b"{}", "model.safetensors": b"w" * 300_000, "original/model.bin": b"o" * 500_000}
# The library reads HF_ENDPOINT when it is imported.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.drafthouse.core.plugins.module_utils.problems import HouseError
from ansible_collections.drafthouse.core.plugins.module_utils.weights import Tools, put_in_place
try:
    tools = Tools("uv", "python", sys.argv[3] or None)
    print(json.dumps(put_in_place(json.loads(sys.argv[2]), lambda event: None, tools)))
except HouseError as error:
    sys.exit(str(error))
"""


def fetch(hub: Hub, folder: Path, token: str = "", **details: Any) -> subprocess.CompletedProcess[str]:
    item = {
        "id": "model", "name": "Model", "source": "hub", "path": str(folder / "model"), "bytes": 1,
        "details": {"repo": hub.repo, "revision": COMMIT, **details},
    }  # fmt: skip
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
    }  # fmt: skip
    words = [sys.executable, "-c", PROGRAM, str(ROOT / "collections"), json.dumps(item), token]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_only_what_is_wanted_is_fetched_and_only_once(tmp_path: Path) -> None:
    with hub_server(Hub(dict(FILES))) as hub:
        done = fetch(hub, tmp_path, ignore=["original/*"])
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["changed"] is True
        assert (tmp_path / "model" / "model.safetensors").read_bytes() == FILES["model.safetensors"]
        assert not (tmp_path / "model" / "original").exists()
        assert hub.sent == len(FILES["config.json"]) + len(FILES["model.safetensors"])
        asked = len(hub.asked)
        again = json.loads(fetch(hub, tmp_path, ignore=["original/*"]).stdout)
        assert again["changed"] is False
        assert len(hub.asked) == asked  # a second run asks nobody


def test_an_unresolved_revision_is_named_for_the_catalogue(tmp_path: Path) -> None:
    with hub_server(Hub(dict(FILES))) as hub:
        done = fetch(hub, tmp_path, revision="unresolved")
    assert done.returncode == 0, done.stderr
    assert f"revision: {COMMIT}" in json.loads(done.stdout)["note"]


@pytest.mark.parametrize(
    ("changes", "details", "found", "do"),
    [
        ({"gated": True}, {}, "is gated", "export HF_TOKEN"),
        ({}, {"repo": "org/other"}, "no repository org/other", "correct source.hub.repo"),
        ({}, {"revision": "b" * 40}, "could not fetch org/model at bbbb", "run again"),
    ],
)
def test_what_the_hub_refuses(
    tmp_path: Path, changes: dict[str, Any], details: dict[str, Any], found: str, do: str
) -> None:
    with hub_server(Hub(dict(FILES), **changes)) as hub:
        done = fetch(hub, tmp_path, **details)
    assert done.returncode == 1
    assert found in done.stderr
    assert do in done.stderr
    assert not (tmp_path / "model.drafthouse.json").exists()


def test_a_gated_repository_with_the_right_token(tmp_path: Path) -> None:
    with hub_server(Hub(dict(FILES), gated=True)) as hub:
        done = fetch(hub, tmp_path, token="hf_right")
    assert done.returncode == 0, done.stderr
    note = (tmp_path / "model.drafthouse.json").read_text()
    assert "hf_right" not in note + done.stdout + done.stderr


def test_no_hub_in_reach(tmp_path: Path) -> None:
    done = fetch(Hub(dict(FILES), url="http://127.0.0.1:9"), tmp_path)
    assert done.returncode == 1
    assert "check the network (HF_ENDPOINT names a mirror)" in done.stderr
