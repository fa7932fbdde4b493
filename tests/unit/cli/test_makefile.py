"""What the Makefile makes of what a person types; `make -n` runs nothing."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT

pytestmark = pytest.mark.processes


def words(*typed: str) -> list[str]:
    """The words of the scripts that this would run."""
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


def test_bytecode_is_kept_whatever_the_shell_says() -> None:
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    given["PYTHONDONTWRITEBYTECODE"] = "1"
    shown = ["make", "--eval", "shown: ; @env", "shown"]
    done = subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True, env=given)
    assert "PYTHONDONTWRITEBYTECODE=\n" in done.stdout
    assert "PYTHONPYCACHEPREFIX" not in done.stdout


def made(*typed: str) -> subprocess.CompletedProcess[str]:
    """Run make with a Python that has nothing but its standard library, as before `make venv`."""
    alone = f"PYTHON={sys.executable} -I -S"
    return subprocess.run(["make", alone, *typed], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("typed", "do"),
    [
        ("rtx6000-qwen-eagle", "do: make rtx6000-qwen-eagle3 (make help shows them all)"),
        ("rtx6000-qwen", "do: make rtx6000-qwen-eagle3 (make help shows them all)"),
        (
            "rtx4090",
            "do: one of: make rtx4090-gptoss20b-peagle, make rtx4090-llama32-draft1b, "
            "make rtx4090-llama32-llamacpp-draft1b",
        ),
        ("dmeo", "do: make demo (make help shows them all)"),
        ("qqqqqq", "do: make help"),
    ],
)
def test_a_word_that_is_no_target_is_answered_with_the_nearest(typed: str, do: str) -> None:
    done = made(typed)
    assert done.returncode == 2
    assert f"found: no target or profile '{typed}'\n" in done.stderr
    assert f"\n{do}\ncode: no-such-target\n" in done.stderr
    assert done.stdout == ""


def test_help_that_is_read_in_part_is_no_failure() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_has_every_target_in_a_group_and_every_profile_as_the_catalogue_knows_it() -> None:
    done = made("help")
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if re.fullmatch(r"\w+:", line)] == [
        "Start:", "Measure:", "Operate:", "Rent:", "Develop:",
    ]  # fmt: skip
    said = {line.split()[0] for line in done.stdout.splitlines() if line}
    targets = set(re.findall(r"^([a-z-]+): .*; @", (ROOT / "Makefile").read_text("utf-8"), re.M))
    catalog = load_catalog(ROOT)
    assert said >= targets | set(catalog.profiles)
    for name, profile in catalog.profiles.items():
        facts = [profile["hardware"], profile["target"], profile["speculation"]["method"], profile["engine"]]
        assert [name, *facts] in [line.split() for line in done.stdout.splitlines()]


def test_help_fits_a_terminal_of_a_hundred_columns() -> None:
    text = runpy.run_path(str(ROOT / "scripts" / "targets.py"))["help_text"](100)
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("verb", ["translate", "compare", "plan", "tune", "rent", "upgrade"])
def test_a_target_without_what_it_needs_says_how_make_is_told(verb: str, tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "scripts" / "drafthouse"), verb]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (do,) = [line for line in done.stderr.splitlines() if line.startswith("do: ")]
    assert re.search(r"with make: [A-Z_]+=", do)


def test_logs_of_a_box_without_any_name_the_other_inventories(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yml"
    hosts.write_text(f"all: {{hosts: {{here: {{ansible_connection: local, drafthouse_home: {tmp_path}/home}}}}}}")
    words = [sys.executable, str(ROOT / "scripts" / "drafthouse"), "logs", "--inventory", str(hosts)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "nothing has been served there\n" in done.stderr
    assert "one of: fleet, local, vastai, workstation, or a path" in done.stderr
    done = subprocess.run([*words, "--only", "gateway"], capture_output=True, text=True, check=False)
    assert "no log with 'gateway' in its name" in done.stderr
    assert "served" not in done.stderr  # for other names there may be some
