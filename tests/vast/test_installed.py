"""Drafthouse without a clone: the wheel by uvx, in a home of its own, its cache thrown away between two commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drafthouse.core.exit_codes import DONE
from drafthouse.core.places import ROOT
from tests.fresh.test_fresh import VERDICT
from tests.hosts.hosts import BIN
from tests.support.ports import free_port
from tests.support.tales import SHORTEST
from tests.vast.cloud import RENTED_FOR, Cloud

MOST_MB = 2.5


class Person:
    """Somebody with uvx, the wheel and a home; ``home`` has nothing else."""

    def __init__(self, wheel: Path, home: Path) -> None:
        self.wheel, self.home = wheel, home

    def __call__(self, folder: str, *words: object, **variables: str) -> str:
        """What a verb prints that is typed in a ``folder`` of the home; it ends well."""
        done = self.uv(folder, "tool", "run", "--from", f"{self.wheel}[deploy]", "drafthouse", *words, **variables)
        print(f"$ drafthouse {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
        assert done.returncode == DONE, done.stdout[-3000:] + done.stderr[-3000:]
        assert "Traceback" not in done.stderr
        return done.stdout

    def uv(self, folder: str, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command of uv, with a cache of the home's own."""
        others = ("ANSIBLE", "PYTHON", "XDG", "DRAFTHOUSE")
        theirs = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        at = self.home / folder
        at.mkdir(parents=True, exist_ok=True)
        return subprocess.run(
            [BIN / "uv", *map(str, words)], cwd=at, stdin=subprocess.DEVNULL,
            env=theirs | {"HOME": str(self.home), "UV_CACHE_DIR": str(self.home / "uv")} | variables,
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory, figure: Callable[[str], None]) -> Person:
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    size_mb = wheel.stat().st_size / 1e6
    figure(f"wheel with roles and playbooks: {size_mb:.2f} MB (allowed {MOST_MB} MB)")
    assert size_mb <= MOST_MB
    return Person(wheel, folder / "home")


def test_from_init_to_a_verdict(person: Person, figure: Callable[[str], None]) -> None:
    person("work", "init", "box")
    settings = person.home / "work" / "box" / "group_vars" / "all.yml"
    # Ansible's ~ is what the machine says, and not the home that this test gives.
    text = settings.read_text("utf-8").replace("~/drafthouse", f"{person.home}/drafthouse")
    settings.write_text(f"{text}drafthouse_port: {free_port()}\n")
    sets = [f"--set={key}={json.dumps(value)}" for key, value in SHORTEST.items()]
    begun = time.monotonic()
    said = person("work", "run", "cpu-smollm2-ngram", "--inventory", "box", *sets, "--", "-e", "benchmark_wait_s=0")
    assert VERDICT.search(said.replace("verdict: ", "")), said[-3000:]
    figure(f"installed by uvx: a profile to its verdict in {time.monotonic() - begun:.0f} s")
    assert "make " not in said.partition("verdict: ")[2], "a target of make, which nobody has here"
    try:
        assert person("work", "reports").count("cpu-smollm2-ngram") == 1
        assert list((person.home / "work" / "reports" / "cpu-smollm2-ngram").rglob("report.html"))
        site, config = (person("work", "where", what).strip() for what in ("site", "config"))
        words = ("ansible-playbook", site, "-i", "box", "--tags", "doctor", "-e", "profile=cpu-smollm2-ngram")
        played = person.uv("work", "tool", "run", "--from", f"{person.wheel}[deploy]", *words, ANSIBLE_CONFIG=config)
        assert re.search(r"^localhost: \d+ ok", played.stdout, re.MULTILINE), played.stdout[-3000:] + played.stderr
        assert "speculative" in person("elsewhere", "logs", "--inventory", person.home / "work" / "box")
    finally:
        person("elsewhere", "teardown", "--inventory", person.home / "work" / "box", "--", "-e", "weights=true")
    assert not [path for path in (person.home / "drafthouse").rglob("*") if path.is_file()]
    left = sorted(path.name for path in (person.home / "work").iterdir())
    assert left == ["box", "reports"]


def test_what_was_rented_from_one_folder_ends_from_another(person: Person, cloud: Cloud) -> None:
    account = {"VAST_API_KEY": cloud.vast.key, "VAST_URL": cloud.url, "ANSIBLE_PRIVATE_KEY_FILE": str(cloud.lab.key)}
    offers = person("one", "rent", RENTED_FOR, "--dry-run", **account)
    assert "nothing was rented" in offers
    more = ("--ssh-key", f"{cloud.lab.key}.pub", "--poll-s", "0.2", "--wait-min", "5")
    said = person("one", "rent", RENTED_FOR, "--max-price", "0.80", "--hours", "2", "--yes", *more, **account)
    (number,) = cloud.vast.ours
    assert f"drafthouse destroy {number}" in said
    state = person.home / ".local" / "state" / "drafthouse"
    assert (state / "rentals" / "ledger.jsonl").read_text("utf-8")
    # uvx's cache goes, and with it the package that rented.
    assert person.uv("one", "cache", "clean").returncode == 0
    assert str(number) in person("two", "destroy", "--list", **account)
    person("two", "destroy", **account)
    assert not cloud.vast.ours
    assert "nothing of ours bills" in person("three", "destroy", "--list", **account)
    assert not [path for folder in ("one", "two", "three") for path in (person.home / folder).iterdir()]
