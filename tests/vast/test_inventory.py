"""The inventory of rented instances, read by the real `ansible-inventory` from a server that behaves as vast.ai's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cloud.vast import ledger as vast_ledger
from drafthouse.cloud.vast.client import VastClient
from drafthouse.profiles.workspace import ROOT
from tests.fakes.vast_server import ALWAYS, KEY, SECOND_KEY, Fault, Life, Running, vast_server

PROGRAM = str(Path(sys.executable).with_name("ansible-inventory"))
DEADLINE = 1795478400
LABEL = f"drafthouse-0123456789-{DEADLINE}"
BODY = {"image": "vllm/vllm-openai:v0.32.0", "disk": 100, "runtype": "ssh_direc ssh_proxy", "label": LABEL}
PLUGIN = "plugin: drafthouse.core.vastai\n"


def plain(data: Any) -> Any:
    """Data without the mark of what Ansible will never take for a template."""
    if isinstance(data, dict):
        if set(data) == {"__ansible_unsafe"}:
            return data["__ansible_unsafe"]
        return {name: plain(value) for name, value in data.items()}
    return [plain(value) for value in data] if isinstance(data, list) else data


@dataclass
class Read:
    """What ansible-inventory printed."""

    data: dict[str, Any]
    said: str

    @property
    def hosts(self) -> dict[str, Any]:
        return dict(self.data["_meta"]["hostvars"])

    def group(self, name: str) -> list[str]:
        return list(self.data.get(name, {}).get("hosts", []))

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.said.splitlines() if line.strip()]


@dataclass
class Desk:
    """A controller: its home, its ledger, and the server that it asks."""

    home: Path
    vast: Running

    def rented(self, label: str = LABEL, *, life: Life | None = None, key: str = KEY, known: bool = True) -> int:
        """Rent something, and let the ledger know it; return its number."""
        client = VastClient(key, self.vast.url)
        self.vast.market.lives = [life or Life(loading=0)]
        offer = next(number for number, row in sorted(self.vast.market.offers.items(), reverse=True) if row["rentable"])
        number = client.create(offer, {**BODY, "label": label})
        if known:
            ledger = self.home / "state" / vast_ledger.FILE
            rental = str(vast_ledger.id_of(label))
            vast_ledger.record(ledger, vast_ledger.INTENT, rental, deadline=DEADLINE, account=client.account)
            vast_ledger.record(ledger, vast_ledger.CREATED, rental, instance=number)
        return number

    def read(self, source: Path | str = "vastai", *words: str, **environ: str) -> Read:
        keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        given = {"HOME": str(self.home), "DRAFTHOUSE_STATE": str(self.home / "state"), "VAST_URL": self.vast.url}
        given |= {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "VAST_API_KEY": KEY, **environ}
        done = subprocess.run(
            [PROGRAM, "-i", str(source), "--list", *words], env={**keep, **given}, cwd=ROOT,
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert KEY not in done.stdout + done.stderr
        return Read(plain(json.loads(done.stdout)), done.stderr)

    def written(self, text: str) -> Path:
        path = self.home / "own.vastai.yml"
        path.write_text(PLUGIN + text)
        return path


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "state").mkdir(mode=0o700)
    with vast_server() as vast:
        yield Desk(tmp_path, vast)


def test_what_is_rented_from_here_becomes_a_host(desk: Desk) -> None:
    number = desk.rented()
    read = desk.read()
    # The account's other machines, one of them labelled as ours, are nobody's business.
    assert list(read.hosts) == [f"vast-{number}"]
    assert read.warnings == []
    host = read.hosts[f"vast-{number}"]
    assert (host["ansible_host"], host["ansible_user"]) == ("198.51.100.10", "root")
    assert host["drafthouse_instance"] == number and host["drafthouse_deadline"] == DEADLINE
    assert f'UserKnownHostsFile="{desk.home}/state/known_hosts"' in host["ansible_ssh_common_args"]
    for group in ("vastai", "label_" + LABEL.replace("-", "_"), "gpu_RTX_PRO_6000_WS", "status_running"):
        assert read.group(group) == [f"vast-{number}"], read.data
    # The folder's group_vars hold for it as for a static host.
    assert (host["drafthouse_manage_host"], host["drafthouse_runtime"]) == (False, "process")


def test_what_is_kept_is_read_once_a_minute(desk: Desk) -> None:
    number = desk.rented()
    assert list(desk.read().hosts) == list(desk.read().hosts) == [f"vast-{number}"]
    assert desk.vast.count("instances") == 1
    kept = list((desk.home / ".cache/drafthouse/inventory").iterdir())
    assert len(kept) == 1
    text = kept[0].read_text()
    assert KEY not in text and "jupyter_token" not in text and "198.51.100.10" in text
    os.utime(kept[0], (time.time() - 61,) * 2)
    desk.read()
    assert desk.vast.count("instances") == 2
    desk.read("vastai", "--flush-cache")
    assert desk.vast.count("instances") == 3


def test_what_is_rented_or_ended_is_seen_at_once(desk: Desk) -> None:
    first = desk.rented()
    assert list(desk.read().hosts) == [f"vast-{first}"]
    second = desk.rented("drafthouse-aaaaaaaaaa-1795478400")
    assert list(desk.read().hosts) == [f"vast-{first}", f"vast-{second}"]
    VastClient(KEY, desk.vast.url).destroy(first)
    vast_ledger.record(desk.home / "state" / vast_ledger.FILE, vast_ledger.DESTROYED, "0123456789", instance=first)
    assert list(desk.read().hosts) == [f"vast-{second}"]


def test_another_key_is_not_answered_from_what_was_kept(desk: Desk) -> None:
    desk.rented()
    assert len(desk.read().hosts) == 1
    assert desk.read(VAST_API_KEY=SECOND_KEY).hosts == {}


@pytest.mark.parametrize(
    ("text", "environ", "says"),
    [
        ("no key", {"VAST_API_KEY": ""}, "no vast.ai API key. Do: make one at https://console.vast.ai/"),
        ("no network", {"VAST_URL": "http://127.0.0.1:9"}, "no answer from http://127.0.0.1:9: ConnectionRefused"),
        ("wrong key", {"VAST_API_KEY": "vk-wrong"}, "HTTP 401: Invalid user key. Do: check"),
        ("wrong address", {"VAST_URL": "http://vast.example.com"}, "VAST_URL=http://vast.example.com. Do: unset"),
    ],
)
def test_one_line_says_why_and_static_hosts_still_work(
    desk: Desk, text: str, environ: dict[str, str], says: str
) -> None:
    folder = desk.home / "inventory"
    folder.mkdir()
    (folder / "hosts.yml").write_text("all: {hosts: {my-h100: {ansible_host: 203.0.113.7}}}\n")
    (folder / "vastai.yml").write_text((ROOT / "inventory/vastai/vastai.yml").read_text())
    desk.rented()
    read = desk.read(folder, **environ)
    assert list(read.hosts) == ["my-h100"]
    (line,) = read.warnings
    assert line.startswith("[WARNING]: vast.ai is not asked: ") and says in line
    assert "vk-wrong" not in read.said
    # Nothing is kept of a failure.
    assert set(desk.read(folder).hosts) > {"my-h100"}


def test_the_symlink_of_the_clone_without_a_key(desk: Desk) -> None:
    read = desk.read(VAST_API_KEY="")
    assert (read.hosts, len(read.warnings)) == ({}, 1)
    assert (ROOT / "vastai").resolve() == ROOT / "inventory" / "vastai"


@pytest.mark.parametrize("fault", [{"status": 500}, {"body": b"<html>"}])
def test_an_answer_that_is_none(desk: Desk, fault: dict[str, Any]) -> None:
    desk.rented()
    desk.vast.faults.append(Fault("instances", ALWAYS, **fault))
    read = desk.read()
    assert (read.hosts, len(read.warnings)) == ({}, 1)


def test_every_running_instance_where_that_is_wanted(desk: Desk) -> None:
    ours = desk.rented()
    loading = desk.rented("drafthouse-aaaaaaaaaa-1795478400", life=Life(stuck=True))
    everything = desk.read(desk.written(""))
    assert set(everything.hosts) == {f"vast-{number}" for number in (*desk.vast.others, ours)}
    some = desk.read(desk.written("label: ['train*', 'drafthouse-0*']\ncache: false\n"))
    assert set(some.hosts) == {f"vast-{desk.vast.others[0]}", f"vast-{ours}"}
    more = desk.read(desk.written("statuses: [loading]\ncache: false\n"))
    assert set(more.hosts) == {f"vast-{loading}"}


def test_constructed_as_ansibles_users_know_it(desk: Desk) -> None:
    number = desk.rented("drafthouse-{{ 7 * 6 }}", known=False)
    read = desk.read(
        desk.written(
            "label: [drafthouse-*]\nstrict: true\n"
            "keyed_groups:\n"
            "  - {key: vast_status, prefix: is}\n"
            "  - {key: vast_num_gpus | string, prefix: gpus, parent_group: sizes}\n"
            "groups: {cheap: drafthouse_price_per_hour < 100, dear: drafthouse_price_per_hour > 100}\n"
            "compose: {drafthouse_home: \"'/workspace/' ~ vast_num_gpus\"}\n"
        )
    )
    # The account's instance of another ledger is one more.
    names = sorted([f"vast-{desk.vast.others[2]}", f"vast-{number}"])
    assert [sorted(read.group(group)) for group in ("is_running", "gpus_1", "cheap", "dear")] == [
        names,
        names,
        names,
        [],
    ]
    assert read.data["sizes"]["children"] == ["gpus_1"]
    assert read.hosts[names[1]]["drafthouse_home"] == "/workspace/1"
    # A label is others' text, and no template.
    assert read.hosts[names[1]]["vast_label"] == "drafthouse-{{ 7 * 6 }}"


ACCOUNTS = "accounts:\n  - {name: home, key_env: VAST_API_KEY}\n  - {name: work, key_env: VAST_API_KEY_WORK}\n"


def test_several_accounts(desk: Desk) -> None:
    numbers = {"home": desk.rented(), "work": desk.rented("drafthouse-aaaaaaaaaa-1795478400", key=SECOND_KEY)}
    source = desk.written(ACCOUNTS + "rented_here: true\nkeyed_groups: [{key: vast_account, prefix: account}]\n")
    both = desk.read(source, VAST_API_KEY_WORK=SECOND_KEY)
    assert {name: both.group(f"account_{name}") for name in numbers} == {
        name: [f"vast-{number}"] for name, number in numbers.items()
    }
    one = desk.read(source)
    assert list(one.hosts) == [f"vast-{numbers['home']}"]
    (line,) = one.warnings
    assert "vast.ai is not asked (account work): no vast.ai API key" in line
    assert "export VAST_API_KEY_WORK" in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("accounts: [{name: home, key: vk-in-a-file}]\n", "found ['key', 'name'], needed name and key_env"),
        ("accounts: [home]\n", "found 'home', needed name and key_env"),
        (ACCOUNTS.replace("work, ", "home, "), "found the names home, home"),
        ("timeout: soon\n", "timeout"),
    ],
)
def test_options_that_are_wrong(desk: Desk, text: str, says: str) -> None:
    read = desk.read(desk.written(text))
    assert read.hosts == {} and says in read.said
    assert "vk-in-a-file" not in read.said
    assert desk.vast.asked == []


def test_a_home_that_nothing_can_be_kept_in(desk: Desk) -> None:
    number = desk.rented()
    (desk.home / ".cache").write_text("a file")
    assert list(desk.read().hosts) == [f"vast-{number}"]


def test_an_instance_without_an_address_is_no_host_yet(desk: Desk) -> None:
    number = desk.rented()
    instance = desk.vast.market.instances[number]
    instance.row |= {"ssh_host": None}
    instance.life.direct = False
    read = desk.read()
    assert read.hosts == {}
    # Whoever sees none would rent another one.
    (line,) = read.warnings
    assert f"instance {number} has no address for SSH yet" in line and f"make destroy ARGS={number}" in line
    instance.life.direct = True
    assert list(desk.read("vastai", "--flush-cache").hosts) == [f"vast-{number}"]
    instance.row["actual_status"] = "exited"
    (line,) = desk.read("vastai", "--flush-cache").warnings
    assert f"instance {number} is 'exited'" in line
