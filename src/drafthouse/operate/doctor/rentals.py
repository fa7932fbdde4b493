"""What the doctor says of the account at vast.ai: whether the ledger of rentals and the account agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ...cloud.vast.account import compared
from ...cloud.vast.client import DEFAULT_URL, VastClient, key_of_environment
from ...core.errors import DrafthouseError
from ..checks.finding import FAIL, WARN, Finding, not_here, of_problem, ok

ID = "rentals"
HOST = "vast.ai"


def checks(ledger: Path, environ: Mapping[str, str], home: Path) -> list[Finding]:
    """What is wrong with what is rented, a finding each; one alone where all of it is well."""
    return [replace(finding, id=ID, name=ID) for finding in _found(ledger, environ, home)]


def _found(ledger: Path, environ: Mapping[str, str], home: Path) -> list[Finding]:
    try:
        key = key_of_environment(environ, home)
    except DrafthouseError as error:
        return [not_here(error.problems[0].found)]
    try:
        found = compared(VastClient(key, environ.get("VAST_URL") or DEFAULT_URL), ledger)
    except DrafthouseError as error:
        return [of_problem(problem) for problem in error.problems]
    wrong = [of_problem(problem, FAIL) for problem in found.billing]
    wrong += [of_problem(problem, WARN) for problem in found.closed]
    boxes = "1 rented box is billed" if found.known == 1 else f"{found.known} rented boxes are billed"
    return wrong or [ok(f"the ledger and the account agree, {boxes}")]
