"""`make monitoring-check`: promtool on the rules of every profile, a line each, and no zero where one is wrong."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from monitoring_check import main

from drafthouse.addons.prometheus_rules import SERIES
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT
from tests.support.prometheus import TEMPLATES, real

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(real("promtool")).parent), prepend=os.pathsep)
    monkeypatch.setattr("sys.argv", ["monitoring_check.py"])


def test_every_profile_and_engine_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    found = [re.fullmatch(r"(\w[^;]*); .* \(([^(]*)\): SUCCESS: \d+ rules found", line) for line in lines]
    named = Counter(name for one in found if one for name in one[2].split(", "))
    # Without and with a gateway.
    assert named == {"every part": len(SERIES), **dict.fromkeys(load_catalog(ROOT).profiles, 2)}
    assert {one[1].split(", ")[0] for one in found if one} == {"no counters", *SERIES}
    assert all(found)


def test_a_rule_that_is_none_fails_where_it_is_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = shutil.copytree(TEMPLATES, tmp_path / "templates")
    file = copied / "monitoring/rules.yml.j2"
    whole = file.read_text("utf-8")
    assert "expr: max(probe_success" in whole
    file.write_text(whole.replace("expr: max(probe_success", "expr: most(probe_success"), "utf-8")
    monkeypatch.setattr("monitoring_check.TEMPLATES", copied)
    with pytest.raises(DrafthouseError) as caught:
        main()
    lines = capsys.readouterr().out.splitlines()
    failed = [line for line in lines if line.endswith(": FAILED")]
    assert failed == [line for line in lines if "gateway" in line.partition(";")[0]]
    assert len(caught.value.problems) == len(failed)
    assert "most" in caught.value.problems[0].found
