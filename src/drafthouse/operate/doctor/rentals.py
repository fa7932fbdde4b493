"""The doctor's check that the local ledger of rentals agrees with the account at vast.ai."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ...cloud.vast.account import compare_with_account
from ...cloud.vast.client import DEFAULT_URL, VastClient, key_of_environment
from ...core.errors import DrafthouseError
from ..checks.finding import FAIL, WARN, Finding, not_here, of_problem, ok

ID = "rentals"
HOST = "vast.ai"


def checks(ledger: Path, environ: Mapping[str, str], home: Path) -> list[Finding]:
    """A finding for each wrong rental, or a single one if ledger and account agree, or if the account was not read."""
    return [replace(finding, id=ID, name=ID) for finding in _findings(ledger, environ, home)]


def _findings(ledger: Path, environ: Mapping[str, str], home: Path) -> list[Finding]:
    """The findings without id and name: skipped without an API key, failed where the account cannot be read.

    Else a failure for each rental that is billed and should not be, a warning for each that was closed elsewhere (see
    `compare_with_account`), or ok.
    """
    try:
        key = key_of_environment(environ, home)
    except DrafthouseError as error:
        return [not_here(error.problems[0].found)]
    try:
        comparison = compare_with_account(VastClient(key, environ.get("VAST_URL") or DEFAULT_URL), ledger)
    except DrafthouseError as error:
        return [of_problem(problem) for problem in error.problems]
    findings = [of_problem(problem, FAIL) for problem in comparison.billing]
    findings += [of_problem(problem, WARN) for problem in comparison.closed]
    boxes = "1 rented box is billed" if comparison.known == 1 else f"{comparison.known} rented boxes are billed"
    return findings or [ok(f"the ledger and the account agree, {boxes}")]
