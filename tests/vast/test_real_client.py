"""The proof that the tests' server speaks vast.ai's protocol: the `vastai` package's own command line, pointed at it.

The package is installed once into an environment of its own below .cache/. Drafthouse itself does not use it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cloud.vast.client import VastClient
from drafthouse.host.env_recipe import EnvRecipe
from drafthouse.host.venv import ensure_env
from drafthouse.profiles.workspace import ROOT
from tests.fakes.vast_server import ALWAYS, Asked, Fault, Running, vast_server

PACKAGE = "vastai==1.9.1"
HOME = ROOT / ".cache" / "vast" / PACKAGE.replace("==", "-")
IMAGE = "vllm/vllm-openai:v0.32.0"
FILTERS = "gpu_name=H100_NVL num_gpus=1 cpu_arch=amd64 reliability>=0.98 direct_port_count>=2 cuda_vers>=12.9"
FILTERS += " disk_space>=200 gpu_ram>=90 inet_down>=200 driver_version>=575.51.03 compute_cap>=900"
# What the package's parser makes of them, in the words of Drafthouse's own queries.
QUERY: dict[str, Any] = {
    "verified": {"eq": True}, "external": {"eq": False}, "rentable": {"eq": True}, "gpu_name": {"eq": "H100 NVL"},
    "num_gpus": {"eq": 1}, "cpu_arch": {"eq": "amd64"}, "reliability": {"gte": 0.98}, "direct_port_count": {"gte": 2},
    "cuda_max_good": {"gte": 12.9}, "disk_space": {"gte": 200}, "gpu_ram": {"gte": 90000}, "inet_down": {"gte": 200},
    "driver_version": {"gte": 575051003}, "compute_cap": {"gte": 900}, "order": [["dph_total", "asc"]],
    "type": "on-demand", "allocated_storage": 200.0,
}  # fmt: skip
SEARCH = ["search", "offers", FILTERS, "-o", "dph_total", "--storage", "200"]
CREATE = ["--image", IMAGE, "--disk", "200", "--label", "drafthouse-a-1", "--ssh", "--direct", "--onstart-cmd", "true"]


@pytest.fixture(scope="session")
def program() -> Path:
    uv = Path(sys.executable).with_name("uv")
    ensure_env(EnvRecipe(str(HOME), [PACKAGE]), str(uv) if uv.exists() else shutil.which("uv"))
    return HOME / "bin" / "vastai"


@pytest.fixture
def vast() -> Iterator[Running]:
    with vast_server(page=2) as server:
        yield server


class Cli:
    """The package's command line, with a home of its own; ``raw`` returns the JSON it prints."""

    def __init__(self, program: Path, vast: Running, home: Path) -> None:
        self.program, self.vast, self.home = program, vast, home
        home.mkdir(exist_ok=True)

    def __call__(self, *words: str, key: str | None = None) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        given = {"HOME": str(self.home), "VAST_URL": self.vast.url, "VAST_API_KEY": key or self.vast.key}
        quiet = {"VASTAI_NO_UPDATE_CHECK": "1", "COLUMNS": "200"}
        return subprocess.run(
            [str(self.program), *words], env={**kept, **given, **quiet},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip

    def raw(self, *words: str) -> Any:
        done = self(*words, "--raw")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def cli(program: Path, vast: Running, tmp_path: Path) -> Cli:
    return Cli(program, vast, tmp_path / "home")


def last(vast: Running, route: str) -> Asked:
    return [one for one in vast.asked if one.route == route][-1]


def test_search(cli: Cli, vast: Running) -> None:
    theirs = cli.raw(*SEARCH)
    assert [offer["id"] for offer in theirs] == [8100014, 8200002, 8200001, 8200003]  # the first with dear traffic
    assert VastClient(vast.key, vast.url).offers(QUERY) == theirs
    # The two asked for the same thing, in the same words.
    one, other = (asked for asked in vast.asked if asked.route == "search")
    assert (one.method, one.path, sorted(one.body)) == (other.method, other.path, sorted(other.body))
    table = cli(*SEARCH, "--limit", "1")
    assert (table.returncode, table.stdout.count("H100_NVL")) == (0, 1), table.stderr
    assert "580.95.05" in table.stdout


def test_the_way_of_a_rental(cli: Cli, vast: Running) -> None:
    ours = VastClient(vast.key, vast.url)
    made = cli.raw("create", "instance", "8200002", *CREATE, "--env", "-p 8000:8000 -e TZ=UTC", "--cancel-unavail")
    number = made["new_contract"]
    assert made["success"] is True
    body = last(vast, "create").body
    assert {"image", "disk", "label", "env", "runtype", "onstart", "client_id", "cancel_unavail"} <= set(body)
    assert (body["runtype"], body["env"]) == ("ssh_direc ssh_proxy", {"-p 8000:8000": "1", "TZ": "UTC"})

    cli.raw("show", "instance", str(number))
    rows = cli.raw("show", "instances")
    assert [row["id"] for row in rows] == [row["id"] for row in ours.instances()] == [*vast.others, number]
    (mine,) = (row for row in rows if row["id"] == number)
    assert (mine["label"], mine["actual_status"], mine["extra_env"]["TZ"]) == ("drafthouse-a-1", "running", "UTC")
    assert vast.count("instances") == 4  # two pages for each of us
    table = cli("show", "instances")
    assert (table.returncode, "H100 NVL" in table.stdout) == (0, True), table.stderr

    port = mine["ports"]["22/tcp"][0]["HostPort"]
    assert cli("ssh-url", str(number)).stdout == f"ssh://root@198.51.100.10:{port}\n"
    assert cli("logs", str(number)).stdout.strip().endswith("server started")
    assert cli("stop", "instance", str(number)).stdout.startswith(f"stopping instance {number}")
    assert last(vast, "state").body == {"state": "stopped"}
    assert number in vast.billing()
    assert cli("destroy", "instance", str(number), "-y").stdout.startswith(f"destroying instance {number}")
    assert vast.billing() == vast.others
    # Gone: what it says of that is what our client must understand.
    assert "not found" in cli("show", "instance", str(number)).stderr
    assert "error 404" in cli("destroy", "instance", str(number), "-y").stderr


def test_ssh_keys(cli: Cli, vast: Running) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOnE me"
    assert cli("create", "ssh-key", key).returncode == 0
    assert [row["key"] for row in cli.raw("show", "ssh-keys")] == [key]
    assert [row["key"] for row in VastClient(vast.key, vast.url).ssh_keys()] == [key]
    assert cli("attach", "ssh", str(vast.others[0]), key).returncode == 0
    assert last(vast, "attach_key").body == {"ssh_key": key}


def test_what_it_says_of_refusals(cli: Cli, vast: Running) -> None:
    assert cli("create", "instance", "8200002", *CREATE).returncode == 0
    assert "error 410" in cli("create", "instance", "8200002", *CREATE).stderr
    assert "error 401: Invalid user key" in cli("show", "instances", key="vk-wrong").stderr
    reset = {"X-RateLimit-Reset": "1795478400"}
    vast.faults.append(Fault("search", ALWAYS, status=429, error="search_quota_exceeded", said="spent", headers=reset))
    assert "spent. Resets at 2026-11-24 00:00 UTC" in cli(*SEARCH).stderr
    assert vast.count("search") == 1  # not tried again


def test_it_rents_twice_where_an_answer_is_lost(cli: Cli, vast: Running) -> None:
    # Why Drafthouse has a client of its own: a lost answer is asked for again, and the offer is gone by then.
    vast.faults.append(Fault("create", cut=True, after=True))
    assert "error 410" in cli("create", "instance", "8200002", *CREATE).stderr
    assert vast.count("create") == 2
    assert len(vast.ours) == 1
