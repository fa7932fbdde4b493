"""Ansible fills in what our own files say, and never what a profile, the catalogue, a box or an engine says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.core.box_archive import archive_file
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.forms import FOLDER
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from tests.support.hostile import Clone, Sandbox, everywhere, put, whole_of
from tests.support.injection import check_unit

pytestmark = pytest.mark.processes

PROFILE = "cpu-smollm2-vllm-ngram"
EVIL = "{{ lookup('ansible.builtin.pipe', 'touch canary') }}{% set x = 7 * 7 %}{{ x }}"
ODD_HOME = "/it's & (new) | < > ! * ~ home"
# All that a playbook does with a resolved profile: show it, hand it on, loop over it, render from it.
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - drafthouse.core.resolve:
    - ansible.builtin.debug:
        msg: "{{ drafthouse_profile.title }} {{ drafthouse_profile.target.name }}"
    - ansible.builtin.debug:
        var: drafthouse_profile.engine
    # What a box, or an engine on it, answers.
    - ansible.builtin.command:
        argv: [cat, "{{ evil_file }}"]
      register: answer
      changed_when: false
    - ansible.builtin.debug:
        msg: "{{ answer.stdout }} {{ item }}"
      loop: "{{ [answer.stdout, drafthouse_profile.title] }}"
    - ansible.builtin.set_fact:
        handed_on: {title: "{{ drafthouse_profile.title }}", answer: "{{ answer.stdout }}"}
    - ansible.builtin.copy:
        content: "{{ handed_on | to_json }}"
        dest: "{{ out }}/handed_on.json"
        mode: "0600"
    - ansible.builtin.include_role:
        name: serve
        tasks_from: files.yml
      vars:
        serve_resolved: "{{ drafthouse_profile | combine(drafthouse_run) }}"
        serve_arms: {baseline: 8000, speculative: 8001}
"""
UNITS = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: last_good
        tasks_from: unit.yml
      vars:
        last_good_home: "{{ home }}"
        last_good_state: present
        _last_good_unit_file: "{{ out }}/serve.service"
        _last_good_wanted: "{{ out }}/wanted.service"
    - ansible.builtin.include_vars:
        file: "{{ root }}/roles/program/vars/main.yml"
    - ansible.builtin.include_vars:
        file: "{{ root }}/roles/last_good/vars/main.yml"
    - ansible.builtin.copy:
        content: "{{ item.content }}"
        dest: "{{ out }}/{{ item.name }}"
        mode: "0700"
      loop:
        - {name: watchdog.service, content: "{{ _program_unit_text }}"}
        - {name: start.sh, content: "{{ _last_good_start }}"}
      vars:
        program_folder: "{{ home }}/watchdog"
        program_about: does speculation still pay
        program_after: []
        program_kill_mode: process
        last_good_home: "{{ home }}"
"""


def play(folder: Path, clone: Path, text: str, **variables: Any) -> str:
    """Run plays on this machine from a clone; return what was shown."""
    (folder / "play.yml").write_text(text)
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"box": variables}}}))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE")}
    done = subprocess.run(
        ["ansible-playbook", str(folder / "play.yml"), "-i", str(folder / "hosts.yml")],
        cwd=clone, env={**environment, "ANSIBLE_ROLES_PATH": str(clone / "roles")},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def variables(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_remote_tmp": str(folder / "tmp"),
        "out": str(folder / "out"),
        **more,
    }


def test_no_text_of_a_profile_or_of_a_box_is_a_template(tmp_path: Path) -> None:
    clone, whole = Clone(tmp_path / "clone", PROFILE), whole_of(PROFILE, {})
    for name in ("src", "collections", "roles", "playbooks", "inventory"):
        shutil.copytree(ROOT / name, clone.root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "ansible.cfg", clone.root)
    for place in (("profile", "title"), ("profile", "article"), ("profile", "expect", "source")):
        whole = put(whole, place, lambda text: text + EVIL)
    for key in whole["models"]:
        whole = put(whole, ("models", key, "name"), lambda text: text + EVIL)
    target = whole["profile"]["target"]
    whole = put(whole, ("models", target, "served_name"), lambda text: text + EVIL)
    launch = whole["engines"]["vllm"]["launch"]
    launch["environment"] = everywhere(launch["environment"], EVIL)
    (tmp_path / "evil").write_text(EVIL)
    (tmp_path / "out").mkdir()
    site = {"manage_host": False, "runtime": "process", "home": str(tmp_path / "home"),
            "models_dir": str(tmp_path / "models"), "host": "127.0.0.1", "port": 8000}  # fmt: skip
    wanted = clone.resolved({**whole, "site": site})
    said = play(
        tmp_path, clone.root, PLAY,
        **variables(tmp_path, evil_file=str(tmp_path / "evil"), profile=PROFILE),
        **{f"drafthouse_{name}": value for name, value in site.items()},
    )  # fmt: skip
    assert not list(tmp_path.rglob("canary")) and not Path("canary").exists()
    assert EVIL in said and "}49" not in said
    assert yaml.safe_load((tmp_path / "out/handed_on.json").read_text()) == {"title": wanted["title"], "answer": EVIL}
    for arm in ("baseline", "speculative"):
        data = wanted["arms"][arm]
        (content,) = [file["content"] for file in data["files"] if file["path"] == "serve.sh"]
        assert (tmp_path / f"home/serve/{PROFILE}/{arm}/serve.sh").read_text() == content
        assert EVIL in content


def test_what_roles_write_with_a_home_of_odd_letters(tmp_path: Path) -> None:
    """A site's home is one word in units, and in the script that brings a server back."""
    box = Sandbox(tmp_path / "box")
    home = f"{tmp_path}{ODD_HOME}"
    (tmp_path / "out").mkdir()
    play(tmp_path, ROOT, UNITS, **variables(tmp_path, home=home, root=str(ROOT)))
    out = tmp_path / "out"
    check_unit((out / "serve.service").read_text(), [f"{home}/served/start.sh"])
    check_unit((out / "watchdog.service").read_text(), [f"{home}/watchdog/serve.sh"])
    python = Path(home) / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(box.recorder)
    called = box.run(["sh", str(out / "start.sh")])
    assert called.words == [archive_file(home), "restore", home], called.said


@pytest.mark.parametrize("letter", [*'"\\$`%{}:;', " #", "\n"])
def test_a_home_that_some_file_could_not_hold_is_refused(letter: str) -> None:
    assert FOLDER.fits(ODD_HOME)
    site = {**site_of_inventory("local"), "home": f"{ODD_HOME}{letter}x"}
    with pytest.raises(DrafthouseError) as caught:
        resolved_profile(PROFILE, site)
    assert {problem.where for problem in caught.value.problems} == {"site: home"}
