"""Commands that people published, in many forms, and our own variations; their sources stand beside each.

`pastes/expected.yml` says what must come of each, and was written by hand before any was translated.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT
from drafthouse.translate.flags import load_flags
from drafthouse.translate.translator import Translation, translate

HOUSE, FLAGS = load_catalog(ROOT), load_flags(ROOT)
FOLDER = Path(__file__).parent / "pastes"
FAMILIES: dict[str, Any] = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}
PASTES = {name: row for family in FAMILIES.values() for name, row in family["pastes"].items()}
EXPECTED: dict[str, Any] = yaml.safe_load((FOLDER / "expected.yml").read_text("utf-8"))


@cache
def outcome(name: str) -> tuple[list[Translation], set[str]]:
    """The translations of a paste, and the codes with which it is refused."""
    try:
        return translate(PASTES[name]["text"], HOUSE, FLAGS, lambda _: None)[0], set()
    except DrafthouseError as error:
        return [], {problem.code for problem in error.problems}


def last_part(name: Any) -> str:
    """The file or repository of a model, without its folder or owner; ``name`` may be an id of the catalogue."""
    entry: Any = HOUSE.models.get(name, {})
    full = entry.get("file") or entry.get("source", {}).get("hub", {}).get("repo") or str(name)
    return full.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1].lower()


def read(translation: Translation) -> list[Any]:
    """Engine and target of a translation, and of one that speculates also method, K and draft."""
    words = [word for flag in translation.command for word in flag]
    flag = next((flag for flag in ("--model", "--hf-repo", "--model-path") if flag in words), "")
    target = words[words.index(flag) + 1] if flag else translation.command[0][-1]
    if translation.baseline:
        return [translation.engine, target]
    speculation: Any = translation.profile["speculation"]
    return [translation.engine, target, *map(speculation.get, ("method", "num_speculative_tokens", "draft"))]


def is_as_wanted(translation: Translation, wanted: list[Any]) -> bool:
    found = read(translation)
    if (len(found) > 2) != (len(wanted) > 2):
        return False
    wanted = [*wanted, None, None, None][: len(found)]
    parts = [
        (a, b) if place in (2, 3) else (last_part(a), last_part(b))
        for place, (a, b) in enumerate(zip(found, wanted, strict=True))
    ]
    return all(b in ("*", a) for a, b in parts)


def is_right(name: str) -> bool:
    found, codes = outcome(name)
    expected = EXPECTED[name]
    if codes or not found:
        return bool(codes & set(expected.get("refused", ())))
    if all(translation.asked for translation in found):
        return "asked" in expected
    wanted = expected.get("want", ())
    if len(found) != len(wanted) or not all(map(is_as_wanted, found, wanted)):
        return False
    command = "\n".join(" ".join(flag) for translation in found for flag in translation.command)
    return all(flag in command for flag in expected.get("has", ()))


def test_every_paste_has_its_source_and_licence_and_an_expectation() -> None:
    assert set(PASTES) == set(EXPECTED)
    assert all(family["licence"] and row["source"] for family in FAMILIES.values() for row in family["pastes"].values())


def test_nearly_all_are_right() -> None:
    wrong = [name for name in PASTES if not is_right(name)]
    assert len(wrong) <= 0.03 * len(PASTES), wrong


def test_no_speculation_stays_in_a_baseline() -> None:
    for name, expected in EXPECTED.items():
        baselines = [translation for translation in outcome(name)[0] if translation.baseline and not translation.asked]
        assert len(baselines) <= len([wanted for wanted in expected.get("want", ()) if len(wanted) == 2]), name
