"""What people do wrong: each ends in the very words, and nothing is changed. What breaks later: real_engines."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import play, quick

PROFILE = "cpu-smollm2-ngram"


@pytest.mark.parametrize(
    ("inventory", "variables", "found", "needed"),
    [
        ("inventory/workstation", {"profile": "rtx6000-qwen-eagle3"}, "no NVIDIA GPU", "RTX PRO 6000"),
        pytest.param("vastai", {}, "an inventory without hosts", "at least one box", marks=pytest.mark.soak),
        ("inventory/local", {"profile": "cpu-smollm2-ngrm"}, "no profile 'cpu-smollm2-ngrm'", "drafthouse profiles"),
        pytest.param(
            "inventory/local",
            {"profile": PROFILE, "overrides": {"experiment": {"suites": ["/nowhere/mine.jsonl"]}}},
            "no such file", "a suite", marks=pytest.mark.soak,
        ),
        pytest.param(
            "inventory/local", {"profile": PROFILE, "overrides": {"speculation": {"method": "eagle3"}}},
            "'eagle3', which llama.cpp server does not support", "ngram-simple", marks=pytest.mark.soak,
        ),
    ],
)  # fmt: skip
def test_stopped_before_anything_is_touched(
    tmp_path: Path, inventory: str, variables: dict[str, object], found: str, needed: str, figure: Callable[[str], None]
) -> None:
    folders = {"drafthouse_home": str(tmp_path / "home"), "drafthouse_models_dir": str(tmp_path / "models")}
    ended = play("site.yml", inventory=inventory, **{**folders, **variables})
    assert ended.status != 0
    assert ended.changed == 0
    assert any(found in line for line in ended.lines("found"))
    assert any(needed in line for line in ended.lines("needed"))
    assert ended.lines("do")
    assert list(tmp_path.iterdir()) == []
    figure(f"{found}: {ended.seconds:.1f} s")
    assert quick(ended.seconds, 15)


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = play(
            "site.yml", profile=PROFILE, drafthouse_port=port, drafthouse_home=str(tmp_path / "home"),
            drafthouse_models_dir=str(tmp_path / "models"),
        )  # fmt: skip
    assert ended.status != 0
    assert any(f"port {port} is taken (pid " in line for line in ended.lines("found"))
    assert list(tmp_path.iterdir()) == []
