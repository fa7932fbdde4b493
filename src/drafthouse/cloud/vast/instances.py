"""Turn an instance of vast.ai into a host of an Ansible inventory. Pure functions.

Fields of an instance are untrusted: addresses are validated before they become arguments of ssh. Fields that may hold
a secret (the container's environment, its start script, its keys) never become variables.
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
# Statuses that never become "running"; the instance bills until it is destroyed.
TERMINAL = frozenset({"exited", "unknown", "offline"})
# Ports of the served API inside the container: the gateway's without and with a domain name, and the engine's.
API_PORTS = (8443, 443, 8000)
_ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?")


class HostVariables(TypedDict, total=False):
    """Ansible variables of an instance: Drafthouse reads ``drafthouse_*``; users can group hosts by ``vast_*``.

    Unknown values are left out.
    """

    ansible_user: str
    ansible_host: str  # for SSH, as the next two
    ansible_port: int
    ansible_ssh_common_args: str
    drafthouse_instance: int  # its number
    drafthouse_label: str
    drafthouse_deadline: int | None  # unix seconds, in the label
    drafthouse_vast_url: str  # of the API
    drafthouse_vast_key_env: str  # name of the variable with the account's key; set by the inventory plugin
    drafthouse_is_vm: bool  # a virtual machine, not a container
    drafthouse_price_per_hour: float | None
    drafthouse_currency: str  # of that price
    drafthouse_api_address: str  # at which the served API is reached from outside, as the next
    drafthouse_api_port: int
    drafthouse_lease: Lease  # set by the inventory plugin
    vast_account: str  # as in the ledger
    vast_label: str
    vast_status: str
    vast_status_message: str
    vast_gpu_name: str
    vast_num_gpus: int | None
    vast_gpu_memory_gb: float | None  # of one GPU
    vast_driver: str
    vast_cuda_max_good: float | None  # the newest CUDA version that the driver supports
    vast_disk_gb: float | None
    vast_down_cost_per_gb: float | None  # $, as the next
    vast_up_cost_per_gb: float | None
    vast_machine: int | None  # its id
    vast_geolocation: str  # such as "Sweden, SE"
    vast_image: str
    vast_ports: dict[str, int]  # port of the container, such as "8000/tcp" -> external port


def host_of(
    instance: Instance,
    *,
    account: str = "",
    url: str = "",
    known_hosts: str = "",
    api_ports: Sequence[int] = API_PORTS,
) -> HostVariables:
    """Ansible variables of an instance; without ``ansible_host`` if it has no SSH address yet.

    The API is at the first of ``api_ports`` that is mapped. ``known_hosts`` is a file of the controller with host keys
    by instance number, not by address: the next instance at the same address and port is another machine.
    """
    instance_id = int(instance["id"])
    label = _text(instance.get("label"))
    ports = outer_ports(instance)
    hostvars: HostVariables = {
        "ansible_user": "root",
        "drafthouse_instance": instance_id,
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
        "vast_num_gpus": _integer(instance.get("num_gpus")),
        "vast_gpu_memory_gb": _rounded(instance.get("gpu_ram"), 1, per=1000),
        "vast_driver": _text(instance.get("driver_version")),
        "vast_cuda_max_good": _rounded(instance.get("cuda_max_good"), 1),
        "vast_disk_gb": _rounded(instance.get("disk_space"), 1),
        "vast_down_cost_per_gb": _rounded(instance.get("inet_down_cost"), 5),
        "vast_up_cost_per_gb": _rounded(instance.get("inet_up_cost"), 5),
        "vast_machine": _integer(instance.get("machine_id")),
        "vast_geolocation": _text(instance.get("geolocation")),
        "vast_image": _text(instance.get("image_uuid")),
        "vast_ports": {inner: outer for inner, (_, outer) in ports.items()},
    }
    if address := ssh_address(instance):
        hostvars["ansible_host"], hostvars["ansible_port"] = address
    if known_hosts:
        hostvars["ansible_ssh_common_args"] = _ssh_arguments(instance_id, known_hosts)
    for port in api_ports:
        if f"{port}/tcp" in ports:
            hostvars["drafthouse_api_address"], hostvars["drafthouse_api_port"] = ports[f"{port}/tcp"]
            break
    return cast("HostVariables", {name: value for name, value in hostvars.items() if value is not None and value != ""})


def status_of(instance: Instance) -> str:
    """Status of an instance; "created" if the API gives none yet."""
    return _text(instance.get("actual_status")) or "created"


def is_vm(instance: Instance) -> bool:
    """True if an instance is a virtual machine (with systemd and Docker), not a container: by its image's name."""
    return "vastai/kvm" in _text(instance.get("image_uuid"))


