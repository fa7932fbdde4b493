"""The theory that level 1 is held against, its profiles, its models, and when its checks fail."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.core.places import ROOT
from drafthouse.core.schema import Findings, check
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.own_folders import PROFILES_VARIABLE
from drafthouse.profiles.schemas import MODELS
from tests.gpu import level1, models
from tests.gpu.level1 import cost_of, per_token, problems, profile, theory


@pytest.mark.parametrize("tokens", [1, 2, 4, 8])
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.9, 1.0])
def test_the_cost_of_a_draft_is_what_the_theorem_says_backwards(chance: float, tokens: int) -> None:
    assert cost_of(theory(chance, tokens, 0.08), chance, tokens) == pytest.approx(0.08)


def test_theory_by_hand() -> None:
    assert theory(0.5, 1, 0.0) == pytest.approx(1.5)
    assert theory(1.0, 4, 0.25) == pytest.approx(2.5)
    assert theory(0.0, 4, 0.1) == pytest.approx(1 / 1.4)


def test_the_chance_of_a_token_from_the_share_of_all() -> None:
    for chance in (0.2, 0.5, 0.95):
        share = sum(chance**n for n in range(1, 5)) / 4
        assert per_token(share, 4) == pytest.approx(chance, abs=1e-6)
    assert per_token(0.0, 4) == pytest.approx(0, abs=1e-6)


def one(**given: Any) -> Any:
    right = {
        "profile": "gpu-lane-f16-k2", "tokens": 2, "verdict": "pays", "speedup": 2.0, "acceptance": 0.99,
        "cost_of_a_draft": 0.1, "predicted_speedup": 2.1, "memory_error": {"baseline": 0.01, "speculative": -0.02},
        "tpot_error": {"baseline": 0.01, "speculative": 0.02},
        "joules_per_token": {"baseline": 1.0, "speculative": 0.5},
    }  # fmt: skip
    return {**right, **given}


def test_runs_that_agree_are_right() -> None:
    assert problems([one(), one(predicted_speedup=None)]) == []


def test_each_check_can_fail() -> None:
    for given, said in (
        ({"verdict": "invalid"}, "invalid"),
        ({"memory_error": {"baseline": 0.2}}, "memory +20.0%"),
        ({"memory_error": {"baseline": None}}, "memory not read"),
        ({"joules_per_token": {"baseline": None}}, "no energy"),
        ({"tpot_error": {"baseline": -0.3}}, "-30.0% of the engine's own"),
        ({"predicted_speedup": 3.0}, "2.00x, where theory says 3.00x"),
    ):
        (wrong,) = problems([one(**given)])
        assert said in wrong


def test_its_models_are_right_entries_and_say_what_they_are(tmp_path: Path) -> None:
    files = {role: tmp_path / f"lane-{role}.gguf" for role in ("draft", "target")}
    for path in files.values():
        path.write_bytes(b"GGUF")
    entries = yaml.safe_load(models.entries(files, models.SMALL))
    findings = Findings("entries")
    check(entries, MODELS, findings)
    assert findings.problems == []
    assert all("meaningless" in entry["synthetic"] for entry in entries.values())
    small, dear = entries["lane-draft"], entries["lane-target"]
    assert dear["layers"] == 8 * small["layers"]


def test_the_target_of_a_gpu_is_8_to_30_times_dearer() -> None:
    shape = models.Shape()
    ratio = shape.parameters(shape.dear) / shape.parameters(shape.blocks)
    assert 8 <= ratio <= 30


def test_small_models_are_made_of_both_types(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    for kind in ("F16", "Q4_0"):
        files = models.make(tmp_path / kind, models.SMALL, kind, lambda line: None)
        reader = gguf.GGUFReader(files["target"])
        assert reader.fields["llama.block_count"].contents() == models.SMALL.dear
        zero = next(
            tensor for tensor in reader.tensors if tensor.name == f"blk.{models.SMALL.dear - 1}.ffn_down.weight"
        )
        assert not zero.data.any()
        said = next(tensor for tensor in reader.tensors if tensor.name == "output.weight").data.any(axis=1)
        assert [token for token, is_said in enumerate(said) if is_said] == list(range(33, 127))
        assert reader.fields["drafthouse.synthetic"].contents().startswith("identity blocks")


@pytest.mark.parametrize("named", ["", "/tmp"])
def test_its_profiles_are_beside_the_shipped_ones_while_it_runs(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROFILES_VARIABLE, named)
    with level1.installed({"gpu-lane-f16": "a"}, {"gpu-lane-ours": "b"}):
        folder = Path(os.environ[PROFILES_VARIABLE].split(os.pathsep)[-1])
        assert load_catalog(ROOT).file("gpu-lane-ours") == str(folder / "gpu-lane-ours.yml")
        assert (folder / "gpu-lane-ours.yml").read_text() == "b"
        assert (folder / "catalog/local/gpu-lane-f16.yml").read_text() == "a"
    assert os.environ[PROFILES_VARIABLE] == named
    assert not folder.exists()


def test_a_profile_says_that_its_text_is_meaningless() -> None:
    text = profile("h100", {"target": "a", "draft": "b"}, 4)
    assert "meaningless" in text
    data = yaml.safe_load(text)
    assert data["speculation"]["num_speculative_tokens"] == 4
    assert yaml.safe_load(profile("h100", {"target": "a", "draft": "b"}, 4, lookup=True))["speculation"]["method"] == (
        "ngram-simple"
    )


def test_a_load_sweep_has_as_many_slots_as_its_highest_level() -> None:
    data = yaml.safe_load(profile("h100", {"target": "a", "draft": "b"}, 2, levels=(1, 2, 4)))
    assert data["serve"]["parallel"] == 4
    assert data["experiment"]["ladder"]["levels"] == [1, 2, 4]
    assert data["experiment"]["schedule"] == "alternated"
    assert "ladder" not in yaml.safe_load(profile("h100", {"target": "a", "draft": "b"}, 2))["experiment"]
