"""An instance of vast.ai as a host of an Ansible inventory. Pure.

What the API says of an instance is others' text: addresses are looked at before ssh gets them as an argument, and what
may hold a secret (the container's environment, its start script, its keys) never becomes a variable.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ...cloud.deadline import deadline_of
from .ledger import id_of

if TYPE_CHECKING:
    from drafthouse.cloud.vast.clock import Lease
    from drafthouse.cloud.vast.rows import Instance

RUNNING = "running"
# No way leads on from these; only destroying ends the bill.
TERMINAL = frozenset({"exited", "unknown", "offline"})
# The API's port inside: the gateway's, the gateway's where it has a name, the engine's own.
API_PORTS = (8443, 443, 8000)
_ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?")


class HostVariables(TypedDict, total=False):
    """The Ansible variables of an instance: ``drafthouse_*`` are what the house reads, ``vast_*`` for people's groups.

    What is not known is not there.
    """

    ansible_user: str
    ansible_host: str
    ansible_port: int
    ansible_ssh_common_args: str
    drafthouse_instance: int
    drafthouse_label: str
    drafthouse_deadline: int | None
    drafthouse_vast_url: str
    drafthouse_vast_key_env: str
    drafthouse_is_vm: bool
    drafthouse_price_per_hour: float | None
    drafthouse_currency: str
    drafthouse_api_address: str
    drafthouse_api_port: int
    drafthouse_lease: Lease
    vast_account: str
    vast_label: str
    vast_status: str
    vast_status_message: str
    vast_gpu_name: str
    vast_num_gpus: int | None
    vast_gpu_memory_gb: float | None
    vast_driver: str
    vast_cuda_max_good: float | None
    vast_disk_gb: float | None
    vast_down_cost_per_gb: float | None
    vast_up_cost_per_gb: float | None
    vast_machine: int | None
    vast_geolocation: str
    vast_image: str
    vast_ports: dict[str, int]


def host_of(
    instance: Instance,
    *,
    account: str = "",
    url: str = "",
    known_hosts: str = "",
    api_ports: Sequence[int] = API_PORTS,
) -> HostVariables:
    """The Ansible variables of an instance; without `ansible_host` where it has no address for SSH yet.

    ``known_hosts`` is the file of the controller in which the keys of rented machines are kept, by the number of the
    instance: the next one at the same address and port is another machine.
    """
    number = int(instance["id"])
    label = _text(instance.get("label"))
    ports = outer_ports(instance)
    found: HostVariables = {
        "ansible_user": "root",
        "drafthouse_instance": number,
        "drafthouse_label": label,
        "drafthouse_deadline": deadline_of(label),
        "drafthouse_vast_url": url,
        "drafthouse_is_vm": is_vm(instance),
        "drafthouse_price_per_hour": _rounded(instance.get("dph_total"), 4),
        "drafthouse_currency": "USD",
        "vast_account": account,
        "vast_label": label,
        "vast_status": status_of(instance),
        "vast_status_message": _text(instance.get("status_msg"))[:200],
        "vast_gpu_name": _text(instance.get("gpu_name")),
        "vast_num_gpus": _whole(instance.get("num_gpus")),
        "vast_gpu_memory_gb": _rounded(instance.get("gpu_ram"), 1, per=1000),
        "vast_driver": _text(instance.get("driver_version")),
        "vast_cuda_max_good": _rounded(instance.get("cuda_max_good"), 1),
        "vast_disk_gb": _rounded(instance.get("disk_space"), 1),
        "vast_down_cost_per_gb": _rounded(instance.get("inet_down_cost"), 5),
        "vast_up_cost_per_gb": _rounded(instance.get("inet_up_cost"), 5),
        "vast_machine": _whole(instance.get("machine_id")),
        "vast_geolocation": _text(instance.get("geolocation")),
        "vast_image": _text(instance.get("image_uuid")),
        "vast_ports": {inner: outer for inner, (_, outer) in ports.items()},
    }
    if reached := ssh_address(instance):
        found["ansible_host"], found["ansible_port"] = reached
    if known_hosts:
        found["ansible_ssh_common_args"] = _ssh_arguments(number, known_hosts)
    for port in api_ports:
        if f"{port}/tcp" in ports:
            found["drafthouse_api_address"], found["drafthouse_api_port"] = ports[f"{port}/tcp"]
            break
    return cast("HostVariables", {name: value for name, value in found.items() if value is not None and value != ""})


def status_of(instance: Instance) -> str:
    """What an instance does; one that nothing is known of yet is being created."""
    return _text(instance.get("actual_status")) or "created"


def is_vm(instance: Instance) -> bool:
    """Tell whether an instance is a whole machine (systemd, Docker) and no container: vast.ai's VMs have its image."""
    return "vastai/kvm" in _text(instance.get("image_uuid"))


