"""Evidence of a GPU run: what is kept of a report, and everything for which a folder is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cli.evidence import folder_name, of_report
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.places import ROOT
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.resolved_types import Fit
from drafthouse.report.evidence import (
    MAX_FOLDER_BYTES,
    NO_PROFILE,
    CheckedEvidence,
    EvidenceFacts,
    add_verified_entry,
    check_profile,
    profile_hash,
    read,
    write,
)
from tests.support.refusals import refuses
from tests.support.report_builders import keep
from tests.support.verb import called

PROFILE = "rtx6000-qwen-eagle3"
CARD = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
UUID = "GPU-6ba7b810-9dad-11d1-80b4-00c04fd430c8"
HELD = 80 << 30
HOUSE = load_catalog(ROOT)


def measured_on_a_gpu(held: int = HELD, version: str = "0.32.0") -> Any:
    def change(base: Any, spec: Any, resolved: Any) -> None:
        base["profile"] = spec["profile"] = resolved["profile"] = PROFILE
        resolved["engine"].update(id="vllm", name="vLLM", version=version, runtime="docker")
        for arm in resolved["arms"].values():
            arm["fit"] = {**dict.fromkeys(Fit.__annotations__, 1), "weights": 60 << 30, "draft": 0, "utilization": 0.9}
        gpu = {
            "index": 0, "uuid": UUID, "name": CARD, "samples": 3, "sm_clock_median_mhz": 2000.0,
            "sm_clock_min_mhz": 2000.0, "memory_clock_median_mhz": 1000.0, "temperature_max_c": 60.0,
            "power_median_w": 500.0, "utilization_median_percent": 99.0, "memory_used_max_bytes": float(held),
            "throttled_share": 0.0, "reasons": {}, "error": None,
        }  # fmt: skip
        for result in (base, spec):
            facts = {"name": CARD, "driver_version": "580.65.06", "memory_total_bytes": 100 << 30}
            result["machine"]["before"]["gpus"] = [{**facts, "power_limit_w": 600.0, "uuid": UUID}]
            result["gpus"] = [{"round": 1, "group": "g", "gpus": [gpu]}]

    return change


def made(tmp_path: Path, **given: Any) -> CheckedEvidence:
    return of_report(keep(tmp_path / "reports", "20261121-111742", measured_on_a_gpu(**given)), tmp_path, HOUSE)


def lane(tmp_path: Path, **fixture: Any) -> CheckedEvidence:
    """A folder of levels 0 and 1."""
    facts: EvidenceFacts = {
        "schema": "drafthouse.evidence/1", "day": "2026-11-27", "gpu": CARD, "driver": "580.65.06",
        "profile": NO_PROFILE, "profile_sha256": None, "engine": None, "engine_version": None,
        "verdict": None, "levels": [0],
        "drafthouse": "0.1.0", "files": {},
    }  # fmt: skip
    data = {"kind": "recorded", "output": f"{CARD}, 97887, GPU-00000000-0000-0000-0000-000000000000", **fixture}
    return write(tmp_path / folder_name("2026-11-27", CARD, NO_PROFILE), facts, {"fixtures/smi-box.json": data})


def refusals(action: Any, *words: Any) -> str:
    with pytest.raises(DrafthouseError) as caught:
        action(*words)
    assert {problem.code for problem in caught.value.problems} == {"evidence-refused"}
    return "\n".join(problem.found for problem in caught.value.problems)


def rewritten(proven: CheckedEvidence, name: str, change: Any) -> Path:
    """The folder with one file changed, and its hash with it: as somebody would who made it up."""
    import hashlib

    path = proven.folder / name
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    facts = json.loads((proven.folder / "evidence.json").read_text())
    if name != "evidence.json":
        facts["files"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
        (proven.folder / "evidence.json").write_text(json.dumps(facts))
    return proven.folder


def test_a_report_becomes_a_small_folder_without_anything_private(tmp_path: Path) -> None:
    proven = made(tmp_path)
    assert proven.folder.name == f"2026-11-21-nvidia-rtx-pro-6000-blackwell-workstation-edition-{PROFILE}"
    assert proven.measured
    assert proven.measured["held"] == {"baseline": HELD, "speculative": HELD}
    assert proven.measured["weights"]["baseline"] == 60 << 30
    texts = "".join(path.read_text() for path in proven.folder.rglob("*.json"))
    assert len(texts) < MAX_FOLDER_BYTES / 10
    assert UUID not in texts
    assert "serve.sh" not in texts
    assert proven.gpu_and_day == f"{CARD}, 2026-11-21"


def test_a_profile_that_is_as_it_was_measured_passes(tmp_path: Path) -> None:
    proven = made(tmp_path)
    profile = HOUSE.profiles[PROFILE]
    check_profile(proven, profile, "0.32.0")
    # What is known of runs changes no setting.
    assert profile_hash({**profile, "verified": ["somewhere"]}) == profile_hash(profile)
    assert "has changed settings" in refusals(check_profile, proven, {**profile, "title": "another"}, "0.32.0")
    assert "engine version 0.32.0" in refusals(check_profile, proven, profile, "0.33.0")


@pytest.mark.parametrize("held", [0, 1 << 30])
def test_an_engine_that_held_no_gpu_memory_is_refused(tmp_path: Path, held: int) -> None:
    assert f"baseline: {held} bytes of GPU memory" in refusals(lambda: made(tmp_path, held=held))


def test_fixtures_made_by_hand_are_refused(tmp_path: Path) -> None:
    assert lane(tmp_path / "a").facts["levels"] == [0]
    assert "kind made" in refusals(lambda: lane(tmp_path / "b", kind="made"))
    assert "kind None" in refusals(lambda: lane(tmp_path / "c", kind=None))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"prompt": "write a poem"}, "the keys prompt"),
        ({"deep": [{"messages": ["hello"]}]}, "the keys messages"),
        ({"note": "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0hL6n"}, "looks like a secret"),
        ({"output": f"GPU 0: {CARD} (UUID: {UUID})"}, "the UUID of a GPU"),
    ],
)
def test_prompts_secrets_and_uuids_are_refused(tmp_path: Path, more: Any, said: str) -> None:
    assert said in refusals(lambda: lane(tmp_path, **more))


def test_a_verdict_or_a_card_that_was_changed_is_refused(tmp_path: Path) -> None:
    invalid = rewritten(made(tmp_path / "a"), "report.json", lambda data: data["row"].update(verdict="invalid"))
    assert "the verdict invalid" in refusals(read, invalid)
    card = rewritten(made(tmp_path / "b"), "evidence.json", lambda data: data.update(gpu="NVIDIA H100 80GB HBM3"))
    assert f"the GPUs {CARD}" in refusals(read, card)
    version = rewritten(made(tmp_path / "c"), "report.json", lambda data: data["row"].update(engine_version="1.0"))
    assert "engine version 1.0" in refusals(read, version)


def test_files_that_are_changed_added_missing_linked_or_too_large_are_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "a").folder
    (folder / "report.json").write_text((folder / "report.json").read_text() + " ")
    assert "content changed" in refusals(read, folder)
    folder = lane(tmp_path / "b").folder
    (folder / "notes.txt").write_text("mine")
    assert "unexpected name" in refusals(read, folder)
    folder = lane(tmp_path / "c").folder
    (folder / "fixtures" / "more.json").write_text('{"kind": "recorded"}')
    assert "unlisted" in refusals(read, folder)
    folder = lane(tmp_path / "d").folder
    (folder / "fixtures" / "smi-box.json").unlink()
    assert "unlisted or missing" in refusals(read, folder)
    folder = lane(tmp_path / "e").folder
    (folder / "fixtures" / "link.json").symlink_to("/etc/passwd")
    assert "a link" in refusals(read, folder)
    assert " bytes" in refusals(lambda: lane(tmp_path / "f", output="0" * MAX_FOLDER_BYTES))
    folder = lane(tmp_path / "g").folder
    (folder / "evidence.json").write_text("[]")
    with refuses("wrong-type"):
        read(folder)
    folder = lane(tmp_path / "h").folder
    (folder / "fixtures" / "smi-box.json").write_bytes(b"\xff")
    assert "which UTF-8 can't decode" in refusals(read, folder)


def _set(path: str, value: Any) -> Any:
    def change(data: Any) -> None:
        *way, last = path.split(".")
        for key in way:
            data = data[key]
        data[last] = value

    return change


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        ("report.json", "note", "alice@10.1.2.3:/home/alice", "unknown-key"),
        ("report.json", "row.note", 1, "unknown-key"),
        ("report.json", "weights.baseline", -1, "out-of-range"),
        ("report.json", "held.other", 1, "unknown-key"),
        ("report.json", "row.speedup", [1e9, 1, 1], "out-of-range"),
        ("report.json", "row.speedup", [-1.0], "out-of-range"),
        ("report.json", "row.acceptance_rate", 20.01, "out-of-range"),
        ("report.json", "row.gpus", [CARD, 7], "wrong-type"),
        ("report.json", "row.kinds", {"a": 1}, "wrong-type"),
        ("evidence.json", "note", "x", "unknown-key"),
        ("evidence.json", "day", "2026-99-99", "evidence-refused"),
        ("evidence.json", "day", "2999-01-01", "evidence-refused"),
        ("evidence.json", "levels", [7], "out-of-range"),
    ],
)
def test_what_nobody_wrote_or_nothing_measures_is_refused(
    tmp_path: Path, name: str, path: str, value: Any, code: str
) -> None:
    folder = rewritten(made(tmp_path), name, _set(path, value))
    with refuses(code):
        read(folder)


def test_verified_is_written_where_it_stands() -> None:
    text = "# a comment\ntitle: x\nverified: []\nexperiment:\n  rounds: 2\n"
    once = add_verified_entry(text, "NVIDIA H100, 2026-11-27")
    assert once == text.replace("[]", '["NVIDIA H100, 2026-11-27"]')
    assert add_verified_entry(once, "NVIDIA H100, 2026-11-27") == once
    assert 'verified: ["NVIDIA H100, 2026-11-27", "B"]' in add_verified_entry(once, "B")
    assert add_verified_entry("title: x\n", "B").endswith('verified: ["B"]\n')
    with pytest.raises(DrafthouseError, match="several lines"):
        add_verified_entry("verified:\n  - a\n", "B")


def test_every_profile_of_the_house_could_take_it() -> None:
    for path in (ROOT / "profiles").glob("*.yml"):
        assert '"B"' in add_verified_entry(path.read_text(), "B"), path


def test_the_command_checks_and_refuses(tmp_path: Path) -> None:
    done = called("evidence", "check", made(tmp_path).folder)
    assert done.returncode == 0, done.stderr
    assert f"{PROFILE} pays" in done.stdout or PROFILE in done.stdout
    outside = called("evidence", "add", tmp_path / made(tmp_path / "x").folder.name)
    assert outside.returncode == 2
    lane_folder = lane(tmp_path / "lane").folder
    assert called("evidence", "add", lane_folder).returncode == 2
    assert called("evidence", "check", lane_folder).returncode == 0


def test_a_run_on_a_cpu_is_no_evidence(tmp_path: Path) -> None:
    report = keep(tmp_path, "20261121-111742")
    assert "no GPU" in refusals(of_report, report, tmp_path / "out", HOUSE)


def test_all_that_is_in_the_repository_holds() -> None:
    for folder in (ROOT / "evidence").glob("*/"):
        read(folder)
