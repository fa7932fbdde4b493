"""What was run and where, as plain data for a report: set-up, commands, versions, the machine while it ran."""

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

# What the machine tells of the time between two of its states.
BUSY: tuple[Literal["cpu_busy_percent", "cpu_steal_percent", "other_cpu_percent", "cpu_package_power_w"], ...] = (
    "cpu_busy_percent",
    "cpu_steal_percent",
    "other_cpu_percent",
    "cpu_package_power_w",
)
# What is drafted with where no model is named, and whether that is a head inside the target.
_NO_DRAFT = {False: "none: tokens are looked up in the text", True: "the head inside the target"}
MADE_WITH = ("numpy", "matplotlib", "jinja2")


def setup(resolved: KeptProfile, rounds: int = 0) -> list[SetupRow]:
    """What was compared, in a few lines: what, and which; ``rounds`` were measured (0: as many as planned)."""
    site, engine = resolved.get("site") or {}, resolved.get("engine") or {}
    method, experiment = resolved.get("method") or {}, resolved.get("experiment") or {}
    tokens = method.get("num_speculative_tokens")
    box = (_host_of(site.get("manage_host"), site.get("box_kind")), site.get("runtime"))
    engine_words = (_named(engine), engine.get("version"))
    suites = [str(suite) for suite in experiment.get("suites") or []]
    method_words = _named(method)
    if tokens:
        method_words += f", up to {tokens} tokens per draft"
    rows = {
        "Hardware": _hardware(resolved),
        "Engine": " ".join(str(part) for part in engine_words if part),
        "Engine's program": str(engine.get("program") or ""),
        "Target": _named(resolved.get("target")),
        "Draft": _named(resolved.get("draft")) or _NO_DRAFT[method.get("kind") == "builtin"],
        "Image": _image(resolved),
        "Weights": "; ".join(_weights(resolved)),
        "Runs code of": "; ".join(_remote_code(resolved)),
        "Method": method_words,
        "Box": ", ".join(part for part in box if part),
        "Suites": listing(suites),
        "Rounds": f"{rounds or experiment.get('rounds', '?')}, {experiment.get('schedule', 'order unknown')}",
        "Load": at_a_time(experiment.get("concurrency", "?")),
    }
    return [{"what": what, "which": which} for what, which in rows.items() if which]


def _host_of(managed: bool | None, kind: object) -> str:
    """Whose the host is to manage; in older results, what kind of box it was."""
    if managed is None:
        return str(kind or "")
    return "host managed" if managed else "host not managed"


def _image(resolved: KeptProfile) -> str:
    """The image that the engine ran in, with the digest that was pinned; '' without one, or in old results."""
    if not resolved.get("site") or not resolved.get("engine"):
        return ""
    name, digest = image_of(resolved), resolved.get("image_digest")
    if name and digest:
        return f"{name}, {digest}"
    return name or ""


def _weights(resolved: KeptProfile) -> list[str]:
    """Repository and commit of the weights that came from the hub."""
    commits = []
    for item in resolved.get("weights") or []:
        if item.get("source") == "hub":
            commits.append(f"{item['details']['repo']} at {commit_words(item)}")
    return commits


def _remote_code(resolved: KeptProfile) -> list[str]:
    """Whose code the engine ran (trust_remote_code)."""
    sources = []
    for code in resolved.get("remote_code") or []:
        commit = f" at {code['commit']}" if code["commit"] else ""
        sources.append(f"{code['repo']}{commit}")
    return sources


def _hardware(resolved: KeptProfile) -> str:
    """What it ran on; of one model over several hosts, how many there are with how many devices each."""
    entry, span = resolved.get("hardware") or {}, (resolved.get("site") or {}).get("span")
    if not span:
        return _named(entry)
    kind = "GPU" if entry.get("kind") == "gpu" else "device"
    return f"{len(span['names'])} hosts x {count(int(entry.get('devices') or 1), kind)}: {_named(entry)}"


