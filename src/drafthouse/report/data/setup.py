"""What was run and where, as plain data for a report: set-up, commands, versions, the machine while it ran."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from ...analysis.verdict import Result, busy_processes
from ...bench.stats import median
from ...core.format import at_a_time, listing
from ...core.pins import commit_words, image_of

ARMS = ("baseline", "speculative")
MADE_WITH = ("numpy", "matplotlib", "jinja2")


def setup(resolved: Mapping[str, Any], rounds: int = 0) -> list[dict[str, str]]:
    """Return what was compared, in a few lines: what, and which; ``rounds`` were measured (0: as many as planned)."""
    site = resolved.get("site") or {}
    engine = resolved.get("engine") or {}
    method = resolved.get("method") or {}
    experiment = resolved.get("experiment") or {}
    tokens = method.get("num_speculative_tokens")
    rows = {
        "Hardware": _named(resolved.get("hardware")),
        "Engine": " ".join(str(part) for part in (_named(engine), engine.get("version")) if part),
        "Target": _named(resolved.get("target")),
        "Draft": _named(resolved.get("draft")) or "none: tokens are looked up in the text",
        "Image": _image(resolved),
        "Weights": "; ".join(_weights(resolved)),
        "Runs code of": "; ".join(_remote_code(resolved)),
        "Method": _named(method) + (f", up to {tokens} tokens a draft" if tokens else ""),
        "Box": ", ".join(str(site[name]) for name in ("box_kind", "runtime") if site.get(name)),
        "Suites": listing([str(suite) for suite in experiment.get("suites") or []]),
        "Rounds": f"{rounds or experiment.get('rounds', '?')}, {experiment.get('schedule', 'order unknown')}",
        "Load": at_a_time(experiment.get("concurrency", "?")),
    }
    return [{"what": what, "which": which} for what, which in rows.items() if which]


def _image(resolved: Mapping[str, Any]) -> str:
    """Return the image that the engine ran in, with the digest that was pinned; '' without one, or in old results."""
    name = image_of(resolved) if resolved.get("site") and resolved.get("engine") else None
    digest = resolved.get("image_digest")
    return f"{name}, {digest}" if name and digest else name or ""


def _weights(resolved: Mapping[str, Any]) -> list[str]:
    """Return repository and commit of the weights that came from the hub."""
    items = [item for item in resolved.get("weights") or [] if item.get("source") == "hub"]
    return [f"{item['details']['repo']} at {commit_words(item)}" for item in items]


def _remote_code(resolved: Mapping[str, Any]) -> list[str]:
    """Return whose code the engine ran (trust_remote_code)."""
    rows = resolved.get("remote_code") or []
    return [f"{row['repo']} at {row['commit']}" if row["commit"] else str(row["repo"]) for row in rows]


def _named(entry: object) -> str:
    if not isinstance(entry, Mapping):
        return ""
    return str(entry.get("name") or entry.get("id") or "")


def commands(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rendered files of both arms and their difference, as ``diff -u`` shows it."""
    files = {
        arm: [
            {"path": str(f.get("path")), "content": str(f.get("content", ""))}
            for f in ((resolved.get("arms") or {}).get(arm) or {}).get("files") or []
        ]
        for arm in ARMS
    }
    texts = {arm: {f["path"]: f["content"] for f in files[arm]} for arm in ARMS}
    diff: list[str] = []
    for path in sorted(texts["baseline"].keys() | texts["speculative"].keys()):
        one, two = (texts[arm].get(path, "").splitlines() for arm in ARMS)
        diff += difflib.unified_diff(one, two, f"baseline/{path}", f"speculative/{path}", lineterm="")
    return {**files, "diff": "\n".join(diff)}


def flatten(data: object, path: str = "") -> dict[str, Any]:
    """Return nested data as ``{"cpu.model": …, "gpus[0].name": …}``: a leaf for each row of a table."""
    if isinstance(data, Mapping):
        parts = [(f"{path}.{key}" if path else str(key), value) for key, value in data.items()]
    elif isinstance(data, list) and any(isinstance(item, Mapping | list) for item in data):
        parts = [(f"{path}[{position}]", value) for position, value in enumerate(data)]
    elif isinstance(data, list):
        return {path: ", ".join(str(item) for item in data)} if data else {}
    else:
        return {path: data}
    found: dict[str, Any] = {}
    for where, value in parts:
        found |= flatten(value, where)
    return found


def _side_by_side(one: object, two: object) -> list[dict[str, Any]]:
    flat = [flatten(side or {}) for side in (one, two)]
    names = list(flat[0]) + [name for name in flat[1] if name not in flat[0]]
    return [{"what": name, "baseline": flat[0].get(name), "speculative": flat[1].get(name)} for name in names]


def versions(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Return what the engine says of itself and what made this report, side by side for the two arms."""
    rows: list[dict[str, Any]] = []
    for part in ("engine",):
        sides = [{part: results[arm].get(part)} if results[arm].get(part) else {} for arm in ARMS]
        rows += _side_by_side(*sides)
    for name in MADE_WITH:
        try:
            found: str | None = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = None
        rows.append({"what": f"report.{name}", "baseline": found, "speculative": found})
    return rows


# What is another number at every start says nothing about the arms.
NEVER_EQUAL = ("ready_s", "ready_at_most")


def engine_changes(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Return what the engine itself set differently in the two arms, as far as it says (model runner, …)."""
    rows = _side_by_side(*(results[arm].get("engine") for arm in ARMS))
    return [row for row in rows if row["baseline"] != row["speculative"] and row["what"] not in NEVER_EQUAL]


def machine_table(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Return machine and state of both arms, a row a fact: before and after the arm, and while it ran."""
    rows: dict[str, dict[str, Any]] = {}
    for arm in ARMS:
        machine = results[arm].get("machine") or {}
        for moment in ("before", "after"):
            for path, value in flatten(machine.get(moment) or {}).items():
                rows.setdefault(path, {"what": path, "baseline": {}, "speculative": {}})[arm][moment] = value
        for path, value in _while_measuring(machine).items():
            rows.setdefault(path, {"what": path, "baseline": {}, "speculative": {}})[arm]["value"] = value
    return list(rows.values())


def _while_measuring(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the machine did while the groups of an arm ran: medians, and who else was busy."""
    between = [group.get("between") or {} for group in machine.get("groups") or []]
    found: dict[str, Any] = {}
    for name in ("cpu_busy_percent", "cpu_steal_percent", "other_cpu_percent", "cpu_package_power_w"):
        values = [one[name] for one in between if isinstance(one.get(name), int | float)]
        if values:
            found[f"while measuring: {name}, median"] = median(values)
            found[f"while measuring: {name}, highest"] = max(values)
    names = busy_processes(machine)
    if names:
        found["while measuring: busy processes"] = ", ".join(names)
    return found
