"""What is shared of a report: the numbers, and nothing that anybody wrote."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.cli.share import SUITES, known_words
from drafthouse.core.format import TIMES
from drafthouse.core.places import ROOT
from drafthouse.report.archive import Kept, read_kept
from drafthouse.report.share import OWN_MODEL, OWN_PROMPTS, Known, markdown, row_of
from tests.support.canaries import canary
from tests.support.report_builders import keep
from tests.support.verb import called

KNOWN = known_words()
GPU = {
    "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "driver_version": "580.65.06",
    "memory_total_bytes": 102_641_958_912,
    "power_limit_w": 600.0,
    "uuid": "GPU-6ba7b810-9dad-11d1-80b4-00c04fd430c8",
}
DIGEST = "sha256:" + "ab" * 32


def change(base: Any, spec: Any, resolved: Any) -> None:
    resolved["engine"].update(id="vllm", name="my vLLM", version="0.32.0", runtime="docker")
    resolved["target"].update(id="qwen3-32b", name="/home/alice/Qwen")
    resolved["draft"] = {"id": "own-head", "name": "/srv/head", "source": {"hub": {"repo": "alice/secret-head"}}}
    resolved["method"].update(id="eagle3", num_speculative_tokens=3)
    resolved["image_digest"] = DIGEST
    for result in (base, spec):
        result["machine"]["before"]["gpus"] = [GPU, GPU]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return read_kept(keep(tmp_path, "20261121-111742", change))


def test_the_row_says_card_build_arms_acceptance_verdict_and_hash(kept: Kept) -> None:
    row = row_of(kept, KNOWN, "0.1.0")
    assert row["gpus"] == [{"name": GPU["name"], "count": 2, "memory_gib": 95.6, "power_limit_w": 600.0}]
    assert (row["driver"], row["measured"]) == ("580.65.06", "2026-11-21")
    assert row["engine"] == {"name": "vLLM", "version": "0.32.0", "runtime": "docker", "image_digest": DIGEST}
    assert (row["target"], row["draft"], row["method"], row["draft_tokens"]) == (
        "Qwen/Qwen3-32B",
        OWN_MODEL,
        "eagle3",
        3,
    )
    assert row["verdict"]["word"] == kept.report["verdict"]["word"]
    first = row["kinds"][0]
    assert (first["kind"], first["declared"]) == ("copy-edit", True)
    measured = kept.report["kinds"][0]["tok_s"]["baseline"]
    assert measured
    assert first["tok_s"]["baseline"] == pytest.approx(measured["median"], rel=1e-3)
    assert row["by_position"]
    assert row["report_sha256"] == hashlib.sha256((kept.path / "report.json").read_bytes()).hexdigest()
    assert len(json.dumps(row)) < 4000
    assert row_of(kept, KNOWN, "0.1.0", hub_names=True)["draft"] == "alice/secret-head"


def spoilt(value: Any, found: list[str], spare: tuple[str, ...] = ()) -> Any:
    """Return data whose every text is a canary, keys of what people name among them."""
    if isinstance(value, dict):
        return {key: item if key in spare else spoilt(item, found, spare) for key, item in value.items()}
    if isinstance(value, list):
        return [spoilt(item, found, spare) for item in value]
    if isinstance(value, str):
        found.append(canary())
        return found[-1]
    return value


def test_no_text_of_a_report_comes_out(kept: Kept) -> None:
    """Every string of the report and of both results is another canary."""
    planted: list[str] = []
    report, results = spoilt(copy.deepcopy(kept.report), planted), spoilt(copy.deepcopy(kept.results), planted)
    assert len(planted) > 500
    row = row_of(Kept(kept.path, report, results), KNOWN, "0.1.0", hub_names=True)
    said = json.dumps(row) + markdown(row)
    assert [text for text in planted if text in said] == []
    assert {kind["kind"] for kind in row["kinds"]} == {OWN_PROMPTS}


PRIVATE = ("alice", "/home/alice", "gpu-rack-7.acme.example", "sk-live-abcdefghijklmnop", "10.0.0.7", "acme-q3-plan")


@pytest.mark.parametrize("private", PRIVATE)
def test_what_is_personal_comes_out_in_no_form(kept: Kept, private: str) -> None:
    """As it stands, and behind what is right at the place. (A driver names its own cards.)"""
    for form in ("{}", "0.32.0+{}", DIGEST + " {}", "pays {}", "20261121-111742 {}", "vllm {}"):
        text = form.format(private)

        def everywhere(value: Any, text: str = text) -> Any:
            if isinstance(value, dict):
                return {key: everywhere(item) for key, item in value.items()}
            return [everywhere(item) for item in value] if isinstance(value, list) else _put(value, text)

        other = Kept(kept.path, everywhere(kept.report), everywhere(kept.results))
        row = row_of(other, KNOWN, "0.1.0")
        assert private not in json.dumps(row) + markdown(row), form


def _put(value: Any, text: str) -> Any:
    return text if isinstance(value, str) else value


def test_the_words_are_those_of_the_shipped_files() -> None:
    shipped = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / "benchmarks").glob("*.yml")}
    assert {name for name, suite in shipped.items() if "kinds" in suite} == set(SUITES)
    assert "copy-edit" in KNOWN.kinds
    assert KNOWN.engines["llamacpp"] == "llama.cpp server"
    assert {"eagle3", "ngram-simple"} <= KNOWN.methods


def test_the_markdown_is_a_table_and_holds_the_row(kept: Kept) -> None:
    row = row_of(kept, KNOWN, "0.1.0")
    text = markdown(row)
    lines = text.splitlines()
    assert lines[0].replace(TIMES, "x").startswith(f"**{row['verdict']['word']}**, ")
    assert f"2 x {GPU['name']} · vLLM 0.32.0 · Qwen/Qwen3-32B · {OWN_MODEL}, eagle3, K=3" in lines[0]
    table = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert len(table) == 2 + len(row["kinds"])
    assert json.loads(text.split("```json\n")[1].split("\n```")[0]) == row


def test_an_old_report_and_one_without_counters_are_shared(tmp_path: Path) -> None:
    def bare(_: Any, spec: Any, resolved: Any) -> None:
        spec["machine"] = None
        for name in ("target", "method", "engine"):
            resolved[name] = {}

    row = row_of(read_kept(keep(tmp_path, "20261121-111742", bare)), Known({}, {}, *[frozenset()] * 3), "0.1.0")
    assert (row["gpus"], row["cpu"], row["draft_tokens"], row["engine"]["name"]) == ([], None, None, "not shared")
    assert markdown(row)


def test_the_verb_prints_markdown_or_json(tmp_path: Path) -> None:
    keep(tmp_path, "20261121-111742")
    done = called("share", "--reports", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "<details><summary>JSON</summary>" in done.stdout
    row = json.loads(called("share", "cpu-smollm2-ngram", "--json", "--reports", tmp_path).stdout)
    assert row["schema"] == "drafthouse.share/1"
    assert "buildbox" not in done.stdout + json.dumps(row)
    assert called("share", "--reports", tmp_path / "none").returncode == 2
