"""The real way: `ansible-playbook` as a person calls it, on this machine, into a folder of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.procfs import commands
from drafthouse.profiles.workspace import ROOT
from tests.support.ended import Ended, cpu_seconds
from tests.support.ports import free_port

__all__ = ["Ended", "cpu_seconds"]

BIN = Path(sys.executable).parent
Play = Callable[..., Ended]


def play(playbook: str, *words: str, inventory: str = "inventory/local", **variables: Any) -> Ended:
    """Run a playbook from the clone's root with extra variables."""
    return play_in(ROOT, inventory, playbook, words, variables)


def play_in(clone: Path, inventory: str, playbook: str, words: Iterable[str], variables: Mapping[str, object]) -> Ended:
    """Run a playbook of a clone."""
    command = [str(BIN / "ansible-playbook"), *playbook.split(), "-i", inventory, "-e", json.dumps(variables), *words]
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(clone / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
    }
    begun, used = time.monotonic(), cpu_seconds()
    done = subprocess.run(
        command,
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2700,
        check=False,
    )
    print(done.stdout, done.stderr)
    return Ended(done.returncode, done.stdout + done.stderr, time.monotonic() - begun, cpu_seconds() - used)


def ansible_starts() -> None:
    """Have Ansible start and read an inventory: what a run takes on this machine is held against that."""
    words = [str(BIN / "ansible-inventory"), "-i", "inventory/local", "--list"]
    subprocess.run(words, cwd=ROOT, capture_output=True, check=True, stdin=subprocess.DEVNULL)


def quick(seconds: float, least_s: float, times: float = 6) -> bool:
    """Tell whether something took so long at most, or so many ``times`` as Ansible's own start here."""
    if seconds <= least_s:
        return True
    begun = time.monotonic()
    ansible_starts()
    return seconds <= times * (time.monotonic() - begun)


def what_runs(folder: Path) -> list[str]:
    """The command lines of what runs out of a folder: they have its name in them."""
    return [line for line in (" ".join(words) for _, words in commands()) if str(folder) in line]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home on the box for the whole session; what still runs in it at the end is stopped."""
    folder = tmp_path_factory.mktemp("e2e")
    yield folder
    if what_runs(folder):
        play(
            "playbooks/stop.yml",
            drafthouse_home=str(folder / "home"),
            drafthouse_models_dir=str(folder / "models"),
        )


@pytest.fixture(scope="session")
def port() -> int:
    """A port; the one behind it is free, too."""
    return free_port(2)


@pytest.fixture(scope="session")
def run(home: Path, port: int) -> Play:
    """Run a playbook into the session's home."""

    def start(playbook: str, *words: str, **variables: Any) -> Ended:
        given = {
            "drafthouse_home": str(home / "home"),
            "drafthouse_models_dir": str(home / "models"),
            "drafthouse_port": port,
            "report_folder": str(home / "reports"),
            **variables,
        }
        return play(playbook, *words, **given)

    return start
