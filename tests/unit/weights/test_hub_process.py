"""The hub as a source: the real huggingface_hub, in a process of its own, against a server of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.fakes.hub_server import COMMIT, Hub, hub_server

pytestmark = pytest.mark.processes

_HEADER = json.dumps({"w": {"dtype": "U8", "shape": [300_000], "data_offsets": [0, 300_000]}}).encode()
SHARD = len(_HEADER).to_bytes(8, "little") + _HEADER + b"w" * 300_000
FILES = {"config.json": b"{}", "model.safetensors": SHARD, "original/model.raw": b"o" * 500_000}
# The library reads HF_ENDPOINT when it is imported.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from drafthouse.core.errors import DrafthouseError
from pathlib import Path
from drafthouse.weights.install import Tools, put_all
try:
    items, pair, cache = json.loads(sys.argv[2])
    tools = Tools("uv", "python", hub_cache=Path(cache) if cache else None)
    done = put_all(items, lambda event: None, tools, False, pair)
    print(json.dumps(done if len(done) > 1 else done[0]))
except DrafthouseError as error:
    sys.exit(str(error))
"""


def item_of(hub: Hub, path: Path, **details: Any) -> dict[str, Any]:
    return {
        "id": path.name, "name": path.name, "source": "hub", "path": str(path), "bytes": 1,
        "details": {"repo": hub.repo, "revision": COMMIT, **details},
    }  # fmt: skip


def fetch(hub: Hub, folder: Path, **details: Any) -> subprocess.CompletedProcess[str]:
    return fetch_all(hub, folder, [item_of(hub, folder / "model", **details)])


def fetch_all(
    hub: Hub, folder: Path, items: list[dict[str, Any]], pair: Any = None, cache: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
    }  # fmt: skip
    words = [sys.executable, "-c", PROGRAM, str(ROOT / "src"), json.dumps([items, pair, cache])]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=180, check=False)


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


def test_a_file_that_is_whole_and_no_model_is_not_served(tmp_path: Path) -> None:
    with hub_server(Hub({**FILES, "model.safetensors": b"w" * 300_000})) as hub:
        done = fetch(hub, tmp_path)
        assert done.returncode == 1
        assert "a header of" in done.stderr
        sent = hub.sent
        assert fetch(hub, tmp_path).returncode == 1  # it is said again, and fetched no second time
        assert hub.sent == sent


def tokenizer(*words: str) -> bytes:
    """A tokenizer as the tokenizers library writes it, as far as it is held against another."""
    return json.dumps({"model": {"type": "BPE", "vocab": {word: n for n, word in enumerate(words)}}}).encode()


@pytest.mark.parametrize("same", [True, False])
def test_target_and_draft_must_speak_the_same_words(tmp_path: Path, same: bool) -> None:
    target = Hub({**FILES, "tokenizer.json": tokenizer("a", "b", "c")}, repo="org/target")
    draft = Hub({**FILES, "tokenizer.json": tokenizer("a", *("bc" if same else "cb"))}, repo="org/draft")
    items = [item_of(hub, tmp_path / hub.repo) for hub in (target, draft)]
    method = {"id": "draft_model", "kind": "model", "vocab_difference": 0}
    pair = {"target_path": items[0]["path"], "draft_path": items[1]["path"], "method": method}
    with hub_server(target, draft):
        done = fetch_all(target, tmp_path, items, pair=pair)
        assert done.returncode == (0 if same else 1), done.stderr
        sent = target.sent + draft.sent
        again = fetch_all(target, tmp_path, items, pair=pair)
        assert again.returncode == done.returncode
        assert target.sent + draft.sent == sent
    if same:
        assert [one["changed"] for one in json.loads(again.stdout)] == [False, False]
    else:
        assert str(tmp_path / "org/draft") in again.stderr


def test_the_hubs_cache_with_a_link_where_the_engine_looks(tmp_path: Path) -> None:
    with hub_server(Hub(dict(FILES))) as hub:
        items = [item_of(hub, tmp_path / "models" / "m")]
        cache = str(tmp_path / "cache")
        done = fetch_all(hub, tmp_path, items, cache=cache)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "models/m").is_symlink()
        assert (tmp_path / "models/m/model.safetensors").read_bytes() == FILES["model.safetensors"]
        assert json.loads(fetch_all(hub, tmp_path, items, cache=cache).stdout)["changed"] is False
        # Without the cache nothing is written through the link that it left.
        refused = fetch_all(hub, tmp_path, items)
    assert refused.returncode == 1
    assert "found: a symbolic link" in refused.stderr
