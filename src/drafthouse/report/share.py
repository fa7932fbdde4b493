"""A report as one small row for others: what it was measured on and with, both arms, the verdict.

What goes out is chosen, and not what stays: numbers, words of the shipped catalogue (looked up by their id), and text
that has the form of a version, a digest or a card's name. Everything else that a report holds may be a person's own:
the names of hosts, profiles and suites, paths, commands, prompts, answers, errors, warnings.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from ..analysis.verdict_text import CANNOT_SAY, DOES_NOT_PAY, INVALID, PAYS
from ..bench.machine_types import MachineFacts
from ..bench.stats import Estimated
from ..core.format import number, percent, span, times, times_span
from ..profiles.resolved_types import Model
from .archive import Kept
from .report_types import ARMS, Acceptance, Arm, KindRow

SCHEMA: Final = "drafthouse.share/1"
NOT_SHARED = "not shared"
OWN_MODEL = "not in the catalogue"
OWN_PROMPTS = "own prompts"
_WORDS = (PAYS, DOES_NOT_PAY, CANNOT_SAY, INVALID)
_GATE_WORDS = ("passed", "failed", "not measured", "no baseline")
_DAY = re.compile(r"(20\d\d)(\d\d)(\d\d)-\d{6}")
# Versions of engines and drivers, never of four parts as an address; behind a plus sign a commit, or a target.
_VERSION = re.compile(
    r"v?\d{1,5}(?:\.\d{1,6}){0,2}(?:\.?(?:a|b|rc|dev|post)\d{1,5})?(?:\+(?:g?[0-9a-f]{6,12}|cpu|cu\d{2,3}))?"
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# As drivers and /proc/cpuinfo write them.
_CARD = re.compile(r"(?:NVIDIA|AMD|Intel)[A-Za-z0-9 ()@.+/-]{0,60}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


@dataclass(frozen=True)
class Known:
    """The words of the shipped catalogue: models and engines by id, methods, kinds of prompts, names of gates."""

    models: Mapping[str, str]
    engines: Mapping[str, str]
    methods: frozenset[str]
    kinds: frozenset[str]
    gates: frozenset[str]


class Card(TypedDict):
    """GPUs of one sort; a power limit in W."""

    name: str
    count: int
    memory_gib: float | None
    power_limit_w: float | None


class Span(TypedDict):
    """A value with its interval."""

    median: float
    low: float
    high: float


class SharedKind(TypedDict):
    """A kind of prompt: speeds in tokens/s, times in ms, a rate as a fraction."""

    kind: str
    temperature: float | None
    declared: bool
    prompts: int
    speedup: Span | None
    tok_s: dict[Arm, float | None]
    ttft_ms: dict[Arm, float | None]
    acceptance_rate: float | None
    acceptance_length: float | None


class SharedVerdict(TypedDict):
    """The verdict: its word, the speed-up, the baseline against itself, the gates' words, how many warnings."""

    word: str
    speedup: Span | None
    control: Span | None
    threshold: float
    gates: dict[str, str]
    warnings: int


class SharedEngine(TypedDict):
    """The engine: the digest is that of its image."""

    name: str
    version: str
    runtime: Literal["docker", "process"] | None
    image_digest: str | None


class Row(TypedDict):
    """What is shared of a report."""

    schema: Literal["drafthouse.share/1"]
    drafthouse: str
    measured: str | None
    gpus: list[Card]
    driver: str | None
    cpu: str | None
    engine: SharedEngine
    target: str
    draft: str | None
    method: str
    draft_tokens: int | None
    synthetic: bool
    concurrency: int | None
    rounds: int
    requests: dict[Arm, int]
    kinds: list[SharedKind]
    acceptance: dict[str, float | None]
    by_position: list[float]
    verdict: SharedVerdict
    report_sha256: str


