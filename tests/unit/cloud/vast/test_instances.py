"""What becomes of an instance in the inventory, also of one whose description cannot be trusted."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest

from drafthouse.cloud.vast.instances import chosen, host_of, is_vm, outer_ports, ssh_address, status_of
from drafthouse.cloud.vast.rows import Instance
from tests.fakes.vast_market import Life, Market, offer
from tests.support.programs import needs

pytestmark = pytest.mark.processes

LABEL = "drafthouse-0123456789-1795478400"
MAPPED = {
    "22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "40122"}, {"HostIp": "::", "HostPort": "40122"}],
    "8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "40180"}],
}
REACHED = {"public_ipaddr": "198.51.100.10\n", "ssh_host": "ssh7.vast.ai", "ssh_port": 12345, "ports": MAPPED}


def instance(**values: Any) -> Any:
    """An instance as the server of the tests shows it, with ``values`` changed."""
    market = Market()
    body = {"image": "vllm/vllm-openai:v0.32.0", "label": LABEL, "disk": 100, "runtype": "ssh_direc ssh_proxy"}
    body["env"] = {"HF_TOKEN": "hf_secret", "-p 8000:8000": "1"}
    market.offers = {1: offer(1)}
    made = market.create(1, {**body, "onstart": "export SECRET=hf_secret"}, "someone")
    made.life = Life(loading=0)
    return {**market.look(made), **values}


def test_all_of_it() -> None:
    row = instance(**REACHED)
    found = host_of(row, account="work", url="https://console.vast.ai", known_hosts="/a b/known_hosts")
    arguments = shlex.split(found.pop("ansible_ssh_common_args"))
    assert arguments[1::2] == [
        'UserKnownHostsFile="/a b/known_hosts"', f"HostKeyAlias=vast-{row['id']}", "StrictHostKeyChecking=accept-new"
    ]  # fmt: skip
    assert found.pop("vast_ports") == {"22/tcp": 40122, "8000/tcp": 40180}
    assert found == {
        "ansible_host": "198.51.100.10", "ansible_port": 40122, "ansible_user": "root",
        "drafthouse_api_address": "198.51.100.10", "drafthouse_api_port": 40180,
        "drafthouse_instance": row["id"], "drafthouse_label": LABEL, "drafthouse_deadline": 1795478400,
        "drafthouse_vast_url": "https://console.vast.ai", "drafthouse_is_vm": False,
        "drafthouse_price_per_hour": 2.0208, "drafthouse_currency": "USD",
        "vast_account": "work", "vast_label": LABEL, "vast_status": "running",
        "vast_status_message": "success, running image/ssh", "vast_gpu_name": "H100 NVL", "vast_num_gpus": 1,
        "vast_gpu_memory_gb": 95.8, "vast_driver": "580.95.05", "vast_cuda_max_good": 13.0, "vast_disk_gb": 100.0,
        "vast_down_cost_per_gb": 0.002, "vast_up_cost_per_gb": 0.002, "vast_machine": 40001,
        "vast_geolocation": "Sweden, SE", "vast_image": "vllm/vllm-openai:v0.32.0",
    }  # fmt: skip


@needs("ssh")
def test_ssh_reads_the_arguments_as_they_are_meant() -> None:
    words = shlex.split(host_of({"id": 7}, known_hosts="/a b/100%/known_hosts")["ansible_ssh_common_args"])
    read = subprocess.run(["ssh", "-G", *words, "nobody"], capture_output=True, text=True, check=True).stdout
    assert {"hostkeyalias vast-7", "stricthostkeychecking accept-new"} < set(read.splitlines())
    assert 'userknownhostsfile "/a b/100%/known_hosts"' in read or "userknownhostsfile /a b/100%/known_hosts" in read


def test_no_secret_of_the_container_becomes_a_variable() -> None:
    row = instance(instance_api_key="ck-secret", jupyter_token="jt-secret", **REACHED)
    assert "secret" in str(row)
    assert "secret" not in str(host_of(row))


@pytest.mark.parametrize(
    ("values", "address"),
    [
        (REACHED, ("198.51.100.10", 40122)),
        ({**REACHED, "ports": {}}, ("ssh7.vast.ai", 12345)),
        ({**REACHED, "ports": None}, ("ssh7.vast.ai", 12345)),
        ({**REACHED, "ports": {"22/tcp": None}}, ("ssh7.vast.ai", 12345)),
        ({**REACHED, "ports": {"22/tcp": []}}, ("ssh7.vast.ai", 12345)),
        ({**REACHED, "ports": {"22/tcp": [{}]}}, ("ssh7.vast.ai", 12345)),
        ({**REACHED, "ports": {"22/tcp": [{"HostPort": "99999"}]}}, ("ssh7.vast.ai", 12345)),
        ({**REACHED, "ports": '{"22/tcp": [{"HostPort": 40122}]}'}, ("198.51.100.10", 40122)),
        ({**REACHED, "ports": "{"}, ("ssh7.vast.ai", 12345)),
        ({**REACHED, "public_ipaddr": None}, ("ssh7.vast.ai", 12345)),
        ({**REACHED, "public_ipaddr": "-oProxyCommand=true"}, ("ssh7.vast.ai", 12345)),
        ({**REACHED, "public_ipaddr": "2001:db8::7"}, ("2001:db8::7", 40122)),
        ({**REACHED, "ports": {}, "image_runtype": "jupyter_direc ssh_direc ssh_proxy"}, ("ssh7.vast.ai", 12346)),
        ({**REACHED, "image_runtype": "jupyter_direc ssh_direc ssh_proxy"}, ("198.51.100.10", 40122)),
        ({**REACHED, "ports": {}, "ssh_host": None}, None),
        ({**REACHED, "ports": {}, "ssh_host": "-oProxyCommand=true"}, None),
        ({**REACHED, "ports": {}, "ssh_host": "a b"}, None),
        ({**REACHED, "ports": {}, "ssh_port": None}, None),
        ({**REACHED, "ports": {}, "ssh_port": "x"}, None),
        ({**REACHED, "ports": {}, "image_uuid": "docker.io/vastai/kvm:ubuntu_terminal"}, None),
    ],
)
def test_the_address_for_ssh(values: dict[str, Any], address: tuple[str, int] | None) -> None:
    row = instance(**values)
    assert ssh_address(row) == address
    assert (host_of(row).get("ansible_host"), host_of(row).get("ansible_port")) == (address or (None, None))


@pytest.mark.parametrize(
    ("ports", "outer"),
    [
        ({"8000/tcp": 1}, 1),
        ({"8443/tcp": 2, "8000/tcp": 1}, 2),
        ({"443/tcp": 3, "8000/tcp": 1}, 3),
        ({"22/tcp": 4}, None),
    ],
)
def test_the_port_of_the_api(ports: dict[str, int], outer: int | None) -> None:
    row = instance(**{**REACHED, "ports": {name: [{"HostPort": str(port)}] for name, port in ports.items()}})
    found = host_of(row)
    assert found.get("drafthouse_api_port") == outer
    assert ("drafthouse_api_address" in found) == (outer is not None)
    assert host_of(row, api_ports=[]).get("drafthouse_api_port") is None


def test_one_that_nothing_is_known_of() -> None:
    bare: Instance = {"id": 7}
    assert host_of(bare) == {
        "ansible_user": "root", "drafthouse_instance": 7, "drafthouse_is_vm": False, "drafthouse_currency": "USD",
        "vast_status": "created", "vast_ports": {},
    }  # fmt: skip
    assert (status_of(bare), outer_ports(bare)) == ("created", {})


@pytest.mark.parametrize("wrong", [True, [], {}, "many", float("nan"), float("inf"), None, "1e999", object()])
def test_values_that_are_no_numbers(wrong: Any) -> None:
    columns = ("dph_total", "num_gpus", "gpu_ram", "cuda_max_good", "disk_space", "inet_down_cost", "machine_id")
    row: Any = {"id": 7, **dict.fromkeys(columns, wrong), "label": wrong, "gpu_name": 3, "public_ipaddr": wrong}
    found = host_of(row)
    assert set(found) <= {
        "ansible_user", "drafthouse_instance", "drafthouse_is_vm", "drafthouse_currency", "vast_status", "vast_ports",
        "drafthouse_label", "vast_label",
    }  # fmt: skip


def test_text_that_moves_a_cursor() -> None:
    found = host_of({"id": 7, "label": " \x1b[2Jmine\r\n", "status_msg": "a\nb" + "x" * 500})
    assert found["vast_label"] == "[2Jmine"
    assert found["vast_status_message"].startswith("a b") and len(found["vast_status_message"]) == 200


@pytest.mark.parametrize(
    ("image", "vm"),
    [("docker.io/vastai/kvm:@vastai-automatic-tag", True), ("vastai/base-image", False), (None, False)],
)
def test_virtual_machines(image: str | None, vm: bool) -> None:
    assert is_vm({"id": 1, "image_uuid": image}) is vm


HOSTS: Any = [
    {"vast_label": LABEL, "vast_status": "running"},
    {"vast_label": "drafthouse-ffffffffff-1795478400", "vast_status": "running"},
    {"vast_label": "training", "vast_status": "running"},
    {"vast_status": "running"},
    {"vast_label": "drafthouse-0123456789-1795478400-more", "vast_status": "running"},
    {"vast_label": LABEL, "vast_status": "loading"},
]


@pytest.mark.parametrize(
    ("labels", "statuses", "known", "places"),
    [
        (["*"], ["running"], None, [0, 1, 2, 3, 4]),
        (["*"], ["running", "loading"], None, [0, 1, 2, 3, 4, 5]),
        (["drafthouse-*"], ["running"], None, [0, 1, 4]),
        (["train*", ""], ["running"], None, [2, 3]),
        (["*"], ["running"], ["0123456789"], [0]),
        (["training"], ["running"], ["0123456789"], []),
        (["*"], ["running"], [], []),
        ([], ["running"], None, []),
    ],
)
def test_which_are_chosen(labels: list[str], statuses: list[str], known: list[str] | None, places: list[int]) -> None:
    assert chosen(HOSTS, labels, statuses, known) == [HOSTS[place] for place in places]
