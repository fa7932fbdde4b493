"""A report as one small row for an issue: what it was measured on and with, both speeds, acceptance, the verdict.

What goes out is chosen, and not what stays: numbers, words of the shipped catalogue (looked up by their id), and texts
in the form of a version or of a card's name. All else in a report may be a person's own.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Collection
from typing import Any, TypeAlias

from ..analysis.words import CANNOT_SAY, DOES_NOT_PAY, INVALID, PAYS
from ..core.documents import Json
from ..core.errors import one_problem
from ..core.format import number, times
from ..core.places import ROOT
from ..core.schema import Form, List, Map, Value
from ..core.yaml_documents import read_yaml
from ..profiles.catalog import ENGINE_FOLDER, MODELS_FILE
from .archive import Kept
from .report_types import ARMS

#: Numbers as they are, gains as the mean, low and high, rates as fractions; None or "" is not known.
Row: TypeAlias = dict[str, Json]
NOT_SHOWN, OWN_MODEL, OWN_PROMPTS = "not shown", "not in the catalogue", "own prompts"
#: The suites of this release; a person's own may lie beside them.
SUITES = (
    "agents",
    "articles",
    "conversation",
    "creative",
    "gates",
    "load",
    "long",
    "math",
    "mixed",
    "published",
    "tune",
)
DAY = re.compile(r"(20\d\d)(\d\d)(\d\d)-\d{6}")
# Of engines and drivers, never of four parts as an address; behind a plus sign a commit, or a target.
VERSION = re.compile(r"v?\d{1,5}(\.\d{1,6}){0,2}(\.?(a|b|rc|dev|post)\d{1,5})?(\+(g?[0-9a-f]{6,12}|cpu|cu\d{2,3}))?")
CARD = re.compile(r"(NVIDIA|AMD|Intel)[A-Za-z0-9 ()@.+/-]{0,60}")  # as drivers and /proc/cpuinfo write them

_PLAIN = Form("[A-Za-z0-9 ()@.,:+/_\u2192\u00d7-]{0,120}", "a name, a version, or numbers with their unit")
_TEXT, _TEXTS = Value(required=True, form=_PLAIN), List(Value(form=_PLAIN), required=True)
_COUNT = Value(float, required=True, null=True, low=0)
_GAINS = List(Value(float, low=0.01, high=100), required=True)
#: What `row_of` writes, and no other key; a speed-up beyond these bounds is a mistake or made up.
ROW_SHAPE = Map(
    {
        **dict.fromkeys(("drafthouse", "measured", "driver", "cpu", "engine", "engine_version"), _TEXT),
        **dict.fromkeys(("target", "draft", "method", "verdict", "report_sha256"), _TEXT),
        **dict.fromkeys(("draft_tokens", "concurrency", "rounds", "warnings"), _COUNT),
        **dict.fromkeys(("speedup", "control"), _GAINS),
        "gpus": _TEXTS,
        "kinds": _TEXTS,
        "synthetic": Value(bool, required=True),
        "acceptance_rate": Value(float, required=True, null=True, low=0, high=1),
        "acceptance_length": Value(float, null=True, low=1, high=100),
    },
    required=True,
)


def row_of(kept: Kept, version: str) -> Row:
    """The row of a kept report; ``version`` is ours. DrafthouseError where a value of the report has another type."""
    try:
        return _row_of(kept, kept.report, kept.resolved, version)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        found, needed = f"a value of another type ({type(error).__name__})", "a report that drafthouse report wrote"
        do, where = "make it again: drafthouse report --again FOLDER", str(kept.path / "report.json")
        raise one_problem("file-malformed", found, needed, do, where) from error


def _row_of(kept: Kept, report: Any, resolved: Any, version: str) -> Row:
    engines = {path.stem: _shipped(f"{ENGINE_FOLDER}/{path.name}") for path in (ROOT / ENGINE_FOLDER).glob("*.yml")}
    models = _shipped(MODELS_FILE)
    methods = {method for engine in engines.values() for method in engine.get("methods", {})}
    kinds = {kind for suite in SUITES for kind in _shipped(f"benchmarks/{suite}.yml")["kinds"]}
    engine, method = resolved.get("engine") or {}, resolved.get("method") or {}
    verdict, accepted = report["verdict"], report["acceptance"]["overall"]
    day = DAY.fullmatch(report.get("date") or "")
    draft = _name(resolved["draft"], models, OWN_MODEL) if resolved.get("draft") else ""
    report_sha256 = hashlib.sha256((kept.path / "report.json").read_bytes()).hexdigest()
    return {
        "drafthouse": version,
        "measured": "-".join(day.groups()) if day else "",
        **_hardware(kept.results["speculative"].get("machine") or {}),
        "engine": _name(engine, engines, NOT_SHOWN),
        "engine_version": _matched(VERSION, engine.get("version")) or NOT_SHOWN,
        "target": _name(resolved.get("target"), models, OWN_MODEL),
        "draft": draft,
        "method": _word(method.get("id"), methods, NOT_SHOWN),
        "draft_tokens": _short(method.get("num_speculative_tokens")),
        "synthetic": bool(resolved.get("synthetic")),
        "concurrency": _short(verdict["scope"]["concurrency"]),
        "rounds": _short(verdict["scope"]["rounds"]),
        "verdict": _word(verdict["word"], (PAYS, DOES_NOT_PAY, CANNOT_SAY, INVALID), NOT_SHOWN),
        "speedup": _interval(verdict["speedup"]),
        "control": _interval(verdict["control"]),
        "kinds": [_kind(one, kinds) for one in report["kinds"]],
        "acceptance_rate": _short(accepted["rate"]),
        "acceptance_length": _short(accepted["length"]),
        "warnings": len(report["warnings"]),
        "report_sha256": report_sha256,
    }


def _hardware(machine: Any) -> Row:
    facts = machine.get("before") or {}
    gpus, cpu = facts.get("gpus") or [], facts.get("cpu") or {}
    return {
        "gpus": [_matched(CARD, gpu["name"]) or NOT_SHOWN for gpu in gpus],
        "driver": _matched(VERSION, gpus[0].get("driver_version")) if gpus else "",
        "cpu": _matched(CARD, cpu.get("model")),
    }


@functools.cache
def _shipped(file: str) -> Any:
    return read_yaml(ROOT / file, "a file of this release", "restore the file")


def _kind(row: Any, kinds: Collection[str]) -> str:
    """A kind of prompt in words: its median speeds, and whether the verdict is about it."""
    name = _word(row["kind"], kinds, OWN_PROMPTS)
    if row["declared"]:
        name += " (verdict)"
    speeds = [number(row["tok_s"][arm]["median"]) for arm in ARMS if row["tok_s"][arm]]
    sentence = f"{name}: {' → '.join(speeds) or 'no'} tok/s"
    if row["speedup"]:
        sentence += f", {times(_interval(row['speedup'])[0])}"
    return sentence


def _name(entry: Any, catalogue: Any, other: str) -> str:
    known = catalogue.get(str(entry.get("id"))) if entry else None
    if not known:
        return other
    return str(known["name"])


def _word(text: object, words: Collection[str], other: str) -> str:
    if isinstance(text, str) and text in words:
        return text
    return other


def _matched(pattern: re.Pattern[str], text: object) -> str:
    if isinstance(text, str) and pattern.fullmatch(text):
        return text
    return ""


def _interval(found: Any) -> list[float]:
    if not found:
        return []
    return [float(f"{found[end]:.4g}") for end in ("gain", "low", "high")]


def _short(value: Any) -> float | None:
    if value is None:
        return None
    return float(f"{value:.4g}")


def markdown(row: Row) -> str:
    """The row as a table of names and values; what is not known is left out."""
    lines = ["| `drafthouse report --row` | |", "|---|---|"]
    for name, value in row.items():
        if value in ([], [""], [None], "", None):
            continue
        shown = "<br>".join(map(str, value)) if isinstance(value, list) else str(value)
        lines.append(f"| {name} | {shown} |")
    return "\n".join(lines) + "\n"
