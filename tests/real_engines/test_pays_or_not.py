"""What pays and what does not, told apart on llama.cpp: kinds of work, and a good draft from a bad one.

That n-gram lookup pays on copying is what `make test` shows; a head with random weights is in `test_site.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Play

pytestmark = pytest.mark.alone

# Ten prompts, two of each kind: a minute of measuring.
SHORT = {"prompts_per_kind": {"declared": 2}, "max_output_tokens": 32}


def judged(run: Play, folder: Path, profile: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """Run site.yml for a profile with changes, and return its report."""
    ended = run("site.yml", profile=profile, overrides=overrides, report_folder=str(folder))
    assert ended.status == 0, ended.output[-3000:]
    (report,) = folder.rglob("report.json")
    data: dict[str, Any] = json.loads(report.read_text())
    return data


def test_a_lookup_does_not_pay_on_free_writing(run: Play, tmp_path: Path, figure: Callable[[str], None]) -> None:
    free = {
        "suites": ["creative"],
        "kinds": ["creative-hot"],
        "once": [],
        "prompts_per_kind": {"declared": 6},
        "max_output_tokens": 32,
    }
    report = judged(run, tmp_path, "cpu-smollm2-ngram", {"experiment": free})
    figure(f"n-gram lookup, free writing: {report['verdict']['sentence']}")
    assert report["verdict"]["word"] == "does not pay"
    assert report["verdict"]["speedup"]["median"] < 1.2
    assert [gate["word"] for gate in report["verdict"]["gates"] if gate["name"] == "outputs"] != ["failed"]


def test_a_good_draft_is_told_from_a_pruned_one(run: Play, tmp_path: Path, figure: Callable[[str], None]) -> None:
    profile, pruned = "cpu-smollm2-draft", {"draft": "smollm2-135m-q4-pruned"}
    good = judged(run, tmp_path / "good", profile, {"experiment": SHORT})
    bad = judged(run, tmp_path / "bad", profile, {"experiment": SHORT, "speculation": pruned})
    figure(f"the whole draft: {good['verdict']['sentence']}")
    figure(f"the pruned draft: {bad['verdict']['sentence']}")
    assert good["verdict"]["word"] == "pays"
    assert bad["verdict"]["word"] == "does not pay"
    assert not good["verdict"]["wrong_output"]
    assert not bad["verdict"]["wrong_output"]
    counted = [report["verdict"]["drafting"]["speculative"] for report in (good, bad)]
    kept = [arm["accepted_tokens"] / arm["draft_tokens"] for arm in counted]
    assert kept[0] > 2 * kept[1]
    assert "blocks taken out" in bad["marks"]["synthetic"]
