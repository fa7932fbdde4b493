"""Reduce a report to a small public row: hardware, engine, models, speeds, acceptance and verdict.

A report may contain private text, so a row takes only what is safe: numbers, names from the shipped catalogue (found by
id), and text in the form of a version or of a GPU's or CPU's name.
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

#: By name of a field. A gain is a list of mean, low and high; a rate is a fraction; None, "" and [] mean unknown.
Row: TypeAlias = dict[str, Json]
# Words in place of text that may be private.
NOT_SHOWN = "not shown"
OWN_MODEL = "not in the catalogue"
OWN_PROMPTS = "own prompts"
#: The suites of this release; a user may have added others beside them.
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
#: The date of a report: its day is kept, its time is not.
DAY = re.compile(r"(20\d\d)(\d\d)(\d\d)-\d{6}")
#: A version of an engine or a driver; a commit or target after a plus sign. Never four numbers: may be an address.
VERSION = re.compile(r"v?\d{1,5}(\.\d{1,6}){0,2}(\.?(a|b|rc|dev|post)\d{1,5})?(\+(g?[0-9a-f]{6,12}|cpu|cu\d{2,3}))?")
#: The name of a GPU in its driver, or of a CPU in /proc/cpuinfo.
CARD = re.compile(r"(NVIDIA|AMD|Intel)[A-Za-z0-9 ()@.+/-]{0,60}")

# Shapes of a row's values.
_PLAIN = Form("[A-Za-z0-9 ()@.,:+/_\u2192\u00d7-]{0,120}", "a name, a version, or numbers with their unit")
_TEXT = Value(required=True, form=_PLAIN)
_TEXTS = List(Value(form=_PLAIN), required=True)
_COUNT = Value(float, required=True, null=True, low=0)
_GAINS = List(Value(float, low=0.01, high=100), required=True)
#: The fields of a row, no others allowed; a speed-up outside these bounds is not plausible.
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
    """The row of a kept report; ``version`` is Drafthouse's. Raises DrafthouseError if a value has another type."""
    try:
        return _row_of(kept, kept.report, kept.resolved, version)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise one_problem(
            "file-malformed",
            f"a value of another type ({type(error).__name__})",
            "a report that drafthouse report wrote",
            "make it again: drafthouse report --again FOLDER",
            str(kept.path / "report.json"),
        ) from error


def _row_of(kept: Kept, report: Any, resolved: Any, version: str) -> Row:
    """The row of a kept report, whose ``report`` and ``resolved`` profile may have values of any type."""
    engines = {path.stem: _shipped(f"{ENGINE_FOLDER}/{path.name}") for path in (ROOT / ENGINE_FOLDER).glob("*.yml")}
    models = _shipped(MODELS_FILE)
    methods = {method for engine in engines.values() for method in engine.get("methods", {})}
    kinds = {kind for suite in SUITES for kind in _shipped(f"benchmarks/{suite}.yml")["kinds"]}
    engine = resolved.get("engine") or {}
    method = resolved.get("method") or {}
    verdict = report["verdict"]
    acceptance = report["acceptance"]["overall"]
    date = DAY.fullmatch(report.get("date") or "")
    draft = _catalogue_name(resolved["draft"], models, OWN_MODEL) if resolved.get("draft") else ""
    report_sha256 = hashlib.sha256((kept.path / "report.json").read_bytes()).hexdigest()
    return {
        "drafthouse": version,
        "measured": "-".join(date.groups()) if date else "",
        **_hardware(kept.results["speculative"].get("machine") or {}),
        "engine": _catalogue_name(engine, engines, NOT_SHOWN),
        "engine_version": _text_if_matching(VERSION, engine.get("version")) or NOT_SHOWN,
        "target": _catalogue_name(resolved.get("target"), models, OWN_MODEL),
        "draft": draft,
        "method": _text_if_listed(method.get("id"), methods, NOT_SHOWN),
        "draft_tokens": _rounded(method.get("num_speculative_tokens")),
        "synthetic": bool(resolved.get("synthetic")),
        "concurrency": _rounded(verdict["scope"]["concurrency"]),
        "rounds": _rounded(verdict["scope"]["rounds"]),
        "verdict": _text_if_listed(verdict["word"], (PAYS, DOES_NOT_PAY, CANNOT_SAY, INVALID), NOT_SHOWN),
        "speedup": _gain_of(verdict["speedup"]),
        "control": _gain_of(verdict["control"]),
        "kinds": [_kind(kind_row, kinds) for kind_row in report["kinds"]],
        "acceptance_rate": _rounded(acceptance["rate"]),
        "acceptance_length": _rounded(acceptance["length"]),
        "warnings": len(report["warnings"]),
        "report_sha256": report_sha256,
    }


def _hardware(machine: Any) -> Row:
    """The fields of a row about the machine, as it was before the arm was measured."""
    facts = machine.get("before") or {}
    gpus = facts.get("gpus") or []
    cpu = facts.get("cpu") or {}
    return {
        "gpus": [_text_if_matching(CARD, gpu["name"]) or NOT_SHOWN for gpu in gpus],
        "driver": _text_if_matching(VERSION, gpus[0].get("driver_version")) if gpus else "",
        "cpu": _text_if_matching(CARD, cpu.get("model")),
    }


@functools.cache
def _shipped(file: str) -> Any:
    """The content of a YAML file of this release, by its path in it."""
    return read_yaml(ROOT / file, "a file of this release", "restore the file")


def _kind(kind_row: Any, kinds: Collection[str]) -> str:
    """A kind of prompt as text: its name, median tok/s of both arms, and speed-up; marked if the verdict covers it."""
    name = _text_if_listed(kind_row["kind"], kinds, OWN_PROMPTS)
    if kind_row["declared"]:
        name += " (verdict)"
    speeds = [number(kind_row["tok_s"][arm]["median"]) for arm in ARMS if kind_row["tok_s"][arm]]
    sentence = f"{name}: {' → '.join(speeds) or 'no'} tok/s"
    if kind_row["speedup"]:
        mean, _low, _high = _gain_of(kind_row["speedup"])
        sentence += f", {times(mean)}"
    return sentence


def _catalogue_name(entry: Any, catalogue: Any, fallback: str) -> str:
    """The name of an entry in the shipped catalogue, found by its id; ``fallback`` if there is no such entry."""
    found_entry = catalogue.get(str(entry.get("id"))) if entry else None
    if not found_entry:
        return fallback
    return str(found_entry["name"])


def _text_if_listed(text: object, words: Collection[str], fallback: str) -> str:
    if isinstance(text, str) and text in words:
        return text
    return fallback


def _text_if_matching(pattern: re.Pattern[str], text: object) -> str:
    if isinstance(text, str) and pattern.fullmatch(text):
        return text
    return ""


def _gain_of(estimate: Any) -> list[float]:
    """A gain as mean, low and high, to four significant digits; [] if it is unknown."""
    if not estimate:
        return []
    return [float(f"{estimate[key]:.4g}") for key in ("gain", "low", "high")]


def _rounded(value: Any) -> float | None:
    """A number to four significant digits; None if it is unknown."""
    if value is None:
        return None
    return float(f"{value:.4g}")


def markdown(row: Row) -> str:
    """The row as a Markdown table of names and values, without the unknown values."""
    lines = ["| `drafthouse report --row` | |", "|---|---|"]
    for name, value in row.items():
        if value in ([], [""], [None], "", None):
            continue
        shown = "<br>".join(map(str, value)) if isinstance(value, list) else str(value)
        lines.append(f"| {name} | {shown} |")
    return "\n".join(lines) + "\n"
