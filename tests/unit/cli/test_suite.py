"""A data set of others: fetched once, held against its hash, and read as what it is."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from drafthouse.cli import suite
from drafthouse.core.errors import DrafthouseError
from drafthouse.prompts.data_sets import DATA_SETS
from tests.support.examples import examples

QUESTIONS = [
    {"question_id": 81, "category": "writing", "turns": ["Write about a harbour.", "Now shorter."]},
    {"question_id": 82, "category": "math", "turns": ["What is 3 times 4?"]},
    {"question_id": 83, "category": "math", "turns": ["What is 5 times 4?"]},
]
BYTES = "".join(f"{json.dumps(one)}\n" for one in QUESTIONS).encode()


class Hub:
    """Somebody's server, which counts how often it is asked."""

    def __init__(self) -> None:
        self.content, self.status, self.asked = BYTES, 200, 0
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked += 1
                self.send_response(hub.status)
                self.end_headers()
                self.wfile.write(hub.content)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/question.jsonl"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The pinned data set, as small as that, on a server of the test."""
    found = Hub()
    Thread(target=found.server.serve_forever, daemon=True).start()
    pinned = dataclasses.replace(
        DATA_SETS["spec-bench"], url=found.url, sha256=hashlib.sha256(BYTES).hexdigest(), size=len(BYTES)
    )
    monkeypatch.setitem(DATA_SETS, "spec-bench", pinned)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield found
    found.server.shutdown()
    found.server.server_close()


def typed(folder: Path) -> int:
    """The help's own example, into a folder of the test."""
    (words,) = examples("suite")
    return suite.main([*words[1:], "--to", str(folder)])


def test_it_is_fetched_once_and_says_how_it_is_asked(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new folder"
    for _ in range(2):
        assert typed(folder) == 0
    first, second = capsys.readouterr().out.split("spec-bench.jsonl: ")[1:]
    assert first.startswith("fetched")
    assert second.startswith("there already")
    assert hub.asked == 1
    assert (folder / "spec-bench.jsonl").read_bytes() == BYTES
    assert "writing 1, math 2" in first
    assert f"--suite '{folder}/spec-bench.jsonl' --dataset-format spec-bench" in first


@pytest.mark.parametrize("content", [BYTES[:-1], BYTES + b"x", BYTES.replace(b"harbour", b"harbors"), b""])
def test_another_file_is_refused_and_not_kept(hub: Hub, tmp_path: Path, content: bytes) -> None:
    hub.content = content
    with pytest.raises(DrafthouseError) as caught:
        typed(tmp_path)
    assert [problem.code for problem in caught.value.problems] == ["data-set-changed"]
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_changed_is_fetched_again(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "spec-bench.jsonl").write_bytes(BYTES[:-5])
    assert typed(tmp_path) == 0
    assert (tmp_path / "spec-bench.jsonl").read_bytes() == BYTES


def test_a_file_that_was_laid_there_by_hand_needs_no_network(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "spec-bench.jsonl").write_bytes(BYTES)
    assert typed(tmp_path) == 0
    assert hub.asked == 0


def test_no_answer_is_said_with_what_to_do(hub: Hub, tmp_path: Path) -> None:
    hub.status = 404
    with pytest.raises(DrafthouseError) as caught:
        typed(tmp_path)
    (problem,) = caught.value.problems
    assert problem.code == "download-broke-off"
    assert problem.where == hub.url
    assert "there as spec-bench.jsonl" in problem.do


def test_a_folder_that_cannot_be_written_is_named(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("in the way")
    with pytest.raises(DrafthouseError) as caught:
        typed(tmp_path / "a-file")
    assert [problem.code for problem in caught.value.problems] == ["file-unwritable"]


@pytest.mark.parametrize("name", DATA_SETS)
def test_what_is_pinned_is_a_commit(name: str) -> None:
    one = DATA_SETS[name]
    assert re.search(r"/[0-9a-f]{40}/", one.url)
    assert re.fullmatch(r"[0-9a-f]{64}", one.sha256)
    assert one.size > 0 and one.licence
