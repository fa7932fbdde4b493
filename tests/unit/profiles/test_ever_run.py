"""Was this ever run? The plan and both tables of docs/ give the same answer."""

from __future__ import annotations

import re
import sys
from importlib import import_module

import pytest

from drafthouse.experiment.plan_text import plan_text
from drafthouse.profiles.ever_run import NEVER, ever_run
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory

NAMES = ("cpu-smollm2-ngram", "cpu-smollm2-draft", "rtx6000-qwen-eagle3")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        docs = import_module("docs")
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return {"profiles": docs.profiles_page(), "proof": docs.proof_page()}


def column(page: str, name: str) -> dict[str, str]:
    """A column of a page's table, by profile."""
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in page.splitlines() if line[:1] == "|"
    ]
    at = rows[0].index(name)
    return {row[0].strip("`"): row[at] for row in rows[2:]}


def test_the_plan_and_both_tables_say_the_same(pages: dict[str, str]) -> None:
    by_page = [column(page, "verified") for page in pages.values()]
    assert by_page[0] == by_page[1]
    site = site_of_inventory("workstation")
    for name in NAMES:
        resolved = resolved_profile(name, site)
        answer = ever_run(resolved["verified"])
        assert by_page[0][name] == answer
        assert f"\nverified   {answer}\n" in plan_text(resolved)


def test_what_is_claimed_as_served_was_verified_and_no_gpu_was(pages: dict[str, str]) -> None:
    """README.md says that no GPU profile has been run on its GPU: whoever runs one changes both."""
    verified = column(pages["profiles"], "verified")
    served = {name for name, how in column(pages["proof"], "tested, and how").items() if how.startswith("served:")}
    assert served == {name for name, answer in verified.items() if answer != NEVER}
    words = (ROOT / "README.md").read_text("utf-8").split()
    assert "No GPU profile has been run on its GPU yet" in " ".join(words)
    assert {name for name in served if not name.startswith("cpu-")} == set()
