"""The modules as Ansible starts them: options in, one JSON object out, no traceback and no token in it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.hub_contents import data_of, etag_of
from tests.fakes.hub_server import COMMIT, RIGHT, Hub, hub_server
from tests.weights.harness import a_model, clean_environment

PACKAGE = "ansible_collections.drafthouse.core.plugins.modules"
FILES = {"config.json": b"{}", "sub/model.raw": b"w" * 300_000}


def run(module: str, options: dict[str, Any], check: bool = False, **environment: str) -> dict[str, Any]:
    arguments = {
        **options,
        "_ansible_check_mode": check,
        "_ansible_remote_tmp": "/tmp",
        "_ansible_keep_remote_files": False,
    }
    done = subprocess.run(
        [sys.executable, "-m", f"{PACKAGE}.{module}"],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        env=clean_environment(Path("/nowhere")) | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert RIGHT not in done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("module", ["hf_snapshot", "weights"])
def test_every_option_is_documented_with_its_default(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = importlib.import_module(f"{PACKAGE}.{module}")
    seen: dict[str, Any] = {}

    class Asked(Exception):
        pass

    def asked(**given: Any) -> None:
        seen.update(given["argument_spec"])
        raise Asked

    monkeypatch.setattr(loaded, "AnsibleModule", asked)
    with pytest.raises(Asked):
        loaded.main()
    documented = yaml.safe_load(loaded.DOCUMENTATION)["options"]
    assert sorted(documented) == sorted(seen)
    for name, option in seen.items():
        for key in ("type", "default", "required"):
            assert documented[name].get(key) == option.get(key), (name, key)


def test_a_repository_in_a_folder(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{RIGHT}\n")
    token.chmod(0o600)
    with hub_server(Hub(FILES, gated=True)) as hub:
        options = {
            "repo": hub.repo, "revision": COMMIT, "dest": str(tmp_path / "m"), "endpoint": hub.url, "margin_mb": 1,
            "token_file": str(token),
        }  # fmt: skip
        would = run("hf_snapshot", options, check=True)
        assert (would["changed"], would["bytes_fetched"]) == (True, 300_002)
        assert not (tmp_path / "m").exists()
        done = run("hf_snapshot", {**options, "progress_file": str(tmp_path / "p.jsonl")})
        assert (done["changed"], done["commit"], done["files"]) == (True, COMMIT, 2)
        assert run("hf_snapshot", options)["changed"] is False
        assert run("hf_snapshot", {**options, "offline": True}, check=True)["changed"] is False
        one = run("hf_snapshot", {**options, "dest": str(tmp_path / "one"), "file": "config.json"})
        assert (one["location"], one["files"]) == (str(tmp_path / "one/config.json"), 1)


def test_what_is_wrong_comes_as_problems(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(RIGHT)
    token.chmod(0o644)
    with hub_server(Hub(FILES, gated=True)) as hub:
        options = {"repo": hub.repo, "revision": COMMIT, "dest": str(tmp_path / "m"), "endpoint": hub.url}
        refused = run("hf_snapshot", options)
        assert refused["failed"]
        assert "is gated" in refused["problems"][0]["found"]
        refused = run("hf_snapshot", {**options, "token_file": str(token)})
        assert refused["problems"][0]["do"] == f"chmod 600 {token}"
        refused = run("hf_snapshot", {**options, "token_file": str(tmp_path / "none")})
        assert refused["problems"][0]["where"] == str(tmp_path / "none")


def test_the_list_of_a_profile(tmp_path: Path) -> None:
    model = tmp_path / "mine"
    model.mkdir()
    item = {"id": "mine", "name": "Mine", "source": "path", "details": {}, "path": str(model), "bytes": 1}
    options = {"items": [item], "engine_python": "/nowhere", "uv": "/nowhere", "lock": str(tmp_path / "lock")}
    assert run("weights", options)["failed"]  # an empty folder is no model
    header = json.dumps({"w": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}}).encode()
    shard = model / "model.safetensors"
    shard.write_bytes(len(header).to_bytes(8, "little") + header + b"www")
    done = run("weights", options)
    assert done["changed"] is False
    assert [one["id"] for one in done["placed"]] == ["mine"]
    shard.unlink()
    model.rmdir()
    assert "nothing at" in run("weights", options)["problems"][0]["found"]


def test_the_list_of_a_profile_with_what_the_hubs_client_left(tmp_path: Path) -> None:
    home, model = tmp_path / "hf", a_model()
    (home / "hub/models--org--model/blobs").mkdir(parents=True)
    (home / "token").write_text(RIGHT)
    for name, content in model.items():
        blob = home / "hub/models--org--model/blobs" / etag_of(name, content)
        blob.write_bytes(data_of(content))
    with hub_server(Hub(model, gated=True)) as hub:
        details = {"repo": hub.repo, "revision": COMMIT}
        item = {"id": "m", "name": "M", "source": "hub", "details": details, "path": str(tmp_path / "m"), "bytes": 1}
        options = {"items": [item], "engine_python": "/nowhere", "uv": "/nowhere", "lock": str(tmp_path / "lock")}
        done = run("weights", options, HF_HOME=str(home), HF_ENDPOINT=hub.url)
        assert done["changed"], done
        assert hub.sent == 0
        refused = run("weights", {**options, "items": [{**item, "path": str(tmp_path / "n")}]}, HF_ENDPOINT=hub.url)
        assert "is gated" in refused["problems"][0]["found"]
