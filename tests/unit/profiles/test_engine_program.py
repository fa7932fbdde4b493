"""A server that was built on the box, in place of one that is installed: what is rendered, said and checked."""

from __future__ import annotations

from typing import Any

from drafthouse.operate.checks.runtime import engine_environment, engine_program
from drafthouse.profiles.workspace import resolved_profile, site_from, site_of_inventory
from drafthouse.report.data.setup import setup

PROGRAM = "/opt/llama.cpp/bin/llama-server"


def resolved(**site: Any) -> Any:
    return resolved_profile("rtx4090-llama32-llamacpp-draft1b", {**site_of_inventory("workstation"), **site})


def test_both_arms_run_it_and_nothing_is_installed() -> None:
    found = resolved(runtime="process", engine_program=PROGRAM)
    for arm in found["arms"].values():
        assert f"exec {PROGRAM} \\" in arm["files"][0]["content"]
    assert found["engine"]["program"] == PROGRAM
    assert found["engine"]["home"] == "/opt/llama.cpp/bin"
    assert found["engine"]["install"] is None
    assert found["hashes"] == {}


def test_the_plan_and_the_report_name_it() -> None:
    found = resolved(runtime="process", engine_program=PROGRAM)
    assert any(PROGRAM in warning for warning in found["warnings"])
    assert {"what": "Engine's program", "which": PROGRAM} in setup(found)


def test_an_image_has_its_own() -> None:
    assert resolved(runtime="docker", engine_program=PROGRAM)["arms"] == resolved(runtime="docker")["arms"]


def test_without_it_nothing_is_another() -> None:
    found = resolved(runtime="process")
    assert "program" not in found["engine"]
    assert found["arms"]["baseline"]["command"] == ["llama-server"]


def test_one_that_is_not_there_is_refused_before_anything_changes() -> None:
    found = resolved(runtime="process", engine_program=PROGRAM)
    finding = engine_program(found, {"box": {"present": []}})  # type: ignore[typeddict-item]
    assert finding and finding.status == "fail" and PROGRAM in finding.found
    assert engine_program(found, {"box": {"present": [PROGRAM]}}) is None  # type: ignore[typeddict-item]
    assert engine_program(resolved(), {"box": {}}) is None  # type: ignore[typeddict-item]
    assert engine_environment(found, {"environment": {}}).status == "ok"  # type: ignore[typeddict-item]


def test_the_inventory_names_it() -> None:
    assert site_from({"drafthouse_engine_program": PROGRAM})["engine_program"] == PROGRAM
