"""The drawings: text that is text, the page's colours, a description in words, the same bytes twice."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from drafthouse.report.data.build import build_report
from drafthouse.report.plots.by_category import Drawing, draw
from drafthouse.report.plots.style import VARIABLES
from tests.support.builders import NOTHING, make_pair, make_resolved

pytestmark = pytest.mark.processes

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report() -> Any:
    return build_report(*make_pair(), make_resolved())


@pytest.fixture(scope="module")
def plots(report: Any) -> dict[str, Drawing]:
    return draw(report)


def words(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_every_plot_is_there_and_parses(plots: dict[str, dict[str, str]]) -> None:
    assert list(plots) == ["speed", "speedup", "acceptance", "tpot", "ttft"]
    for plot in plots.values():
        root = ElementTree.fromstring(plot["svg"])
        assert root.get("role") == "img"
        assert root.find(f"{SVG}title").text == plot["title"]  # type: ignore[union-attr]
        assert root.find(f"{SVG}desc").text == plot["text"]  # type: ignore[union-attr]
        assert plot["text"]


def test_text_is_text_and_colours_are_the_pages(plots: dict[str, dict[str, str]]) -> None:
    assert {"copy-edit *", "chat", "creative", "Baseline", "Speculative"} <= set(words(plots["speed"]["svg"]))
    for plot in plots.values():
        for colour in VARIABLES:
            assert colour not in plot["svg"]
        assert re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", plot["svg"]) == []
        assert "var(--speculative)" in plot["svg"]
        assert "DejaVu" not in plot["svg"]


def test_the_speed_up_shows_the_threshold_and_the_values(plots: dict[str, dict[str, str]], report: Any) -> None:
    shown = words(plots["speedup"]["svg"])
    assert "pays above 1.03" in shown
    for row in report["kinds"]:
        assert any(text.startswith(f"{row['speedup']['gain']:.2f}") for text in shown)
        assert f"{row['group']}: {row['speedup']['gain']:.2f}" in plots["speedup"]["text"]


def test_acceptance_has_a_bar_for_each_position(plots: dict[str, dict[str, str]]) -> None:
    assert plots["acceptance"]["text"].count("%") == 16


def test_a_distribution_says_its_median(plots: dict[str, dict[str, str]]) -> None:
    assert re.search(r"Baseline: median 1[0-9]\.\d ms", plots["tpot"]["text"])


def test_the_same_data_gives_the_same_bytes(plots: dict[str, dict[str, str]], report: Any) -> None:
    assert draw(report) == plots


def test_what_was_not_measured_is_not_drawn() -> None:
    base, spec = make_pair()
    spec["spec_decode_per_position_acceptance_rates"] = []
    for request in spec["requests"]:
        request["ttft_ms"] = None
    assert list(draw(build_report(base, spec, make_resolved()))) == ["speed", "speedup", "tpot"]
    assert draw(build_report(NOTHING, NOTHING, NOTHING)) == {}


def test_a_kind_measured_in_one_arm_alone_does_not_stop_the_others() -> None:
    base, spec = make_pair()
    spec["requests"] = [request for request in spec["requests"] if request["kind"] != "chat"]
    shown = words(draw(build_report(base, spec, make_resolved()))["speed"]["svg"])
    assert "copy-edit *" in shown
    assert "chat" not in shown


def test_importing_does_not_bring_matplotlib() -> None:
    root = Path(__file__).resolve().parents[4]
    code = (
        "import sys\n"
        "from drafthouse.report import writer\nfrom drafthouse.report.plots import by_category\n"
        "sys.exit('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(root / "src")}, check=False)
    assert done.returncode == 0
