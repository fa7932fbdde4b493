"""The row of a report for an issue: numbers and the catalogue's words, and nothing that anybody wrote."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.places import ROOT
from drafthouse.report.archive import Kept, read_kept
from drafthouse.report.row import OWN_MODEL, OWN_PROMPTS, SUITES, markdown, row_of
from tests.support.canaries import canary
from tests.support.report_builders import keep
from tests.support.verb import called

GPU = {
    "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "driver_version": "580.65.06",
    "memory_total_bytes": 102_641_958_912,
    "power_limit_w": 600.0,
    "uuid": "GPU-6ba7b810-9dad-11d1-80b4-00c04fd430c8",
}


def change(base: Any, spec: Any, resolved: Any) -> None:
    resolved["engine"].update(id="vllm", name="my vLLM", version="0.32.0", runtime="docker")
    resolved["target"].update(id="qwen3-32b", name="/home/alice/Qwen")
    resolved["draft"] = {"id": "own-head", "name": "/srv/head", "source": {"hub": {"repo": "alice/secret-head"}}}
    resolved["method"].update(id="eagle3", num_speculative_tokens=3)
    for result in (base, spec):
        result["machine"]["before"]["gpus"] = [GPU, GPU]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return read_kept(keep(tmp_path, "20261121-111742", change))


def test_the_row_says_card_engine_models_speeds_verdict_and_hash(kept: Kept) -> None:
    row: Any = row_of(kept, "0.1.0")
    assert row["gpus"] == [GPU["name"], GPU["name"]]
    assert (row["driver"], row["measured"], row["drafthouse"]) == ("580.65.06", "2026-11-21", "0.1.0")
    assert (row["engine"], row["engine_version"]) == ("vLLM", "0.32.0")
    assert (row["target"], row["draft"], row["method"], row["draft_tokens"]) == (
        "Qwen/Qwen3-32B",
        OWN_MODEL,
        "eagle3",
        3,
    )
    verdict: Any = kept.report["verdict"]
    assert row["verdict"] == verdict["word"]
    assert row["speedup"] == pytest.approx([verdict["speedup"][end] for end in ("gain", "low", "high")], rel=1e-3)
    assert row["kinds"][0].startswith("copy-edit (verdict): ")
    assert row["kinds"][0].count(" tok/s, ") == 1
    assert row["report_sha256"] == hashlib.sha256((kept.path / "report.json").read_bytes()).hexdigest()
    assert len(json.dumps(row)) < 2000


def spoilt(value: Any, found: list[str], spare: tuple[str, ...] = ()) -> Any:
    """Data whose every text is a canary, keys of what people name among them."""
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
    row: Any = row_of(Kept(kept.path, report, results), "0.1.0")
    said = json.dumps(row) + markdown(row)
    assert [text for text in planted if text in said] == []
    assert all(str(kind).startswith(OWN_PROMPTS) for kind in row["kinds"])


PRIVATE = ("alice", "/home/alice", "gpu-rack-7.acme.example", "sk-live-abcdefghijklmnop", "10.0.0.7", "acme-q3-plan")


@pytest.mark.parametrize("private", PRIVATE)
def test_what_is_personal_comes_out_in_no_form(kept: Kept, private: str) -> None:
    """As it stands, and behind what is right at the place. (A driver names its own cards.)"""
    for form in ("{}", "0.32.0+{}", "pays {}", "20261121-111742 {}", "vllm {}"):
        text = form.format(private)

        def everywhere(value: Any, text: str = text) -> Any:
            if isinstance(value, dict):
                return {key: everywhere(item) for key, item in value.items()}
            return [everywhere(item) for item in value] if isinstance(value, list) else _put(value, text)

        other = Kept(kept.path, everywhere(kept.report), everywhere(kept.results))
        row = row_of(other, "0.1.0")
        assert private not in json.dumps(row) + markdown(row), form


def _put(value: Any, text: str) -> Any:
    return text if isinstance(value, str) else value


def test_the_suites_are_the_shipped_ones() -> None:
    shipped = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / "benchmarks").glob("*.yml")}
    assert {name for name, suite in shipped.items() if "kinds" in suite} == set(SUITES)


def test_the_markdown_is_a_table_of_what_is_known(kept: Kept) -> None:
    row = row_of(kept, "0.1.0")
    lines = markdown(row).splitlines()
    assert {line.count("|") for line in lines} == {3}
    assert f"| gpus | {GPU['name']}<br>{GPU['name']} |" in lines
    assert f"| draft | {OWN_MODEL} |" in lines
    assert not [line for line in lines if line.endswith("|  |")]


def test_an_old_report_and_one_of_a_cpu_have_a_row(tmp_path: Path) -> None:
    def bare(_: Any, spec: Any, resolved: Any) -> None:
        spec["machine"]["before"]["gpus"] = []
        spec["machine"]["before"]["cpu"]["model"] = "AMD EPYC 7B13"
        for name in ("target", "method", "engine"):
            resolved[name] = {}

    row = row_of(read_kept(keep(tmp_path, "20261121-111742", bare)), "0.1.0")
    assert (row["gpus"], row["cpu"], row["draft_tokens"], row["engine"]) == ([], "AMD EPYC 7B13", None, "not shown")
    assert "| cpu | AMD EPYC 7B13 |" in markdown(row)
    without = read_kept(keep(tmp_path, "20261121-111743", lambda _, spec, __: spec.update(machine=None)))
    assert row_of(without, "0.1.0")["cpu"] == ""


#: In no user's name, and so in no path of a test.
MINE = "written-by-somebody"


@pytest.mark.parametrize("value", [None, [], {}, MINE, 7, [[MINE]], {"gain": MINE}])
@pytest.mark.parametrize("key", ["date", "kinds", "verdict", "acceptance", "warnings", "resolved"])
def test_a_value_of_another_type_is_refused_or_not_shown(kept: Kept, key: str, value: Any) -> None:
    """A report that somebody sent may hold anything: no traceback, and nothing of it comes out."""
    report: Any = {**kept.report, key: value}
    other = Kept(kept.path, report, kept.results)
    try:
        assert MINE not in markdown(row_of(other, "0.1.0"))
    except DrafthouseError as refused:
        assert [problem.code for problem in refused.problems] == ["file-malformed"]
        assert MINE not in str(refused)


def test_the_verb_prints_markdown_or_json(tmp_path: Path) -> None:
    keep(tmp_path, "20261121-111742")
    done = called("report", "--row", "--reports", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("| `drafthouse report --row` | |\n")
    row = json.loads(called("report", "--row", "cpu-smollm2-ngram", "--json", "--reports", tmp_path).stdout)
    assert row["schema"] == "drafthouse.row/1"
    assert "buildbox" not in done.stdout + json.dumps(row)
    assert called("report", "--row", "--reports", tmp_path / "none").returncode == 2
    assert called("report", "--row", "--open", "--reports", tmp_path).returncode == 2
    broken = next(tmp_path.rglob("report.json"))
    broken.write_text(json.dumps({**json.loads(broken.read_text("utf-8")), "acceptance": {"overall": []}}), "utf-8")
    refused = called("report", "--row", "--reports", tmp_path)
    assert (refused.returncode, "code: " in refused.stderr) == (2, True)
