"""The report's tables of what was run and where: set-up, commands, versions, and the machine's state."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import metadata
from typing import Literal

from ...analysis.noise import busy_processes
from ...bench.gpu_text import over_groups
from ...bench.machine_types import StepMachine
from ...bench.result_types import ArmResult
from ...bench.stats import median
from ...core.format import at_a_time, count, listing
from ...core.pins import commit_words, image_of
from ..report_types import (
    ARMS,
    Arm,
    CommandFile,
    Commands,
    KeptProfile,
    Leaf,
    MachineRow,
    Moments,
    SetupRow,
    SideBySide,
)

# Figures of the time between two readings of the machine's state.
BUSY: tuple[Literal["cpu_busy_percent", "cpu_steal_percent", "other_cpu_percent", "cpu_package_power_w"], ...] = (
    "cpu_busy_percent",
    "cpu_steal_percent",
    "other_cpu_percent",
    "cpu_package_power_w",
)
# Description of the draft if it is not a model of its own, by whether it is a head inside the target.
_NO_DRAFT = {False: "none: tokens are looked up in the text", True: "the head inside the target"}
# The libraries on whose versions a report depends.
MADE_WITH = ("numpy", "matplotlib", "jinja2")


def setup(resolved: KeptProfile, rounds: int = 0) -> list[SetupRow]:
    """The rows of the set-up table, without empty values; ``rounds`` is the number measured (0: as planned)."""
    site = resolved.get("site") or {}
    engine = resolved.get("engine") or {}
    method = resolved.get("method") or {}
    experiment = resolved.get("experiment") or {}
    draft_tokens = method.get("num_speculative_tokens")
    host_words = (_host_of(site.get("manage_host"), site.get("box_kind")), site.get("runtime"))
    engine_words = (_name_of(engine), engine.get("version"))
    suites = [str(suite) for suite in experiment.get("suites") or []]
    method_words = _name_of(method)
    if draft_tokens:
        method_words += f", up to {draft_tokens} tokens per draft"
    rows = {
        "Hardware": _hardware(resolved),
        "Engine": " ".join(str(part) for part in engine_words if part),
        "Engine's program": str(engine.get("program") or ""),
        "Target": _name_of(resolved.get("target")),
        "Draft": _name_of(resolved.get("draft")) or _NO_DRAFT[method.get("kind") == "builtin"],
        "Image": _image(resolved),
        "Weights": "; ".join(_weights(resolved)),
        "Runs code of": "; ".join(_remote_code(resolved)),
        "Method": method_words,
        "Box": ", ".join(part for part in host_words if part),
        "Suites": listing(suites),
        "Rounds": f"{rounds or experiment.get('rounds', '?')}, {experiment.get('schedule', 'order unknown')}",
        "Load": at_a_time(experiment.get("concurrency", "?")),
    }
    return [{"what": what, "which": which} for what, which in rows.items() if which]


def _host_of(managed: bool | None, kind: object) -> str:
    """Whether Drafthouse manages the host; in older results the kind of host instead."""
    if managed is None:
        return str(kind or "")
    return "host managed" if managed else "host not managed"


def _image(resolved: KeptProfile) -> str:
    """The engine's image (its base, if it is derived) with the pinned digest; "" outside Docker or if unknown."""
    if not resolved.get("site") or not resolved.get("engine"):
        return ""
    name = image_of(resolved)
    digest = resolved.get("image_digest")
    if name and digest:
        return f"{name}, {digest}"
    return name or ""


def _weights(resolved: KeptProfile) -> list[str]:
    """Repository and commit of all weights from the Hugging Face Hub."""
    commits = []
    for item in resolved.get("weights") or []:
        if item.get("source") == "hub":
            commits.append(f"{item['details']['repo']} at {commit_words(item)}")
    return commits


def _remote_code(resolved: KeptProfile) -> list[str]:
    """Repositories, with commits, whose Python code the engine ran (trust_remote_code)."""
    sources = []
    for code in resolved.get("remote_code") or []:
        commit = f" at {code['commit']}" if code["commit"] else ""
        sources.append(f"{code['repo']}{commit}")
    return sources


def _hardware(resolved: KeptProfile) -> str:
    """The hardware; for a model that spans several hosts also the number of hosts and devices per host."""
    entry = resolved.get("hardware") or {}
    span = (resolved.get("site") or {}).get("span")
    if not span:
        return _name_of(entry)
    kind = "GPU" if entry.get("kind") == "gpu" else "device"
    return f"{len(span['names'])} hosts x {count(int(entry.get('devices') or 1), kind)}: {_name_of(entry)}"


def _name_of(entry: object) -> str:
    """The name of a catalogue entry, or its id; "" if there is no entry."""
    if not isinstance(entry, Mapping):
        return ""
    return str(entry.get("name") or entry.get("id") or "")