def row_of(kept: Kept, known: Known, version: str, *, hub_names: bool = False) -> Row:
    """Return the row of a kept report; ``version`` is ours.

    ``hub_names``: models that the catalogue lacks are named by their repository on the Hub, which may hold a person's
    name. OSError where report.json cannot be read.
    """
    report, resolved = kept.report, kept.resolved
    verdict, accepted = report["verdict"], report["acceptance"]["overall"]
    method = resolved.get("method") or {}
    draft = resolved.get("draft")
    machine = kept.results["speculative"].get("machine")
    facts: MachineFacts = (machine and machine.get("before")) or {}
    gpus, cpu = facts.get("gpus") or [], facts.get("cpu")
    day = _DAY.fullmatch(report.get("date") or "")
    return {
        "schema": SCHEMA,
        "drafthouse": version,
        "measured": "-".join(day.groups()) if day else None,
        "gpus": _cards([(gpu["name"], gpu["memory_total_bytes"], gpu["power_limit_w"]) for gpu in gpus]),
        "driver": _matched(_VERSION, gpus[0].get("driver_version")) if gpus else None,
        "cpu": _matched(_CARD, cpu.get("model") if cpu else None),
        "engine": _engine(kept, known),
        "target": _model(resolved.get("target"), known, hub_names=hub_names),
        "draft": _model(draft, known, hub_names=hub_names) if draft else None,
        "method": _word(method.get("id"), known.methods),
        "draft_tokens": _whole(method.get("num_speculative_tokens")),
        "synthetic": bool(resolved.get("synthetic")),
        "concurrency": _whole(verdict["scope"]["concurrency"]),
        "rounds": int(verdict["scope"]["rounds"]),
        "requests": {arm: int(report["totals"][arm]["requests"]) for arm in ARMS},
        "kinds": [_kind(row, known) for row in report["kinds"]],
        "acceptance": {"rate": _short(accepted["rate"]), "length": _short(accepted["length"])},
        "by_position": [_shortened(rate) for rate in accepted["by_position"]],
        "verdict": {
            "word": _word(verdict["word"], _WORDS),
            "speedup": _span(verdict["speedup"]),
            "control": _span(verdict["control"]),
            "threshold": float(verdict["threshold"]),
            "gates": {
                gate["name"]: _word(gate["word"], _GATE_WORDS)
                for gate in report["gates"]
                if gate["name"] in known.gates
            },
            "warnings": len(report["warnings"]),
        },
        "report_sha256": hashlib.sha256((kept.path / "report.json").read_bytes()).hexdigest(),
    }


def _engine(kept: Kept, known: Known) -> SharedEngine:
    engine = kept.resolved.get("engine") or {}
    runtime = engine.get("runtime")
    return {
        "name": known.engines.get(str(engine.get("id")), NOT_SHARED),
        "version": _matched(_VERSION, engine.get("version")) or NOT_SHARED,
        "runtime": runtime if runtime in ("docker", "process") else None,
        "image_digest": _matched(_DIGEST, kept.resolved.get("image_digest")),
    }


def _model(model: Model | None, known: Known, *, hub_names: bool) -> str:
    """Return a model's name in the shipped catalogue; else, where asked for, its repository."""
    if not model:
        return NOT_SHARED
    if shipped := known.models.get(str(model.get("id"))):
        return shipped
    hub = (model.get("source") or {}).get("hub") if hub_names else None
    return (_matched(_REPOSITORY, hub.get("repo")) if hub else None) or OWN_MODEL


def _cards(gpus: Sequence[tuple[str, float | None, float | None]]) -> list[Card]:
    """Return GPUs of the same name, memory and power limit as one entry."""
    found: dict[tuple[str, float | None, float | None], int] = {}
    for name, memory, watts in gpus:
        key = (_matched(_CARD, name) or NOT_SHARED, memory, watts)
        found[key] = found.get(key, 0) + 1
    return [
        {
            "name": name,
            "count": count,
            "memory_gib": round(float(memory) / 2**30, 1) if memory else None,
            "power_limit_w": _short(watts),
        }
        for (name, memory, watts), count in found.items()
    ]