def ssh_address(instance: Instance) -> tuple[str, int] | None:
    """Address and port for SSH: direct where it is mapped, otherwise vast.ai's proxy, which VMs do not have."""
    ports = outer_ports(instance)
    if "22/tcp" in ports:
        return ports["22/tcp"]
    address, port = _address(instance.get("ssh_host")), _port(instance.get("ssh_port"))
    if address is None or port is None or is_vm(instance):
        return None
    # The proxy gives a container with Jupyter two ports, and SSH is the second (vastai 1.9.1, cli/commands/misc.py).
    return address, port + ("jupyter" in _text(instance.get("image_runtype")))


def outer_ports(instance: Instance) -> dict[str, tuple[str, int]]:
    """Where each port (`8000/tcp`) is reached from outside; nothing while the API does not know it."""
    address, ports = _address(instance.get("public_ipaddr")), instance.get("ports")
    if isinstance(ports, str):
        ports = _json(ports)
    if address is None or not isinstance(ports, Mapping):
        return {}
    found = {}
    for inner, mapped in ports.items():
        if isinstance(mapped, list) and mapped and isinstance(mapped[0], Mapping):
            port = _port(mapped[0].get("HostPort"))
            if port is not None:
                found[str(inner)] = (address, port)
    return found


def chosen(
    hosts: Iterable[HostVariables],
    labels: Sequence[str],
    statuses: Collection[str],
    known: Collection[str] | None,
) -> list[HostVariables]:
    """The hosts with one of the labels (patterns) and statuses; with ``known`` only rentals of those ids."""
    found = []
    for host in hosts:
        label = str(host.get("vast_label", ""))
        if known is not None and id_of(label) not in known:
            continue
        if host.get("vast_status") in statuses and any(fnmatch.fnmatchcase(label, pattern) for pattern in labels):
            found.append(host)
    return found


def host_key_alias(number: int) -> str:
    """The name under which an instance's host key is kept: the next box at its address is another machine."""
    return f"vast-{number}"


def _ssh_arguments(number: int, known_hosts: str) -> str:
    # ssh takes a list of files here, and % for a token.
    file = known_hosts.replace("%", "%%")
    options = (
        f'UserKnownHostsFile="{file}"',
        f"HostKeyAlias={host_key_alias(number)}",
        "StrictHostKeyChecking=accept-new",
    )
    return " ".join(f"-o {shlex.quote(option)}" for option in options)


def _address(value: object) -> str | None:
    """A name or address, None for anything else: ssh would take one that begins with a dash for an option."""
    text = _text(value)
    if not _ADDRESS.fullmatch(text):
        return None
    return text


def _port(value: object) -> int | None:
    port = _whole(value)
    if port is None or not 0 < port < 65536:
        return None
    return port


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def _rounded(value: object, digits: int, per: float = 1) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value) / per
    except ValueError:
        return None
    if not abs(number) < 1e12:  # infinity and NaN, too
        return None
    return round(number, digits)


def _text(value: object) -> str:
    """A text without the blanks that the API leaves around some, and without what moves a terminal's cursor."""
    if not isinstance(value, str):
        return ""
    return "".join(letter if letter.isprintable() else " " for letter in value).strip()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