def ssh_address(instance: Instance) -> tuple[str, int] | None:
    """Address and port for SSH: direct if port 22 is mapped, else vast.ai's proxy, which VMs lack; None for neither."""
    ports = outer_ports(instance)
    if "22/tcp" in ports:
        return ports["22/tcp"]
    address = _address(instance.get("ssh_host"))
    port = _port(instance.get("ssh_port"))
    if address is None or port is None or is_vm(instance):
        return None
    # For a container with Jupyter the proxy has two ports, the second for SSH (vastai 1.9.1, cli/commands/misc.py).
    return address, port + ("jupyter" in _text(instance.get("image_runtype")))


def outer_ports(instance: Instance) -> dict[str, tuple[str, int]]:
    """External (address, port) of each port of the container, such as ``8000/tcp``; {} until the API has them."""
    address = _address(instance.get("public_ipaddr"))
    ports = instance.get("ports")
    if isinstance(ports, str):
        ports = _json(ports)
    if address is None or not isinstance(ports, Mapping):
        return {}
    external = {}
    for inner, mapped in ports.items():
        if isinstance(mapped, list) and mapped and isinstance(mapped[0], Mapping):
            port = _port(mapped[0].get("HostPort"))
            if port is not None:
                external[str(inner)] = (address, port)
    return external


def chosen(
    hosts: Iterable[HostVariables],
    labels: Sequence[str],
    statuses: Collection[str],
    rental_ids: Collection[str] | None,
) -> list[HostVariables]:
    """Select hosts by label patterns and statuses, and by ``rental_ids`` unless that is None."""
    selected = []
    for host in hosts:
        label = str(host.get("vast_label", ""))
        if rental_ids is not None and id_of(label) not in rental_ids:
            continue
        if host.get("vast_status") in statuses and any(fnmatch.fnmatchcase(label, pattern) for pattern in labels):
            selected.append(host)
    return selected


def host_key_alias(instance_id: int) -> str:
    """Name under which known_hosts has the host key of an instance, in place of an address that is used again."""
    return f"vast-{instance_id}"


def _ssh_arguments(instance_id: int, known_hosts: str) -> str:
    """Options of ssh: the first host key of an instance is stored in ``known_hosts``, another one is refused later."""
    # ssh expands % in this option, and splits it at blanks unless it is quoted.
    file = known_hosts.replace("%", "%%")
    options = (
        f'UserKnownHostsFile="{file}"',
        f"HostKeyAlias={host_key_alias(instance_id)}",
        "StrictHostKeyChecking=accept-new",
    )
    return " ".join(f"-o {shlex.quote(option)}" for option in options)


def _address(value: object) -> str | None:
    """Host name or address; None for anything else, such as text with a leading dash, which ssh reads as an option."""
    text = _text(value)
    if not _ADDRESS.fullmatch(text):
        return None
    return text


def _port(value: object) -> int | None:
    port = _integer(value)
    if port is None or not 0 < port < 65536:
        return None
    return port


def _integer(value: object) -> int | None:
    """Integer of a number, whose fraction is cut off, or of a text with an integer; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def _rounded(value: object, digits: int, per: float = 1) -> float | None:
    """Rounded quotient of a number (or of its text) and ``per``; None if it is not a number, or out of range."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        quotient = float(value) / per
    except ValueError:
        return None
    if not abs(quotient) < 1e12:  # also excludes infinity and NaN
        return None
    return round(quotient, digits)


def _text(value: object) -> str:
    """Text without blanks around it, and with a blank for each control character; '' for any other type."""
    if not isinstance(value, str):
        return ""
    return "".join(letter if letter.isprintable() else " " for letter in value).strip()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
