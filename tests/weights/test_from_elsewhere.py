"""Weights from elsewhere, through the whole of it: a folder where no hub is, a folder that has only a part."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.fakes.hub_server import COMMIT, Hub, hub_server

_HEADER = json.dumps({"w": {"dtype": "U8", "shape": [3_000_000], "data_offsets": [0, 3_000_000]}}).encode()
SHARD = len(_HEADER).to_bytes(8, "little") + _HEADER + b"w" * 3_000_000
FILES = {"config.json": b"{}", "model.safetensors": SHARD}
NOWHERE = "http://127.0.0.1:9"
# The library reads HF_ENDPOINT when it is imported, hence a process.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from drafthouse.weights.nearby_copies import nearby_folder_of
from drafthouse.core.errors import DrafthouseError
from drafthouse.weights.install import Tools, put_all
item, elsewhere, offline = json.loads(sys.argv[2])
try:
    tools = Tools("uv", "python", nearby=nearby_folder_of(elsewhere), offline=offline)
    print(json.dumps(put_all([item], lambda event: None, tools)[0]))
except DrafthouseError as error:
    sys.exit(str(error))
"""


def put(hub: Hub, models: Path, there: Path | None = None, offline: bool = False, **details: Any) -> dict[str, Any]:
    """Put the model below ``models``, with what lies at ``there``; return the result, or {"error": text}."""
    item = {
        "id": "model", "name": "Model", "source": "hub", "path": str(models / "org-model"), "bytes": 1,
        "details": {"repo": "org/model", "revision": COMMIT, **details},
    }  # fmt: skip
    elsewhere = {"folder": str(there), "models_dir": str(models)} if there else None
    words = [sys.executable, "-c", PROGRAM, str(ROOT / "src"), json.dumps([item, elsewhere, offline])]
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=180, check=False)
    result: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr}
    return result


@pytest.mark.parametrize("revision", [COMMIT, "unresolved"])
def test_from_a_mounted_folder_to_a_box_without_a_hub(tmp_path: Path, revision: str) -> None:
    mount, models = tmp_path / "mount", tmp_path / "box" / "models"
    with hub_server(Hub(dict(FILES))) as hub:
        assert put(hub, mount, revision=revision)["changed"] is True
    nobody = Hub({}, url=NOWHERE)
    done = put(nobody, models, mount, offline=True, revision=revision)
    assert done.get("changed") is True, done
    assert (models / "org-model" / "model.safetensors").read_bytes() == SHARD
    assert put(nobody, models, offline=True, revision=revision)["changed"] is False  # the second run needs no place
    assert put(nobody, tmp_path / "other" / "models", offline=True)["error"].startswith("where: Model\nfound: offline")


def test_a_wrong_byte_in_the_place_is_fetched_from_the_hub(tmp_path: Path) -> None:
    there, models = tmp_path / "there", tmp_path / "models"
    with hub_server(Hub(dict(FILES))) as hub:
        put(hub, there)
        wrong = bytearray(SHARD)
        wrong[-1] ^= 1
        (there / "org-model" / "model.safetensors").write_bytes(wrong)
        before = hub.sent
        done = put(hub, models, there)
        assert (models / "org-model" / "model.safetensors").read_bytes() == SHARD
        assert hub.sent - before == len(SHARD)  # and config.json from the place
        assert "wrong bytes" in done["note"]
    assert (there / "org-model" / "model.safetensors").read_bytes() == bytes(wrong)
    nobody = put(Hub({}, url=NOWHERE), tmp_path / "alone", there, offline=True)
    assert "offline" in nobody["error"]
    assert not (tmp_path / "alone" / "org-model" / "model.safetensors").exists()


def test_a_folder_without_notes_gives_what_it_has(tmp_path: Path) -> None:
    there, models = tmp_path / "there", tmp_path / "models"
    with hub_server(Hub(dict(FILES))) as hub:
        put(hub, there)
        (there / "org-model.drafthouse.json").unlink()
        (there / "org-model" / "config.json").unlink()
        before = hub.sent
        assert put(hub, models, there)["changed"] is True
        assert hub.sent - before == len(FILES["config.json"])
        shutil.rmtree(models)
        # A folder that is not there is none.
        assert put(hub, models, tmp_path / "gone")["changed"] is True
    assert (models / "org-model" / "model.safetensors").read_bytes() == SHARD
