"""A refusal is said once, by a run that uses the clone's own ansible.cfg; with -v Ansible says all of it too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible import constants
from ansible_collections.drafthouse.core.plugins.callback import terminal

from drafthouse.profiles.workspace import ROOT

PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Resolve a typo
      drafthouse.core.resolve:
      vars: {profile: cpu-smollm2-ngrm}
      ignore_errors: true
    - name: Resolve two typos
      drafthouse.core.resolve:
      vars: {profile: "{{ item }}"}
      loop: [cpu-smollm2-draf, cpu-smollm2-ngra]
      ignore_errors: true
    - name: Fail in Ansible's own words
      ansible.builtin.fail: {msg: no luck}
"""


def played(folder: Path, *words: str, play: str = PLAY, status: int = 2, **environment: str) -> str:
    """What a run of `play` says, which ends with this status."""
    (folder / "play.yml").write_text(play)
    command = [str(Path(sys.executable).parent / "ansible-playbook"), str(folder / "play.yml"), "-i", "localhost,"]
    given = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    given |= {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8", "NO_COLOR": "1", **environment}
    done = subprocess.run(
        [*command, *words], cwd=ROOT, env=given, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.processes
def test_a_refusal_is_said_once_and_all_else_as_ansible_says_it(tmp_path: Path) -> None:
    said = played(tmp_path)
    for typo in ("cpu-smollm2-ngrm", "cpu-smollm2-draf", "cpu-smollm2-ngra"):
        assert said.count(f"no profile '{typo}'") == 1
        assert f"\nfound: no profile '{typo}'\n" in said
    assert said.count("do: write 'cpu-smollm2-ngram'") == 2
    assert said.count("code: no-such-profile") == 3
    assert "fatal: [localhost]: FAILED!\n...ignoring\n" in said
    assert "failed: [localhost] (item=cpu-smollm2-ngra)\n" in said
    assert "\033[" not in said
    # Only the failure that is not ours has its origin and its result.
    assert said.count("Origin: ") == 1
    assert "[ERROR]: Task failed: Action failed: no luck" in said
    assert "    msg: no luck\n" in said


@pytest.mark.processes
def test_with_v_ansible_says_it_too_and_colour_is_for_who_asks_for_it(tmp_path: Path) -> None:
    said = played(tmp_path, "-v", NO_COLOR="", ANSIBLE_FORCE_COLOR="1")
    assert said.count("Origin: ") == 4
    assert "[ERROR]: Task failed: Action failed: no profile 'cpu-smollm2-ngrm'" in said
    assert "code: no-such-profile" in said
    assert "\033[0;31mfound: no profile" in said


BRIEF = """
- hosts: localhost
  connection: local
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  gather_facts: false
  tasks:
    - name: Find all well
      ansible.builtin.command: "true"
      changed_when: false
    - name: Change something
      ansible.builtin.command: echo {{ item }}
      changed_when: true
      loop: [1, 2]
    - name: Change something
      ansible.builtin.command: "true"
      changed_when: true
"""


@pytest.mark.processes
def test_a_brief_run_has_a_line_for_each_name_that_changed_something(tmp_path: Path) -> None:
    said = played(tmp_path, play=BRIEF, status=0, ANSIBLE_STDOUT_CALLBACK="drafthouse.core.brief")
    assert said == "changed: Change something\n"


@pytest.mark.processes
def test_a_brief_run_says_a_failure_whole_and_with_v_all(tmp_path: Path) -> None:
    said = played(tmp_path, ANSIBLE_STDOUT_CALLBACK="drafthouse.core.brief")
    assert "TASK [Resolve a typo]" in said
    assert said.count("code: no-such-profile") == 3
    assert "PLAY RECAP" in said
    said = played(tmp_path, "-v", play=BRIEF, status=0, ANSIBLE_STDOUT_CALLBACK="drafthouse.core.brief")
    assert "TASK [Find all well]" in said
    assert "PLAY RECAP" in said


def test_nothing_is_kept_back_where_the_callback_with_our_lines_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = SimpleNamespace(result={"failed": True, "problems": [{"code": "x"}]})
    for enabled in ([], ["drafthouse.core.house"]):
        monkeypatch.setattr(constants, "CALLBACKS_ENABLED", enabled)
        assert terminal.CallbackModule()._is_said_elsewhere(refused) == bool(enabled)
