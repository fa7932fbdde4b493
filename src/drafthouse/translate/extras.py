"""Put flags without a profile key into `serve.extra`, and variables into `environment`, or note why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.schema import Findings
from ..core.secret_shapes import GONE
from ..profiles.extra_flags import check_environment, check_extra

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogEngine
    from drafthouse.profiles.catalog import Catalog
    from drafthouse.translate.reader import Reading

_PASSED = "unchanged, in both arms"


def sort_extras(
    reading: Reading, catalog: Catalog, engine: CatalogEngine, version: str, method: str
) -> tuple[list[str], dict[str, str]]:
    """The words for `serve.extra` and the variables for `environment`; ``reading`` gets a note on each."""
    extra_words: list[str] = []
    flag_lists = catalog.flags.get(engine["id"], {})
    for parsed_flag, typed_text, flag in reading.kept:  # the flags that no profile key stands for
        findings = Findings("")
        _, warnings = check_extra(findings, list(flag), engine, version, flag_lists)
        text = " ".join(flag)
        why = _why_left_out(findings, text)
        if not why and "\n" in text:
            why = "its value has a line break"
        if why:
            reading.left_out.append(text)
            reading.note(typed_text, parsed_flag.flag, f"in the command but not in the profile: {why}", "kept")
        else:
            extra_words += flag
            note = _PASSED
            for warning in warnings:
                _, colon, content = warning.partition(": ")  # before the colon is the flag again
                if colon:
                    note += f"; {content}"
            reading.note(typed_text, f"serve.extra: {flag[0]}", note, "kept")
    return extra_words, _variables(reading, engine, method)


def _variables(reading: Reading, engine: CatalogEngine, method: str) -> dict[str, str]:
    # A profile does not repeat the variables that its method sets.
    entry = engine["methods"].get(method)
    requires = entry and entry.get("requires")
    required = (requires and requires.get("environment")) or {}
    environment: dict[str, str] = {}
    for name, value in reading.variables.items():
        findings = Findings("")
        check_environment(findings, {name: value}, engine, required)
        if "$" in value:
            findings.add("unknown-value", "", "a value that a shell fills in", "the value itself", "write it out")
        why = _why_left_out(findings, value)
        if why:
            reading.left_out.append(f"{name}={value}")
            reading.note(name, name, f"in the command but not in the profile: {why}", "kept")
        else:
            environment[name] = value
            reading.note(name, f"environment: {name}", _PASSED, "kept")
    return environment


def _why_left_out(findings: Findings, text: str) -> str:
    """The reason why a profile cannot have a flag or a variable; "" if it can."""
    if findings.problems:
        problem = findings.problems[0]
        return f"{problem.found}; {problem.do}"
    if GONE in text:
        return "it has a secret, which is not printed again"
    return ""