def commands(resolved: KeptProfile) -> Commands:
    """The rendered files of both arms, and their difference in the format of ``diff -u``."""
    baseline, speculative = _files(resolved, "baseline"), _files(resolved, "speculative")
    baseline_lines = {file["path"]: file["content"].splitlines() for file in baseline}
    speculative_lines = {file["path"]: file["content"].splitlines() for file in speculative}
    diff: list[str] = []
    for path in sorted(baseline_lines.keys() | speculative_lines.keys()):
        old = baseline_lines.get(path, [])
        new = speculative_lines.get(path, [])
        diff += difflib.unified_diff(old, new, f"baseline/{path}", f"speculative/{path}", lineterm="")
    return {"baseline": baseline, "speculative": speculative, "diff": "\n".join(diff)}


def _files(resolved: KeptProfile, arm: str) -> list[CommandFile]:
    """The rendered files of an arm; [] if an old result has none."""
    rendered = (resolved.get("arms") or {}).get(arm)
    if not rendered:
        return []
    return [{"path": str(f.get("path")), "content": f.get("content") or ""} for f in rendered.get("files") or []]


def flatten(data: object, path: str = "") -> dict[str, Leaf]:
    """Nested data as ``{"cpu.model": …, "gpus[0].name": …}``: a value for each row of a table."""
    leaves: dict[str, Leaf] = {}
    if isinstance(data, Mapping):
        for key, value in data.items():
            leaves |= flatten(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list) and any(isinstance(item, Mapping | list) for item in data):
        for position, value in enumerate(data):
            leaves |= flatten(value, f"{path}[{position}]")
    elif isinstance(data, list):
        if data:
            leaves[path] = ", ".join(map(str, data))
    else:
        leaves[path] = data if isinstance(data, str | int | float | None) else str(data)
    return leaves


def _engines(results: Mapping[str, ArmResult]) -> list[SideBySide]:
    """The facts that the engine of each arm reports about itself, side by side."""
    baseline = flatten(results["baseline"].get("engine") or {})
    speculative = flatten(results["speculative"].get("engine") or {})
    names = list(baseline | speculative)
    return [{"what": name, "baseline": baseline.get(name), "speculative": speculative.get(name)} for name in names]


def versions(results: Mapping[str, ArmResult]) -> list[SideBySide]:
    """The facts of both arms' engines, and the versions of the libraries that made this report."""
    rows: list[SideBySide] = [{**row, "what": f"engine.{row['what']}"} for row in _engines(results)]
    for name in MADE_WITH:
        try:
            version: str | None = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = None
        rows.append({"what": f"report.{name}", "baseline": version, "speculative": version})
    return rows


# Facts that differ at every server start and so tell nothing about the arms.
NEVER_EQUAL = ("ready_s", "ready_at_most")


def engine_changes(results: Mapping[str, ArmResult]) -> list[SideBySide]:
    """The facts of the engine that differ between the arms, such as the model runner that it chose."""
    changes = []
    for row in _engines(results):
        if row["baseline"] != row["speculative"] and row["what"] not in NEVER_EQUAL:
            changes.append(row)
    return changes


def machine_table(results: Mapping[str, ArmResult]) -> list[MachineRow]:
    """The machine's facts, a row each with both arms: before the arm, after it, and while it ran."""
    rows: dict[str, MachineRow] = {}

    def moments_of(path: str, arm: Arm) -> Moments:
        return rows.setdefault(path, {"what": path, "baseline": {}, "speculative": {}})[arm]

    for arm in ARMS:
        machine = results[arm].get("machine")
        if not machine:
            continue
        for path, value in flatten(machine.get("before") or {}).items():
            moments_of(path, arm)["before"] = value
        for path, value in flatten(machine.get("after") or {}).items():
            moments_of(path, arm)["after"] = value
        for path, value in {**_while_measuring(machine), **_gpus(results[arm])}.items():
            moments_of(path, arm)["value"] = value
    return list(rows.values())


def _gpus(result: ArmResult) -> dict[str, Leaf]:
    """Readings of the GPUs while an arm answered, over all its groups of requests."""
    readings: dict[str, Leaf] = {}
    for gpu in over_groups(result.get("gpus") or []):
        for path, value in flatten(gpu, f"while measuring: GPU {gpu['index']}").items():
            if value is not None:
                readings[path] = value
    return readings


def _while_measuring(machine: StepMachine) -> dict[str, Leaf]:
    """CPU and power readings while an arm's groups ran (median and highest), and other busy processes."""
    readings: dict[str, Leaf] = {}
    for name in BUSY:
        values = []
        for group in machine.get("groups") or []:
            value = (group.get("between") or {}).get(name)
            if isinstance(value, int | float):
                values.append(value)
        if values:
            readings[f"while measuring: {name}, median"] = median(values)
            readings[f"while measuring: {name}, highest"] = max(values)
    busy = busy_processes(machine)
    if busy:
        readings["while measuring: busy processes"] = ", ".join(busy)
    return readings
