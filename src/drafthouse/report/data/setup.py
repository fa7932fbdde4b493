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
    return str(kind or "") if managed is None else "host managed" if managed else "host not managed"


def _image(resolved: KeptProfile) -> str:
    """The image that the engine ran in, with the digest that was pinned; '' without one, or in old results."""
    name = image_of(resolved) if resolved.get("site") and resolved.get("engine") else None
    digest = resolved.get("image_digest")
    return f"{name}, {digest}" if name and digest else name or ""


def _weights(resolved: KeptProfile) -> list[str]:
    """Repository and commit of the weights that came from the hub."""
    items = [item for item in resolved.get("weights") or [] if item.get("source") == "hub"]
    return [f"{item['details']['repo']} at {commit_words(item)}" for item in items]


def _remote_code(resolved: KeptProfile) -> list[str]:
    """Whose code the engine ran (trust_remote_code)."""
    rows = resolved.get("remote_code") or []
    return [f"{row['repo']} at {row['commit']}" if row["commit"] else row["repo"] for row in rows]


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
    files = {arm: _files(resolved, arm) for arm in ARMS}
    texts = {arm: {f["path"]: f["content"] for f in files[arm]} for arm in ARMS}
    diff: list[str] = []
    for path in sorted(texts["baseline"].keys() | texts["speculative"].keys()):
        one, two = (texts[arm].get(path, "").splitlines() for arm in ARMS)
        diff += difflib.unified_diff(one, two, f"baseline/{path}", f"speculative/{path}", lineterm="")
    return {"baseline": files["baseline"], "speculative": files["speculative"], "diff": "\n".join(diff)}


def _files(resolved: KeptProfile, arm: str) -> list[CommandFile]:
    rendered = (resolved.get("arms") or {}).get(arm)
    files = rendered.get("files") if rendered else None
    return [{"path": str(file.get("path")), "content": file.get("content") or ""} for file in files or []]


def flatten(data: object, path: str = "") -> dict[str, Leaf]:
    """Nested data as ``{"cpu.model": …, "gpus[0].name": …}``: a leaf for each row of a table."""
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
    elif isinstance(data, str | int | float | None):
        leaves[path] = data
    else:
        leaves[path] = str(data)
    return leaves


def _side_by_side(one: object, two: object) -> list[SideBySide]:
    """A row for each leaf of either side."""
    baseline, speculative = flatten(one or {}), flatten(two or {})
    return [
        {"what": name, "baseline": baseline.get(name), "speculative": speculative.get(name)}
        for name in {**baseline, **speculative}
    ]


def versions(results: Mapping[str, ArmResult]) -> list[SideBySide]:
    """What the engine says of itself and what made this report, side by side for the two arms."""
    engines = [{"engine": results[arm].get("engine") or {}} for arm in ARMS]
    rows = _side_by_side(*engines)
    for name in MADE_WITH:
        try:
            version: str | None = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = None
        rows.append({"what": f"report.{name}", "baseline": version, "speculative": version})
    return rows


# What is another number at every start says nothing about the arms.
NEVER_EQUAL = ("ready_s", "ready_at_most")


def engine_changes(results: Mapping[str, ArmResult]) -> list[SideBySide]:
    """What the engine itself set differently in the two arms, as far as it says (model runner, …)."""
    rows = _side_by_side(*(results[arm].get("engine") for arm in ARMS))
    return [row for row in rows if row["baseline"] != row["speculative"] and row["what"] not in NEVER_EQUAL]


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
        for path, value in flatten({**gpu}, f"while measuring: GPU {gpu['index']}").items():
            if value is not None:
                found[path] = value
    return found


def _while_measuring(machine: StepMachine) -> dict[str, Leaf]:
    """What the machine did while the groups of an arm ran: medians, and who else was busy."""
    between = [group.get("between") or {} for group in machine.get("groups") or []]
    found: dict[str, Leaf] = {}
    for name in BUSY:
        readings = [reading.get(name) for reading in between]
        values = [value for value in readings if isinstance(value, int | float)]
        if values:
            found[f"while measuring: {name}, median"] = median(values)
            found[f"while measuring: {name}, highest"] = max(values)
    names = busy_processes(machine)
    if names:
        found["while measuring: busy processes"] = ", ".join(names)
    return found
