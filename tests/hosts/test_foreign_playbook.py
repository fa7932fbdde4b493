"""Somebody's own playbook, in a folder of his own: the collection is installed, its roles are used by their names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.hosts.hosts import BIN, Host, Lab

PLAYBOOK = """\
- name: My boxes
  hosts: all
  become: true
  tasks:
    - name: Docker
      ansible.builtin.import_role: {name: drafthouse.core.container_engine}
      vars: {container_engine_source: distribution, container_engine_log_max_size: 20m}
    - name: The port
      ansible.builtin.import_role: {name: drafthouse.core.firewall}
      vars: {firewall_port: 8000, firewall_allow_cidrs: [192.0.2.0/24]}
    - name: Python
      ansible.builtin.import_role: {name: drafthouse.core.box_env}
      vars: {box_env_home: /opt/mine}
    - name: The driver
      ansible.builtin.import_role: {name: drafthouse.core.nvidia_driver}
      tags: [never, driver]
"""


def typed(folder: Path, *words: str) -> str:
    theirs = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE", "DRAFT"))}
    theirs |= {"ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"), "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}
    program, *rest = words
    done = subprocess.run(
        [str(BIN / program), *rest], cwd=folder, env=theirs, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    return done.stdout


@pytest.mark.soak
def test_a_foreign_playbook_uses_the_roles(lab: Lab, workstation: Host, tmp_path: Path) -> None:
    builder = [sys.executable, str(ROOT / "scripts" / "collection.py"), "--to", str(tmp_path)]
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    made = subprocess.run(builder, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    typed(tmp_path, "ansible-galaxy", "collection", "install", "--offline", made, "-p", "collections")
    (tmp_path / "mine.yml").write_text(PLAYBOOK)
    words = ("ansible-playbook", "-i", str(lab.inventory([workstation])), "mine.yml")
    typed(tmp_path, *words)
    assert "changed=0 " in typed(tmp_path, *words)
    outside = workstation.backend()
    assert outside.service("docker").is_running
    assert outside.file("/etc/docker/daemon.json").contains("20m")
    assert outside.file("/opt/mine/venv/bin/python").exists
    assert "192.0.2.0/24" in outside.check_output("iptables-save")
