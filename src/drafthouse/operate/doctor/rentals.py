"""What the doctor says of the account at vast.ai: whether the ledger of rentals and the account agree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...cloud.vast.account import compared
from ...cloud.vast.client import DEFAULT_URL, VastClient, key_of_environment
from ...core.errors import DrafthouseError
from .check import FAIL, WARN, Check, not_here, of_problem, ok

NAME = "rentals"
HOST = "vast.ai"


def checks(ledger: Path, environ: Mapping[str, str], home: Path) -> list[Check]:
    """Return what is wrong with what is rented, a check each; one alone where all of it is well."""
    try:
        key = key_of_environment(environ, home)
    except DrafthouseError as error:
        return [not_here(NAME, error.problems[0].found)]
    try:
        found = compared(VastClient(key, environ.get("VAST_URL") or DEFAULT_URL), ledger)
    except DrafthouseError as error:
        return [of_problem(NAME, problem) for problem in error.problems]
    wrong = [of_problem(NAME, problem, FAIL) for problem in found.billing]
    wrong += [of_problem(NAME, problem, WARN) for problem in found.closed]
    boxes = "1 box of ours bills" if found.known == 1 else f"{found.known} boxes of ours bill"
    return wrong or [ok(NAME, f"the ledger and the account agree, {boxes}")]
