"""The schedule by batch size: which engine can, what a ladder suggests, and what it did where it was tried."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.batch_k_schedule import tried
from drafthouse.cli import compare_schedule as program
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.batch_k import support
from drafthouse.profiles.catalog import load_house
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from tests.support.ladders import KIND, known_ladder
from tests.support.loosely import fill, offer

pytestmark = pytest.mark.processes

ROWS = {"option": "num_speculative_tokens_per_batch_size", "form": "rows", "why": None}
FALLING: dict[float, float] = {1: 1.8, 4: 1.4, 8: 1.26, 16: 0.8}


def measured(gains: dict[float, float], **fields: Any) -> Any:
    ladder = known_ladder(gains, **fields)
    return {**ladder, "crossover": fill(ladder, 500), "schedule": None}


def resolved(switch: dict[str, Any] | None = None, **settings: Any) -> Any:
    return {
        "profile": "x",
        "experiment": {"kinds": [KIND]},
        "method": {"id": "eagle3", "num_speculative_tokens": 3, "settings": {"method": "eagle3", **settings}},
        "batch_schedule": ROWS if switch is None else switch,
    }


# ---- which engine can ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "method", "version", "option", "form"),
    [
        ("vllm", "eagle3", "0.24.0", "num_speculative_tokens_per_batch_size", "rows"),
        ("vllm", "ngram", "nightly", "num_speculative_tokens_per_batch_size", "rows"),
        ("vllm", "draft_model", "0.22.0", None, None),
        ("vllm", "suffix", "0.32.0", None, None),
        ("vllm-arctic", "arctic", "0.26.0", "disable_by_batch_size", "largest"),
        ("trtllm", "eagle3", "1.2.1", "max_concurrency", "largest"),
        ("llamacpp", "ngram-map-k", "2026.10.11549", None, None),
    ],
)
def test_the_catalogue_says_who_can(
    engine: str, method: str, version: str, option: str | None, form: str | None
) -> None:
    entry = load_house(ROOT).engines[engine]
    found = support({"id": engine, **entry}, {"id": method, **entry["methods"][method]}, version)
    assert (found["option"], found["form"]) == (option, form)
    assert (found["why"] is None) == (option is not None)
    if version == "0.22.0":
        assert (found["why"] or "").endswith("num_speculative_tokens_per_batch_size came in 0.24.0")


# ---- what is offered -----------------------------------------------------------------------------


def test_speculation_ends_at_the_crossover() -> None:
    found = offer(measured(FALLING), resolved())
    assert found["offered"] == found["settings"] == [[1, 11, 3], [12, 16, 0]]
    assert found["overrides"] == {"speculation": {"options": {ROWS["option"]: found["offered"]}}}
    assert found["why"] == f"{KIND} pays until about 11 concurrent requests"
    assert found["tried"] is None


def test_a_level_that_costs_ends_the_offer_although_a_higher_one_looks_well_by_chance() -> None:
    ladder = known_ladder({1: 1.8, 2: 1.4, 4: 0.8, 8: 0.7, 16: 1.0})
    for step in ladder["steps"]:
        if step["level"] == 16 and step["arm"] == "speculative":
            names = list(step["tpot_by_prompt"])
            step["tpot_by_prompt"] = {name: [12.0 / (0.9, 1.18)[n % 2]] for n, name in enumerate(names)}
    found = offer({**ladder, "crossover": fill(ladder, 500), "schedule": None}, resolved())
    assert found["offered"] == [[1, 3, 3], [4, 16, 0]]
    # Where the higher level surely pays there is no one switch, and the refusal says what it leaves as it is.
    refused = offer(measured({1: 1.8, 2: 1.4, 4: 0.8, 8: 0.7, 16: 1.2}), resolved())
    assert refused["offered"] is None
    assert refused["why"] == (
        "it still pays at 16 requests, the most that was measured; no single switch avoids the cost in "
        "between, at 4 and 8"
    )


def test_the_offer_is_one_that_the_resolver_takes() -> None:
    found = offer(measured(FALLING), resolved())
    built = resolved_profile("rtx6000-qwen-eagle3", site_of_inventory("workstation"), found["overrides"])
    assert built["method"]["settings"][str(ROWS["option"])] == found["offered"]


def test_the_command_survives_make_and_the_shell() -> None:
    words = offer(measured(FALLING), resolved())["command"]
    recipe = "x:\n\t@printf '%s\\n' $(ARGS)\n"
    done = subprocess.run(
        ["bash", "-c", words.replace("make ", "make -s -f - ", 1)],
        input=recipe, capture_output=True, text=True, check=True,
    )  # fmt: skip
    flag, value = done.stdout.splitlines()
    assert flag == "-e"
    assert json.loads(value) == {"overrides": offer(measured(FALLING), resolved())["overrides"]}


def test_the_first_kind_to_cross_decides() -> None:
    ladder = measured(FALLING)
    ladder["crossover"]["chat"] = measured({1: 1.5, 4: 1.06, 8: 0.9, 16: 0.7})["crossover"][KIND]
    profile = {**resolved(), "experiment": {"kinds": [KIND, "chat"]}}
    assert offer(ladder, profile)["offered"] == [[1, 4, 3], [5, 16, 0]]
    # A kind that the profile does not declare has no say.
    assert offer(ladder, resolved())["offered"] == [[1, 11, 3], [12, 16, 0]]


def test_what_pays_in_the_middle_alone_is_switched_at_both_ends() -> None:
    ladder = measured({1: 0.9, 2: 1.0, 4: 1.3, 8: 1.25, 16: 0.9})
    assert offer(ladder, resolved())["offered"] == [[1, 2, 0], [3, 12, 3], [13, 16, 0]]
    largest = offer(ladder, resolved({"option": "max_concurrency", "form": "largest", "why": None}))
    assert largest["settings"] == 12
    assert "no lower limit" in largest["why"]


@pytest.mark.parametrize(
    ("gains", "fields", "profile", "why"),
    [
        (FALLING, {}, resolved({"option": None, "form": None, "why": "llama.cpp cannot"}), "llama.cpp cannot"),
        (FALLING, {}, {**resolved(), "batch_schedule": None}, "it is not known whether"),
        (FALLING, {}, resolved(num_speculative_tokens_per_batch_size=[[1, 4, 3]]), "already switches by batch size"),
        (FALLING, {"load": "open", "unit": "requests a second"}, resolved(), "measure a closed loop"),
        ({1: 0.9, 4: 0.8}, {}, resolved(), f"{KIND} pays at no load: nothing to switch"),
        ({1: 1.8, 4: 1.7}, {}, resolved(), "it still pays at 4 requests, the most that was measured"),
    ],
)
def test_nothing_is_offered_without_a_reason_to(gains: dict[float, float], fields: Any, profile: Any, why: str) -> None:
    found = offer(measured(gains, **fields), profile)
    assert found["offered"] is found["overrides"] is found["command"] is None
    assert why in found["why"]


def test_a_ladder_of_nothing_offers_nothing() -> None:
    ladder = {**known_ladder({1: 1.5}), "steps": [], "kinds": [], "crossover": {}}
    assert offer(ladder, resolved())["why"] == "nothing was measured: nothing to switch"


# ---- what came of it -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("switched", "keeps", "mends"),
    [
        ({1: 1.78, 4: 1.38, 8: 1.2, 16: 0.99}, True, True),
        ({1: 1.78, 4: 1.38, 8: 1.2, 16: 0.85}, True, False),
        ({1: 1.0, 4: 1.0, 8: 1.0, 16: 0.99}, False, True),
    ],
)
def test_what_the_switch_did(switched: dict[float, float], keeps: bool, mends: bool) -> None:
    found = tried(measured(FALLING), measured(switched))["kinds"][KIND]
    assert (found["keeps"], found["mends"]) == (keeps, mends)
    assert f"at 1 (1.80{chr(215)} without it) and" in found["sentence"]
    assert f"at 16 (0.80{chr(215)} without it)" in found["sentence"]


def test_the_program_keeps_the_comparison(tmp_path: Path) -> None:
    plain, switched = tmp_path / "plain.json", tmp_path / "switched.json"
    plain.write_text(json.dumps({**known_ladder(FALLING), "schedule": {"offered": [[1, 11, 3], [12, 16, 0]]}}))
    switched.write_text(json.dumps(known_ladder({**FALLING, 16: 0.99})))
    words = [sys.executable, str(ROOT / "scripts" / "drafthouse"), "compare-schedule", str(plain), str(switched)]
    done = subprocess.run([*words, "--write"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{KIND}: with the switch the speed-up is 1.80")
    kept = json.loads(plain.read_text())["schedule"]
    assert kept["offered"] == [[1, 11, 3], [12, 16, 0]]
    assert kept["tried"]["kinds"][KIND]["mends"] is True


def test_a_switch_that_does_not_help_gives_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plain.json"
    file.write_text(json.dumps(known_ladder(FALLING)))
    assert program.main([str(file), str(file)]) == 2
    assert "at 16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, "No such file"),
        ("{", "Expecting"),
        ("[]", "the schema None"),
        ('{"schema": "drafthouse.result/1"}', "the schema 'drafthouse.result/1'"),
        (json.dumps({**known_ladder(FALLING), "profile": "y"}), "ladders of x (closed loop) and y (closed loop)"),
        (json.dumps(known_ladder({64: 1.5})), "no kind and level in common"),
    ],
)
def test_a_wrong_file_says_what_is_needed(text: str | None, found: str, tmp_path: Path) -> None:
    plain, other = tmp_path / "plain.json", tmp_path / "other.json"
    plain.write_text(json.dumps(known_ladder(FALLING)))
    if text is not None:
        other.write_text(text)
    with pytest.raises(DrafthouseError) as error:
        program.main([str(plain), str(other)])
    assert found in error.value.problems[0].found
