"""A rented box that does not answer: what the recap says of it, and what is ended behind the run. No container."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drafthouse.cloud.vast.client import VastClient
from drafthouse.cloud.vast.ledger import CREATED, FILE, INTENT, label_of, new_id, record
from drafthouse.cloud.vast.local_state import state_folder
from drafthouse.profiles.workspace import ROOT
from tests.fakes.vast_server import Running, vast_server
from tests.hosts.hosts import BIN


@pytest.fixture
def vast() -> Iterator[Running]:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: whoever connects is refused
        port = str(nobody.getsockname()[1])
        shown = {"public_ipaddr": "127.0.0.1", "ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": port}]}}
        with vast_server(on_create=lambda instance: shown) as server:
            yield server


def rented(vast: Running, state: Path, offer: int) -> int:
    ledger = state_folder({"DRAFTHOUSE_STATE": str(state)}) / FILE
    client, one, deadline = VastClient(vast.key, vast.url), new_id(), int(time.time()) + 3600
    record(ledger, INTENT, one, deadline=deadline, account=client.account, profile="p", price_per_hour=2.1)
    body = {"client_id": "me", "image": "x", "disk": 10, "runtype": "ssh_direc ssh_proxy"}
    number = client.create(offer, {**body, "label": label_of(one, deadline)})
    record(ledger, CREATED, one, instance=number)
    for _ in range(3):  # until it runs
        client.instance(number)
    return number


def play(vast: Running, state: Path, policy: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "VAST_API_KEY": vast.key, "VAST_URL": vast.url,
        "DRAFTHOUSE_STATE": str(state), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1",
        "XDG_CACHE_HOME": str(state.parent / "cache"), "HOME": str(state.parent),
    }  # fmt: skip
    command = ["scripts/drafthouse", "rented", "--destroy", policy, "--"]
    command += [
        "ansible-playbook",
        "site.yml",
        "--tags",
        "preflight",
        "-i",
        "vastai",
        "-e",
        "profile=cpu-smollm2-ngram",
    ]
    return subprocess.run(
        [*command, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False
    )


def test_the_recap_says_what_became_of_it(vast: Running, tmp_path: Path) -> None:
    number = rented(vast, tmp_path / "state", 8200002)
    done = play(vast, tmp_path / "state", "on-success")
    assert done.returncode == 4, done.stdout + done.stderr  # Ansible's own: out of reach
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"vast-{number}: lost in ")]
    assert "Gather box facts and resolve the profile" in line
    assert "vast.ai says 'running'" in line
    assert f"it is still billing: make destroy ARGS={number}" in line
    assert "DESTROY=on-success (the run did not succeed): still billing" in done.stdout
    assert number in vast.billing()
    assert vast.key not in done.stdout + done.stderr


def test_only_the_boxes_of_the_run_are_ended(vast: Running, tmp_path: Path) -> None:
    first, second = (rented(vast, tmp_path / "state", offer) for offer in (8200002, 8200001))
    done = play(vast, tmp_path / "state", "always", "--limit", f"vast-{second},localhost")
    assert done.returncode == 4, done.stdout + done.stderr
    assert f"destroyed: instance {second}" in done.stdout
    assert first in vast.billing()
    assert second not in vast.billing()
    assert set(vast.others) <= set(vast.instances)


def test_a_run_on_a_box_of_another_cloud_ends_none(vast: Running, tmp_path: Path) -> None:
    number = rented(vast, tmp_path / "state", 8200002)
    other = tmp_path / "hosts.yml"
    other.write_text("all: {hosts: {other: {ansible_host: 127.0.0.1, ansible_port: 1}}}\n")
    done = play(vast, tmp_path / "state", "always", "-i", str(other), "--limit", "other,localhost")
    assert done.returncode == 4, done.stdout + done.stderr
    assert number in vast.billing()
