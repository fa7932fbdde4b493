"""What engines, models and prompts say becomes no part of a report's page, and steers no terminal."""

from __future__ import annotations

import functools
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from drafthouse.core.plain_text import hidden_character
from drafthouse.report.data.build import build_report
from drafthouse.report.plots import by_category as plots
from drafthouse.report.terminal import verdict_table
from drafthouse.report.writer import render_html, render_markdown, to_json
from tests.support.hostile import KEY, Place, places, put
from tests.support.injection import TEMPLATES
from tests.support.report_builders import full_report_input

_ORDER = ("baseline", "speculative", "resolved", "host", "stock", "ladder")
HOSTILE = (
    "\nEVIL <script>evil()</script></script><img src=x onerror=evil()> | ` ``` [a](javascript:evil) --> ]]> $\\x$"
    " \x1b[31m\u202e\u2028\r\0\ud800 {{ 7*7 }}{% raw %} \"' onload=evil() &lt;script&gt;"
)


class Page(HTMLParser):
    """What a browser would make of a page: its elements, their attributes, and what is inside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[tuple[str, str]] = set()
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements |= {(tag, name) for name, _ in attrs} | {(tag, "")}
        self._inside = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts.append(data)


def given() -> dict[str, Any]:
    return dict(zip(_ORDER, full_report_input(), strict=True))


def fields() -> dict[tuple[Any, ...], list[Place]]:
    """The places of every string that is a value, by part and field; keys are the form of a result."""
    found: dict[tuple[Any, ...], list[Place]] = {}
    for part, data in given().items():
        for place in places(data):
            if KEY not in place:
                named = [step for step in place if isinstance(step, str)]
                found.setdefault((part, *named[-1:]), []).append((part, *place))
    return found


FIELDS = fields()


@functools.cache
def plain() -> Page:
    """The page that nobody attacks; drawn where a test asks for it, not where modules are collected."""
    return Page(render_html(build_report(*given().values()), TEMPLATES))


@pytest.fixture(scope="module", autouse=True)
def drawn_once() -> None:
    plain()  # before a test leaves the drawings out


def check_report(report: Any) -> None:
    page = Page(render_html(report, TEMPLATES))
    assert page.elements <= plain().elements, page.elements - plain().elements
    assert page.scripts == plain().scripts
    outside = re.sub(r"^(`{3,}).*?^\1$", "", render_markdown(report, TEMPLATES), flags=re.MULTILINE | re.DOTALL)
    assert "<script" not in outside and "<img" not in outside
    assert not re.search(r"^EVIL", outside, re.MULTILINE)
    for text in (render_markdown(report, TEMPLATES), verdict_table(report)):
        found = {hidden_character(line) for line in text.split("\n")}
        assert found == {None}, found
    assert json.loads(to_json(report).encode()) == json.loads(json.dumps(report))


def attack(chosen: list[Place]) -> None:
    data: Any = given()
    for place in chosen:
        data = put(data, place, lambda text: text + HOSTILE)
    check_report(build_report(*data.values()))


@pytest.mark.parametrize("part", range(5))
def test_what_a_report_is_made_of(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each field the first and the last place, a fifth of the fields at a time."""
    monkeypatch.setattr(plots, "draw", lambda report: {})
    chosen = list(FIELDS.values())[part::5]
    attack([place for found in chosen for place in dict.fromkeys((found[0], found[-1]))])


def test_the_names_of_kinds_in_the_drawings() -> None:
    places = [place for key, found in FIELDS.items() if key[-1] in ("kind", "group") for place in found]
    attack(places)


@pytest.mark.soak
def test_every_field_of_a_report_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "draw", lambda report: {})
    for found in FIELDS.values():
        for place in dict.fromkeys((found[0], found[-1])):
            attack([place])
