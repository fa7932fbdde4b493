"""What the Makefile makes of what a person types; `make -n` runs nothing."""

from __future__ import annotations

import os
import subprocess

import pytest

from drafthouse.profiles.workspace import ROOT

pytestmark = pytest.mark.processes


def words(*typed: str) -> list[str]:
    """Return the words of the scripts that this would run."""
    done = subprocess.run(["make", "-n", *typed], cwd=ROOT, capture_output=True, text=True, check=True)
    return [word for line in done.stdout.splitlines() if line.startswith("scripts/") for word in line.split()]


@pytest.mark.parametrize("typed", ["YES=", "YES=0", "YES=no", "YES=perhaps"])
def test_only_a_plain_yes_spends_or_removes(typed: str) -> None:
    assert "--yes" not in words("rent", "PROFILE=x", typed)
    assert "--remove" not in words("prune", typed)
    assert "--yes" in words("rent", "PROFILE=x", "YES=1")
    assert "--remove" in words("prune", "YES=yes")


@pytest.mark.parametrize(("typed", "dry"), [("DRY_RUN=1", True), ("DRY_RUN=x", True), ("DRY_RUN=0", False)])
def test_a_dry_run_stays_dry_unless_it_is_plainly_off(typed: str, dry: bool) -> None:
    assert ("--dry-run" in words("rent", "PROFILE=x", "YES=1", typed)) is dry


def test_bytecode_is_kept_in_the_clone_and_away_from_its_sources() -> None:
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    shown = ["make", "--eval", "shown: ; @env", "shown"]
    done = subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True, env=given)
    assert f"PYTHONPYCACHEPREFIX={ROOT}/.drafthouse/cache/pycache\n" in done.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in done.stdout
