"""The kept report of the same commands is the proof; one of other commands is none."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.export.evidence import evidence_of
from drafthouse.export.targets import TARGETS, exported
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.support import exports
from tests.support.report_builders import LIMITS, keep, make_ladder
from tests.support.verb import called

DIGEST = "sha256:" + "cd" * 32


def measured(reports: Path, date: str, *, flags: list[str] | None = None, ladder: Any = None, **pair: Any) -> Path:
    """Keep a report of the profile, as a box of its own inventory measured it: other folders, another address."""
    there: Any = copy.deepcopy(resolved_profile(exports.QWEN, site_of_inventory("workstation")))
    if flags:
        there["arms"]["speculative"]["flags"].append(flags)

    def change(base: Any, spec: Any, resolved: Any) -> None:
        base["profile"] = spec["profile"] = exports.QWEN
        resolved.update({key: there[key] for key in ("profile", "arms", "engine", "hardware", "site")})
        resolved["image_digest"] = DIGEST

    return keep(reports, date, change, ladder, **pair)


def profile() -> Any:
    return exports.resolved(exports.QWEN)


def test_the_report_is_found_by_its_commands_and_told_by_its_hash(tmp_path: Path) -> None:
    folder = measured(tmp_path, "20261121-111742")
    found = evidence_of(tmp_path, profile(), clone_reports=tmp_path)
    assert found
    assert found.sha256 == hashlib.sha256((folder / "report.json").read_bytes()).hexdigest()
    report = json.loads((folder / "report.json").read_text())
    assert found.word == report["verdict"]["word"] == "pays"
    assert found.winner == "speculative"
    for name, target in TARGETS.items():
        text = exported(target, exports.order(exports.QWEN, name, evidence=found))
        for said in (found.sha256, report["verdict"]["sentence"][:30], f"v0.32.0@{DIGEST}"):
            assert said in text.replace("\n#   ", " "), name
        assert report["host"] not in text
        assert f"Image: by the digest in this clone's report {found.name}" in text.replace("\n#   ", " ")


def test_a_report_of_another_clone_does_not_choose_the_image(tmp_path: Path) -> None:
    measured(tmp_path, "20261121-111742")
    found = evidence_of(tmp_path, profile(), clone_reports=tmp_path / "elsewhere")
    assert found
    for name, target in TARGETS.items():
        order = exports.order(exports.QWEN, name, evidence=found)
        assert order.image == "vllm/vllm-openai:v0.32.0"
        assert f"not of this clone, has {DIGEST}" in exported(target, order).replace("\n#   ", " ")


@pytest.mark.parametrize(
    "digest",
    [
        f"{DIGEST}\n[Service]\nExecStartPost=/bin/touch PWN\n[Container]\nPodmanArgs=--privileged --volume=/:/host",
        f"{DIGEST} --privileged",
        f"{DIGEST}\n",
        "sha256:AB",
        "$(touch PWN)",
        "",
        7,
        None,
        ["sha256"],
    ],
)
def test_a_digest_that_is_none_is_not_taken(digest: Any, tmp_path: Path) -> None:
    folder = measured(tmp_path, "20261121-111742")
    report = json.loads((folder / "report.json").read_text())
    report["resolved"]["image_digest"] = digest
    (folder / "report.json").write_text(json.dumps(report))
    found = evidence_of(tmp_path, profile(), clone_reports=tmp_path)
    if found:  # or the report is refused for its shape, and proves nothing
        assert found.digest is None
    for name, target in TARGETS.items():
        text = exported(target, exports.order(exports.QWEN, name, evidence=found))
        assert "PWN" not in text
        assert "privileged" not in text


def test_a_report_of_other_commands_proves_nothing(tmp_path: Path) -> None:
    measured(tmp_path, "20261121-111742", flags=["--max-num-seqs", "3"])
    assert evidence_of(tmp_path, profile()) is None
    with pytest.raises(DrafthouseError, match="export-other-report"):
        evidence_of(tmp_path, profile(), exports.QWEN)
    # An older one of the same commands does, and a broken one in between is passed over.
    measured(tmp_path, "20261101-000000")
    broken = measured(tmp_path, "20261111-000000")
    (broken / "report.json").write_text("{")
    found = evidence_of(tmp_path, profile())
    assert found
    assert found.name == f"{exports.QWEN}/20261101-000000"
    with pytest.raises(DrafthouseError, match="no-such-report"):
        evidence_of(tmp_path, profile(), "nothing")


def test_another_version_of_the_engine_proves_nothing(tmp_path: Path) -> None:
    folder = measured(tmp_path, "20261121-111742")
    report = json.loads((folder / "report.json").read_text())
    report["resolved"]["engine"]["version"] = "0.31.0"
    (folder / "report.json").write_text(json.dumps(report))
    assert evidence_of(tmp_path, profile()) is None


def test_a_measured_load_says_when_a_replica_is_added(tmp_path: Path) -> None:
    measured(tmp_path, "20261121-111742", ladder=make_ladder(limits=LIMITS))
    found = evidence_of(tmp_path, profile())
    assert found
    load = json.loads(next(tmp_path.glob("*/*/report.json")).read_text())["load"]
    declared = {kind["kind"] for kind in load["kinds"] if kind["declared"]}
    costs = [row for row in load["rows"] if row["word"] == "costs" and row["kind"] in declared]
    assert costs  # so the highest load is not the one to scale at
    pays = [row for row in load["rows"] if row["kind"] in declared and row not in costs]
    rate = found.rates["speculative"]
    assert rate == pytest.approx(max(row["speculative"]["request_throughput"] for row in pays), abs=0.001)
    places = {"skypilot": ("service", "replica_policy", "target_qps_per_replica"), "dstack": ("scaling", "target")}
    for target, keys in places.items():
        data = yaml.safe_load(exported(TARGETS[target], exports.order(exports.QWEN, target, evidence=found)))
        for key in keys:
            data = data[key]
        assert data == rate


def test_the_verdict_chooses_the_arm(tmp_path: Path) -> None:
    def wrote(*words: str) -> set[str]:
        for old in (tmp_path / "out").glob("*"):
            old.unlink()
        to = ("--to", "dstack", "--reports", tmp_path, "--output", tmp_path / "out")
        done = called("export", exports.QWEN, *to, *words)
        assert done.returncode == 0, done.stderr
        return {path.name for path in (tmp_path / "out").iterdir()}

    spec, base = "dstack-speculative.yaml", "dstack-baseline.yaml"
    assert wrote() == {spec, base}  # nothing was measured
    measured(tmp_path, "20261121-111742")
    assert wrote() == {spec}
    assert wrote("--arm", "both") == {spec, base}
    assert wrote("--arm", "baseline") == {base}
    measured(tmp_path, "20261122-111742", speedups={"copy-edit": 0.7})
    assert wrote() == {base}


def test_the_verb_says_what_proves_it_and_where_the_image_comes_from(tmp_path: Path) -> None:
    to = ("export", exports.QWEN, "--to", "kubernetes", "--reports", tmp_path / "reports", "--output", tmp_path)
    done = called(*to)
    assert done.returncode == 0, done.stderr
    assert "proof: no kept report has these commands" in done.stdout
    assert "image: by tag, which can move" in done.stdout
    measured(tmp_path / "reports", "20261121-111742")
    done = called(*to)
    assert f"proof: pays, by {exports.QWEN}/20261121-111742" in done.stdout
    assert f"is not of this clone, has {DIGEST}" in done.stdout
    done = called(*to, "--image", f"mine.example/v@{DIGEST}")
    assert "image: named with --image" in done.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--to", "sky"), "invalid-option"),
        ((), "missing-option"),
        (("--to", "dstack", "--replicas", "many"), "invalid-option"),
        (("--to", "dstack", "--check", "/nowhere/x.yaml"), "removed"),
        (("--to", "dstack", "--image", "mine.example/v:1 --privileged"), "wrong-format"),
        (("--to", "dstack", "--report", "nothing"), "no-such-report"),
        (("--to", "dstack", "--set", "engine_version=0.0.1"), ""),
    ],
)
def test_what_people_type_wrong(words: tuple[str, ...], code: str, tmp_path: Path) -> None:
    done = called("export", exports.QWEN, *words, "--reports", tmp_path, "--output", tmp_path / "out")
    assert done.returncode != 0
    assert f"code: {code}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
