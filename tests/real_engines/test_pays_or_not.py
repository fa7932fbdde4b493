"""What pays and what does not, told apart on llama.cpp: kinds of work, and a good draft from a bad one.

That n-gram lookup pays on copying is what `make test` shows; a head with random weights is in `test_site.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.own_folders import PROFILES_VARIABLE
from tests.e2e.conftest import Play
from tests.support.made_models import made_model, own_folder

pytestmark = pytest.mark.alone

# As few prompts as a verdict takes, and short: the padded target reads and writes slowly.
SUBJECTS = ("a lighthouse", "the first snow", "a bakery", "an old map", "the night train", "a lost umbrella")


@pytest.fixture
def short(tmp_path: Path) -> dict[str, Any]:
    """An experiment of six prompts of a user's own."""
    lines = [
        {
            "id": f"mine-{number}",
            "kind": "mine",
            "output_tokens": 24,
            "messages": [{"role": "user", "content": f"Write two sentences about {subject}."}],
        }
        for number, subject in enumerate(SUBJECTS)
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"suites": [str(path)], "kinds": ["mine"], "once": [], "prompts_per_kind": {"declared": len(SUBJECTS)}}


def judged(run: Play, folder: Path, profile: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """Run site.yml for a profile with changes, and return its report."""
    overrides = {**overrides, "experiment": {"budget": 0, **overrides["experiment"]}}
    ended = run("site.yml", profile=profile, overrides=overrides, report_folder=str(folder))
    assert ended.status == 0, ended.output[-3000:]
    (report,) = folder.rglob("report.json")
    data: dict[str, Any] = json.loads(report.read_text())
    return data


@pytest.mark.soak
def test_a_lookup_does_not_pay_on_free_writing(run: Play, tmp_path: Path, figure: Callable[[str], None]) -> None:
    free = {
        "suites": ["creative"],
        "kinds": ["creative-hot"],
        "once": [],
        "prompts_per_kind": {"declared": 6},
        "max_output_tokens": 32,
        "budget": "3x",
    }
    report = judged(run, tmp_path, "cpu-smollm2-ngram", {"experiment": free})
    figure(f"n-gram lookup, free writing: {report['verdict']['sentence']}")
    assert report["verdict"]["word"] == "does not pay"
    assert report["verdict"]["speedup"]["gain"] < 1.2
    assert [gate["word"] for gate in report["verdict"]["gates"] if gate["name"] == "outputs"] != ["failed"]


# Two runs with a target of 1 GB; that the whole draft pays on its own profile is in `test_site.py`.
@pytest.mark.soak
def test_a_good_draft_is_told_from_a_pruned_one(
    run: Play,
    tmp_path: Path,
    short: dict[str, Any],
    figure: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_model("smollm2-135m-q4-pruned")
    monkeypatch.setenv(PROFILES_VARIABLE, str(own_folder(tmp_path / "own")))
    profile, pruned = "cpu-smollm2-draft", {"draft": "smollm2-135m-q4-pruned"}
    good = judged(run, tmp_path / "good", profile, {"experiment": short})
    bad = judged(run, tmp_path / "bad", profile, {"experiment": short, "speculation": pruned})
    figure(f"the whole draft: {good['verdict']['sentence']}")
    figure(f"the pruned draft: {bad['verdict']['sentence']}")
    assert bad["verdict"]["word"] == "does not pay"
    assert good["verdict"]["speedup"]["low"] > bad["verdict"]["speedup"]["high"]
    assert not good["verdict"]["wrong_output"]
    assert not bad["verdict"]["wrong_output"]
    counted = [report["verdict"]["drafting"]["speculative"] for report in (good, bad)]
    kept = [arm["accepted_tokens"] / arm["draft_tokens"] for arm in counted]
    assert kept[0] > 2 * kept[1]
    assert "blocks taken out" in bad["marks"]["synthetic"]
