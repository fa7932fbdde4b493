"""The verdict's table: fits its terminal, says what matters, and lets nothing through that moves a cursor."""

from __future__ import annotations

import pytest

from drafthouse.core.format import TIMES
from drafthouse.report.data.build import build_report
from drafthouse.report.terminal import verdict_table
from tests.support.builders import make_pair, make_resolved


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    base, spec = make_pair({"copy-edit": 12.5, "a kind with a name that is much too long for its column": 1.4})
    resolved = make_resolved(synthetic="a long label " * 20)
    lines = verdict_table(build_report(base, spec, resolved), width=width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert any("…" in line for line in lines)


def test_the_table_holds_the_verdict_and_the_kinds() -> None:
    text = verdict_table(build_report(*make_pair(), make_resolved()))
    flat = " ".join(text.split())
    assert "pays: " in flat
    assert "copy-edit *" in text
    assert "Equal outputs at temperature 0: passed: 24 of 24 equal" in text
    assert "baseline against itself: 8 of 8" not in text
    assert "drafted 4,800 tokens, accepted 90.0 %" in text


def test_rows_line_up() -> None:
    lines = verdict_table(build_report(*make_pair(), make_resolved())).splitlines()
    head = next(line for line in lines if line.startswith("kind of prompt"))
    rows = [line for line in lines if line.startswith(("copy-edit", "chat", "creative"))]
    ends = {line.index("%", line.index(TIMES)) for line in rows}
    assert ends == {head.index("accepted") + len("accepted") - 1}


def test_failures_stand_first_and_the_first_reason_is_not_repeated() -> None:
    base, spec = make_pair()
    base["requests"][0].update(status="failed", error="HTTP 500", tpot_ms=None)
    text = verdict_table(build_report(base, spec, make_resolved()))
    assert text.index("baseline: 1 of 48 requests failed\n") < text.index("invalid: ")
    assert text.count("(first copy-edit-1") == 1


def test_colour_is_off_unless_asked_for() -> None:
    report = build_report(*make_pair(), make_resolved())
    plain, coloured = verdict_table(report), verdict_table(report, colour=True)
    assert "\x1b" not in plain
    assert "\x1b[1;32m" in coloured


def test_control_characters_from_a_server_are_not_sent_to_the_terminal() -> None:
    base, spec = make_pair()
    base["requests"][0].update(status="failed", error="\x1b[2J\x07 gone \u202e", tpot_ms=None)
    text = verdict_table(build_report(base, spec, make_resolved()))
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "?[2J" in text


def test_synthetic_is_in_the_first_words() -> None:
    text = verdict_table(build_report(*make_pair(), make_resolved(synthetic="padded")))
    assert "\nsynthetic, pays:" in text


def test_too_few_prompts_are_marked() -> None:
    text = verdict_table(build_report(*make_pair(prompts=4), make_resolved()))
    assert "? too few prompts for a verdict" in text