def _kind(row: KindRow, known: Known) -> SharedKind:
    accepted: Acceptance = row["acceptance"]
    return {
        "kind": row["kind"] if row["kind"] in known.kinds else OWN_PROMPTS,
        "temperature": _short(row["temperature"]),
        "declared": bool(row["declared"]),
        "prompts": int(row["prompts"]),
        "speedup": _span(row["speedup"]),
        "tok_s": {arm: _median(row["tok_s"][arm]) for arm in ARMS},
        "ttft_ms": {arm: _median(row["ttft_ms"][arm]) for arm in ARMS},
        "acceptance_rate": _short(accepted["rate"]),
        "acceptance_length": _short(accepted["length"]),
    }


def _matched(pattern: re.Pattern[str], text: object) -> str | None:
    return text if isinstance(text, str) and pattern.fullmatch(text) else None


def _word(text: object, words: Sequence[str] | frozenset[str]) -> str:
    return text if isinstance(text, str) and text in words else NOT_SHARED


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _median(found: Estimated | None) -> float | None:
    return _short(found["median"]) if found else None


def _span(found: Estimated | None) -> Span | None:
    if not found:
        return None
    return {"median": _shortened(found["median"]), "low": _shortened(found["low"]), "high": _shortened(found["high"])}


def _short(value: float | None) -> float | None:
    return None if value is None else _shortened(value)


def _shortened(value: float) -> float:
    """Return four digits of a value: more of them would say nothing."""
    return float(f"{float(value):.4g}")


# --- as text ----------------------------------------------------------------------------------------------------------


def markdown(row: Row) -> str:
    """Return the row for an issue: a sentence, a table of its kinds, and the row itself, folded."""
    verdict = row["verdict"]
    gpus = [f"{card['count']} x {card['name']}" if card["count"] > 1 else card["name"] for card in row["gpus"]]
    drafts = f"{row['draft']}, {row['method']}" if row["draft"] else row["method"]
    said = f", {times_span(verdict['speedup'])}" if verdict["speedup"] else ""
    gates = list(verdict["gates"].values())
    lines = [
        f"**{verdict['word']}**{said}: {' and '.join(gpus) or row['cpu'] or 'CPU'} · {row['engine']['name']} "
        f"{row['engine']['version']} · {row['target']} · {drafts}, K={row['draft_tokens']}"
        + (" · synthetic model" if row["synthetic"] else ""),
        "",
        "| kind | baseline, tok/s | speculative, tok/s | speed-up | accepted | tokens per step |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {kind['kind']}{_at(kind)}{' (verdict)' if kind['declared'] else ''} | {number(kind['tok_s']['baseline'])} "
        f"| {number(kind['tok_s']['speculative'])} | {times(kind['speedup']['median'] if kind['speedup'] else None)} "
        f"{span(kind['speedup'])} | {percent(kind['acceptance_rate'])} | {number(kind['acceptance_length'])} |"
        for kind in row["kinds"]
    ]
    at_once = row["concurrency"]
    lines += [
        "",
        f"{at_once} at a time, {row['rounds']} rounds; baseline against itself {times_span(verdict['control'])}; "
        f"gates passed: {gates.count('passed')} of {len(gates) - gates.count('not measured')}; "
        f"warnings: {verdict['warnings']}. Measured {row['measured']} with Drafthouse {row['drafthouse']}.",
        "",
        "<details><summary>JSON</summary>",
        "",
        "```json",
        json.dumps(row, ensure_ascii=False),
        "```",
        "",
        "</details>",
    ]
    return "\n".join(lines) + "\n"


def _at(kind: SharedKind) -> str:
    return f" at temperature {kind['temperature']:g}" if kind["temperature"] else ""
