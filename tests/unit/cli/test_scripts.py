"""The small programs for people without Ansible, as they are called."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.support.pace import in_cpu_time

pytestmark = pytest.mark.processes


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "drafthouse"), script, *words]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.alone
def test_a_plan_takes_less_than_two_seconds(figure: Callable[[str], None]) -> None:
    """Of a processor: what else the machine does is not meant."""
    begun, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run("plan", "rtx6000-qwen-eagle3")
    seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    figure(f"make plan: {seconds:.2f} s")
    assert done.returncode == 0
    assert "decode limit  27.3 tok/s" in done.stdout
    assert in_cpu_time(after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime, 2)


def test_render_writes_what_is_run() -> None:
    # Of a profile that no other test renders: its folder in the clone is one for all that run beside each other.
    done = run("render", "h100-llama33-eagle3", "--set", "speculation.num_speculative_tokens=4")
    assert done.returncode == 0
    try:
        script = ROOT / "build" / "h100-llama33-eagle3" / "speculative" / "serve.sh"
        assert '"num_speculative_tokens": 4' in script.read_text()
        assert script.stat().st_mode & 0o111
    finally:
        run("render", "h100-llama33-eagle3")


def test_profiles_lists_every_file() -> None:
    done = run("profiles")
    assert done.returncode == 0
    for path in (ROOT / "profiles").glob("*.yml"):
        assert path.stem in done.stdout
    assert run("profiles", "--inventory", "cpu-smollm2-ngram").stdout == "local\n"
    assert run("profiles", "--inventory", "rtx6000-qwen-eagle3").stdout == "workstation\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["rtx6000-qwen-eagle"], "found: no profile 'rtx6000-qwen-eagle'"),
        (["rtx6000-qwen-eagle3", "--set", "speculation"], "found: --set speculation"),
        (["rtx6000-qwen-eagle3", "--set", "serve.dtyp=auto"], "found: the unknown key 'dtyp'"),
        (["rtx6000-qwen-eagle3", "--inventory", "laptop"], "found: no inventory 'laptop'"),
    ],
)
def test_what_is_wrong_is_said_in_lines(words: list[str], found: str) -> None:
    done = run("plan", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert any(line.startswith(found) for line in done.stderr.splitlines())
    assert any(line.startswith("do: ") for line in done.stderr.splitlines())


def test_a_python_without_the_packages_hands_over_to_the_environment_of_the_clone() -> None:
    bare = [sys.executable, "-S", "-E", "-s"]  # no site-packages
    command = [*bare, str(ROOT / "scripts" / "drafthouse"), "profiles"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if (ROOT / ".venv" / "bin" / "python").exists():
        assert done.returncode == 0, done.stderr
        assert "cpu-smollm2-ngram" in done.stdout
    else:
        assert done.stderr.endswith("do: make venv\n")


def test_ansible_gets_a_locale_and_the_programs_of_the_clone() -> None:
    # As a shell without any setting calls it, by its path.
    bare = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "LC_ALL": "C"}
    command = [sys.executable, str(ROOT / "scripts" / "drafthouse"), "stoppable", "--"]
    command += ["sh", "-c", 'command -v ansible-playbook; echo "$LC_ALL $ANSIBLE_CONFIG"']
    done = subprocess.run(command, env=bare, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        str(Path(sys.executable).parent / "ansible-playbook"), f"C.UTF-8 {ROOT / 'ansible.cfg'}"
    ]  # fmt: skip