def _named(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return ""
    return str(entry.get("name") or entry.get("id") or "")


def commands(resolved: KeptProfile) -> Commands:
    """The rendered files of both arms and their difference, as ``diff -u`` shows it."""
    baseline, speculative = _files(resolved, "baseline"), _files(resolved, "speculative")
    before = {file["path"]: file["content"].splitlines() for file in baseline}
    after = {file["path"]: file["content"].splitlines() for file in speculative}
    diff: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        lines, changed = before.get(path, []), after.get(path, [])
        diff += difflib.unified_diff(lines, changed, f"baseline/{path}", f"speculative/{path}", lineterm="")
    return {"baseline": baseline, "speculative": speculative, "diff": "\n".join(diff)}


def _files(resolved: KeptProfile, arm: str) -> list[CommandFile]:
    rendered = (resolved.get("arms") or {}).get(arm)
    if not rendered:
        return []
    return [{"path": str(f.get("path")), "content": f.get("content") or ""} for f in rendered.get("files") or []]


def flatten(data: object, path: str = "") -> dict[str, Leaf]:
    """Nested data as ``{"cpu.model": …, "gpus[0].name": …}``: a leaf for each row of a table."""
    found: dict[str, Leaf] = {}
    if isinstance(data, Mapping):
        for key, value in data.items():
            found |= flatten(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list) and any(isinstance(item, Mapping | list) for item in data):
        for position, value in enumerate(data):
            found |= flatten(value, f"{path}[{position}]")
    elif isinstance(data, list):
        if data:
            found[path] = ", ".join(map(str, data))
    else:
        found[path] = data if isinstance(data, str | int | float | None) else str(data)
    return found


def _engines(results: Mapping[str, ArmResult]) -> list[SideBySide]:
    """What the engine of each arm says of itself, side by side."""
    baseline = flatten(results["baseline"].get("engine") or {})
    speculative = flatten(results["speculative"].get("engine") or {})
    names = list(baseline | speculative)
    return [{"what": name, "baseline": baseline.get(name), "speculative": speculative.get(name)} for name in names]


def versions(results: Mapping[str, ArmResult]) -> list[SideBySide]:
    """What the engine says of itself and what made this report, side by side for the two arms."""
    rows: list[SideBySide] = [{**row, "what": f"engine.{row['what']}"} for row in _engines(results)]
    for name in MADE_WITH:
        try:
            found: str | None = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = None
        rows.append({"what": f"report.{name}", "baseline": found, "speculative": found})
    return rows


# What is another number at every start says nothing about the arms.
NEVER_EQUAL = ("ready_s", "ready_at_most")


def engine_changes(results: Mapping[str, ArmResult]) -> list[SideBySide]:
    """What the engine itself set differently in the two arms, as far as it says (model runner, …)."""
    changes = []
    for row in _engines(results):
        if row["baseline"] != row["speculative"] and row["what"] not in NEVER_EQUAL:
            changes.append(row)
    return changes


def machine_table(results: Mapping[str, ArmResult]) -> list[MachineRow]:
    """Machine and state of both arms, a row a fact: before and after the arm, and while it ran."""
    rows: dict[str, MachineRow] = {}

    def of_arm(path: str, arm: Arm) -> Moments:
        return rows.setdefault(path, {"what": path, "baseline": {}, "speculative": {}})[arm]

    for arm in ARMS:
        machine = results[arm].get("machine")
        if not machine:
            continue
        for path, value in flatten(machine.get("before") or {}).items():
            of_arm(path, arm)["before"] = value
        for path, value in flatten(machine.get("after") or {}).items():
            of_arm(path, arm)["after"] = value
        for path, value in {**_while_measuring(machine), **_gpus(results[arm])}.items():
            of_arm(path, arm)["value"] = value
    return list(rows.values())


def _gpus(result: ArmResult) -> dict[str, Leaf]:
    """What the GPUs did while an arm answered, over all of its groups."""
    found: dict[str, Leaf] = {}
    for gpu in over_groups(result.get("gpus") or []):
        for path, value in flatten(gpu, f"while measuring: GPU {gpu['index']}").items():
            if value is not None:
                found[path] = value
    return found


def _while_measuring(machine: StepMachine) -> dict[str, Leaf]:
    """What the machine did while the groups of an arm ran: medians, and who else was busy."""
    found: dict[str, Leaf] = {}
    for name in BUSY:
        values = []
        for group in machine.get("groups") or []:
            value = (group.get("between") or {}).get(name)
            if isinstance(value, int | float):
                values.append(value)
        if values:
            found[f"while measuring: {name}, median"] = median(values)
            found[f"while measuring: {name}, highest"] = max(values)
    names = busy_processes(machine)
    if names:
        found["while measuring: busy processes"] = ", ".join(names)
    return found
