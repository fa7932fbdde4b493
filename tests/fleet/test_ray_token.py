"""The token of a replica's Ray: one for all its hosts, kept, readable by its owner only, and never shown.

What runs with another one is stopped: it would let nobody in who has the new one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from drafthouse.profiles.workspace import ROOT
from drafthouse.serving.supervisor import Program, Supervisor, configuration
from tests.support.little_box import kill

pytestmark = pytest.mark.processes

PROGRAM = Path(sys.executable).with_name("ansible-playbook")
GIVEN = "0123456789abcdef" * 4


def play(folder: Path, **environment: str) -> tuple[list[str], str]:
    """Run the tasks as `several_hosts.yml` does, on two replicas of two hosts; return what changed, and all output."""
    tasks = yaml.safe_load((ROOT / "playbooks" / "tasks" / "several_hosts.yml").read_text("utf-8"))
    (ours,) = (task for task in tasks if task.get("ansible.builtin.import_tasks") == "ray_token.yml")
    ours["ansible.builtin.import_tasks"] = str(ROOT / "playbooks" / "tasks" / "ray_token.yml")
    hosts = {
        name: {
            "drafthouse_span": {"rank": place % 2, "names": list(("ab", "cd")[place // 2])},
            "drafthouse_profile": {"site": {"home": str(folder / name), "executor": "ray"}},
        }
        for place, name in enumerate("abcd")
    }
    for name in hosts:
        (folder / name / "venv" / "bin").mkdir(parents=True, exist_ok=True)
        python = folder / name / "venv" / "bin" / "python"
        python.unlink(missing_ok=True)
        python.symlink_to(sys.executable)
    shared = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": shared}}), "utf-8")
    (folder / "book.yml").write_text(
        yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": [ours]}]), "utf-8"
    )
    done = subprocess.run(
        [str(PROGRAM), "-i", str(folder / "hosts.yml"), str(folder / "book.yml"), "-vvv", "--diff"],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-3000:]
    return re.findall(r"changed=(\d+)", output), output


@contextmanager
def serving(home: Path) -> Iterator[Supervisor]:
    """Run something on a host as an arm is run."""
    script = home / "arm.sh"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o755)
    supervisor = Supervisor(home / "supervisor")
    wanted = configuration(supervisor.home, [Program("arm", [str(script)], str(home / "arm.log"))])
    supervisor.converge(wanted, ["arm"], fresh=False)
    yield supervisor
    kill(supervisor)


def test_a_replica_has_one_token_that_stays_and_is_never_shown(tmp_path: Path) -> None:
    files = {name: tmp_path / name / "secrets" / "ray_token" for name in "abcd"}
    _, output = play(tmp_path)
    tokens = {name: path.read_text() for name, path in files.items()}
    assert tokens["a"] == tokens["b"] != tokens["c"] == tokens["d"]
    assert all(re.fullmatch(r"[0-9A-Fa-f]{64}", token) for token in tokens.values())
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}
    assert not any(token in output for token in tokens.values())
    with serving(tmp_path / "a") as head, serving(tmp_path / "b") as follower:
        changed, _ = play(tmp_path)
        assert changed == ["0", "0", "0", "0"]
        assert head.running() == follower.running() == ["arm"]
        _, output = play(tmp_path, DRAFTHOUSE_RAY_TOKEN=GIVEN)
        assert head.running() == follower.running() == []
    assert {path.read_text() for path in files.values()} == {GIVEN}
    assert GIVEN not in output
