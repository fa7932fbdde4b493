"""The doctor on this very machine with the real engine: silent where all is well, by name where something is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.operate.doctor.probe import ask
from drafthouse.profiles.workspace import ROOT
from tests.e2e.conftest import Ended, Play, play
from tests.support import doctors
from tests.support.doctors import wanted
from tests.support.engines import engine_home, llama_server, packaged_weights
from tests.support.tales import TALES

PROFILE = "cpu-smollm2-ngram"
OVERRIDES = {"experiment": TALES}
FIELDS = {"host", "id", "name", "status", "found", "needed", "do"}
Doctor = Callable[..., tuple[int, dict[str, dict[str, str]]]]


def asked(*words: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run the script as a person does, with variables for the playbook."""
    command = [sys.executable, str(ROOT / "scripts/drafthouse"), "doctor", *words, "--", "-e", json.dumps(variables)]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def variables(home: Path, port: int) -> Any:
    return {
        "drafthouse_home": str(home / "home"), "drafthouse_models_dir": str(home / "models"), "drafthouse_port": port,
        "overrides": OVERRIDES,
    }  # fmt: skip


@pytest.fixture(scope="module")
def served(run: Play, home: Path) -> Ended:
    """The demo's profile, its speculative arm left serving."""
    reports = str(home / "doctor-reports")
    ended = run("site.yml", profile=PROFILE, overrides=OVERRIDES, report_folder=reports, serve_arm="speculative")
    assert ended.status == 0, ended.output[-3000:]
    return ended


@pytest.fixture(scope="module")
def doctor(served: Ended, variables: Any) -> Doctor:
    """Ask the doctor; return the exit status, and the checks by name."""

    def look(*words: str, **more: Any) -> tuple[int, dict[str, dict[str, str]]]:
        done = asked("--json", "--profile", PROFILE, *words, **{**variables, **more})
        checks = json.loads(done.stdout)["checks"]
        assert all(set(check) == FIELDS for check in checks)
        return done.returncode, {check["name"]: check for check in checks}

    return look


def ills(checks: dict[str, dict[str, str]]) -> set[str]:
    # How much room this machine has is not this test's.
    return {name for name, check in checks.items() if check["status"] in ("warn", "fail")} - {"disk"}


# What needs a server of its own is a long one: the doctor of a workstation is asked every day in tests/hosts/.
@pytest.mark.soak
def test_a_run_ends_with_what_the_doctor_counted_and_a_link_to_the_report(served: Ended) -> None:
    lines = served.output.split("PLAY RECAP")[1].rstrip().splitlines()
    assert any(re.fullmatch(r"localhost: \d+ ok(, \d+ warnings?)?, \d+ skipped", line) for line in lines)
    assert not any(re.match(r"  (ok|skipped) ", line) for line in lines)
    assert [line.partition(": ")[0] for line in lines[-3:]] == ["verdict", "next", "report"]
    assert lines[-1].startswith("report: file:///")


@pytest.mark.soak
def test_nothing_is_found_where_all_is_well(doctor: Doctor, home: Path, figure: Callable[[str], None]) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = (path for path in (home / "home").rglob("*") if path.is_file() and path.suffix not in (".log", ".pyc"))
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    before = state()
    _, checks = doctor()
    assert ills(checks) == set()
    for name in ("engine answers", "speculation", "key required", "API key", "served", "log rotation"):
        assert checks[name]["status"] == "ok", checks[name]
    # It reads, and nothing else: what the engine itself prints is not counted.
    assert state() == before
    figure(f"doctor: {sum(check['status'] == 'ok' for check in checks.values())} checks are well on this machine")


@pytest.mark.soak
def test_another_profile_than_the_one_that_serves(doctor: Doctor, variables: Any) -> None:
    done = asked(
        "--json", "--profile", "cpu-smollm2-draft", **{**variables, "doctor_parts": ["server"], "overrides": {}}
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 2
    assert f"make doctor PROFILE={PROFILE}" in checks["served"]["do"]
    assert checks["engine answers"]["status"] == "not here"


@pytest.mark.parametrize("flags", [(), ("--spec-type", "ngram-simple")], ids=["off", "on"])
def test_its_slots_tell_whether_it_speculates_when_nothing_was_drafted(flags: tuple[str, ...], tmp_path: Path) -> None:
    # Its counters are there either way, and a lookup that finds nothing leaves them where they are.
    model, key = str(packaged_weights("smollm2-135m-q4")), "key-of-the-test-0123456789"
    (tmp_path / "key").write_text(key)
    words = ("-m", model, "-a", "smollm2-135m", "-np", "1", "-c", "1024", "--metrics")
    with llama_server(engine_home("llamacpp"), *words, "--api-key-file", str(tmp_path / "key"), *flags) as server:
        questions = doctors.asked(wanted(PROFILE, "local", port=server.port, home=str(tmp_path)))
        questions["chats"] = []
        found = ask(questions, key, 30.0)
    assert found["speculates"] is bool(flags)
    assert "spec_decode_num_draft_tokens_total 0" in found["before"]


@pytest.mark.soak
def test_nothing_served_is_said(served: Ended, run: Play, variables: Any) -> None:
    assert run("playbooks/stop.yml", profile=PROFILE).status == 0
    # A playbook fails by the doctor, and its lines stand at the end.
    ended = play("site.yml --tags doctor", profile=PROFILE, **variables)
    assert ended.status != 0
    assert re.search(rf"^  failed +served +.*; needed: an arm of {PROFILE}; do: make logs", ended.output, re.MULTILINE)
    # As lines, for people.
    done = asked("--profile", PROFILE, **{**variables, "doctor_parts": ["server"]})
    assert done.returncode == 2
    assert re.fullmatch(r"localhost: \d+ ok, 1 failed, \d+ skipped", done.stdout.splitlines()[-1])
    assert done.stderr == ""


@pytest.fixture
def bare(tmp_path: Path) -> Any:
    """A box on which nothing of ours is."""
    return {"drafthouse_home": str(tmp_path / "h"), "drafthouse_models_dir": str(tmp_path / "m"), "drafthouse_port": 1}


def test_a_bare_home(bare: Any, tmp_path: Path) -> None:
    done = asked("--json", "--profile", PROFILE, **bare)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 2
    assert checks["engine's environment"]["status"] == "fail"
    assert not (tmp_path / "h").exists()
    nowhere = asked("--inventory", "laptop")
    assert nowhere.returncode == 2
    assert "found: no inventory 'laptop'" in nowhere.stderr


def test_a_box_that_is_away_is_a_check_too(tmp_path: Path) -> None:
    host = {
        "ansible_host": "127.0.0.1",
        "ansible_port": 1,
        "ansible_user": "nobody",
        "ansible_ssh_common_args": "-F none",
    }
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"away": host}}}))
    site = {
        "drafthouse_manage_host": False, "drafthouse_runtime": "process", "drafthouse_home": "/h",
        "drafthouse_models_dir": "/m", "drafthouse_host": "127.0.0.1", "drafthouse_port": 8000,
    }  # fmt: skip
    done = asked("--inventory", str(tmp_path / "hosts.yml"), "--json", "--profile", PROFILE, **site)
    (check,) = json.loads(done.stdout)["checks"]
    assert (done.returncode, check["name"], check["host"], check["status"]) == (2, "reachable", "away", "fail")
