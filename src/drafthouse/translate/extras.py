"""What of a command no key of a profile is for: into `serve.extra` and `environment`, or named with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.schema import Findings
from ..core.secret_shapes import GONE
from ..profiles.extra_flags import check_environment, check_extra

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogEngine
    from drafthouse.profiles.catalog import House
    from drafthouse.translate.reader import Reading

_PASSED = "unchanged, in both arms"


def sort_extras(
    read: Reading, house: House, engine: CatalogEngine, version: str, method: str
) -> tuple[list[str], dict[str, str]]:
    """The words for `serve.extra` and the variables for `environment`; note each, and what is left out."""
    words: list[str] = []
    lists = house.flags.get(engine["id"], {})
    for given, was, flag in read.kept:
        findings = Findings("")
        _, warnings = check_extra(findings, list(flag), engine, version, lists)
        text = " ".join(flag)
        why = _why_left_out(findings, text)
        if not why and "\n" in text:
            why = "its value has a line break"
        if why:
            read.left_out.append(text)
            read.note(was, given.flag, f"in the command but not in the profile: {why}", "kept")
        else:
            words += flag
            remark = _PASSED
            for warning in warnings:
                _, colon, content = warning.partition(": ")
                if colon:
                    remark += f"; {content}"
            read.note(was, f"serve.extra: {flag[0]}", remark, "kept")
    return words, _variables(read, engine, method)


def _variables(read: Reading, engine: CatalogEngine, method: str) -> dict[str, str]:
    entry = engine["methods"].get(method)
    requires = entry and entry.get("requires")
    required = (requires and requires.get("environment")) or {}
    found: dict[str, str] = {}
    for name, value in read.variables.items():
        findings = Findings("")
        check_environment(findings, {name: value}, engine, required)
        if "$" in value:
            findings.add("unknown-value", "", "a value that a shell fills in", "the value itself", "write it out")
        why = _why_left_out(findings, value)
        if why:
            read.left_out.append(f"{name}={value}")
            read.note(name, name, f"in the command but not in the profile: {why}", "kept")
        else:
            found[name] = value
            read.note(name, f"environment: {name}", _PASSED, "kept")
    return found


def _why_left_out(findings: Findings, text: str) -> str:
    """Why a profile does not take a flag or a variable: its first problem, a secret; '' for none."""
    if findings.problems:
        first = findings.problems[0]
        return f"{first.found}; {first.do}"
    if GONE in text:
        return "it has a secret, which is not printed again"
    return ""
