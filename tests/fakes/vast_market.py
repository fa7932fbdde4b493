"""What stands behind the server that behaves as vast.ai's: offers, instances and their lives, keys, and who is billed.

Field names and their units are those that the `vastai` package 1.9.1 reads (data/offer.py, data/instance.py,
api/query.py) and that vast.ai's API reference shows. Time does not run here: an instance goes on a step each time that
somebody looks at it, so no test waits for a clock.
"""

from __future__ import annotations

import copy
import itertools
import operator
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KEY = "vk-account-0f1e2d3c4b5a69788796a5b4c3d2e1f0"
SECOND_KEY = "vk-second-account-99887766554433221100aabbccdd"
LABEL_OF_ANOTHER_LEDGER = "drafthouse-fedcba9876543210-4102444800"
ONSTART_LIMIT = 4048  # characters, as the API refuses longer ones
MOST_OFFERS = 64  # of one search, whatever its `limit`
PAGE = 25
HOURS_OF_MONTH = 30 * 24

# The fields a search may name: those of the package (api/query.py, offers_fields), and what it always sends.
_FIELDS = """
bw_nvlink compute_cap cpu_arch cpu_cores cpu_cores_effective cpu_ghz cpu_ram cuda_max_good datacenter direct_port_count
driver_version disk_bw disk_space dlperf dlperf_per_dphtotal dph_total duration external flops_per_dphtotal gpu_arch
gpu_display_active gpu_frac gpu_mem_bw gpu_name gpu_ram gpu_total_ram gpu_max_power gpu_max_temp has_avx host_id id
inet_down inet_down_cost inet_up inet_up_cost machine_id min_bid mobo_name num_gpus pci_gen pcie_bw reliability rentable
rented storage_cost static_ip total_flops ubuntu_version verification verified vms_enabled geolocation cluster_id score
"""
FIELDS = frozenset(_FIELDS.split())
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "neq": operator.ne, "gt": operator.gt, "gte": operator.ge, "lt": operator.lt,
    "lte": operator.le, "in": lambda value, wanted: value in wanted, "notin": lambda value, wanted: value not in wanted,
}  # fmt: skip


class Refused(Exception):
    """What the API answers instead: an HTTP status, its word for it, and a sentence."""

    def __init__(self, status: int, error: str, said: str) -> None:
        self.status, self.error, self.said = status, error, said
        super().__init__(error)


@dataclass
class Life:
    """How an instance fares after it was created, in looks at it (a read of it, alone or in a list)."""

    loading: int = 1  # looks that find it loading before it runs
    stuck: bool = False  # it loads for ever
    dies_after: int | None = None  # looks at it running, after which it is ...
    dies_as: str = "exited"
    no_ports_for: int = 0  # looks that find it running without its ports
    direct: bool = True  # otherwise there is only the SSH proxy, whatever was asked for
    unlisted_for: int = 0  # reads of the list that do not have it yet


@dataclass
class Instance:
    """An instance, what is to become of it, and to whom it belongs."""

    row: dict[str, Any]
    owner: str
    life: Life
    container_key: str
    ports: dict[str, list[dict[str, str]]]
    body: dict[str, Any] = field(default_factory=dict)
    offer: int = 0
    looks: int = 0
    running: int = 0
    listed: int = 0
    ready: threading.Event = field(default_factory=threading.Event)  # the test's container is up


def offer(number: int, **values: Any) -> dict[str, Any]:
    """An offer of one H100 NVL that nothing is wrong with, but for ``values``."""
    gpus = int(values.get("num_gpus", 1))
    row = {
        "id": number, "ask_contract_id": number, "bundle_id": number + 5000, "machine_id": number % 1000 + 40000,
        "host_id": number % 100 + 7000, "num_gpus": gpus, "gpu_name": "H100 NVL", "gpu_ram": 95830,
        "gpu_total_ram": values.get("gpu_ram", 95830) * gpus, "gpu_frac": 0.125 * gpus, "gpu_arch": "nvidia",
        "gpu_lanes": 16, "gpu_mem_bw": 3300.1, "gpu_max_power": 400.0, "gpu_max_temp": 87.0,
        "gpu_display_active": False, "compute_cap": 900, "cuda_max_good": 13.0, "driver_version": "580.95.05",
        "bw_nvlink": 0.0, "cpu_name": "AMD EPYC 9354", "cpu_arch": "amd64", "cpu_cores": 128,
        "cpu_cores_effective": 16.0, "cpu_ghz": 3.2, "cpu_ram": 773000, "disk_space": 900.0, "disk_bw": 4100.5,
        "disk_name": "nvme", "inet_up": 1800.0, "inet_down": 3000.0, "inet_up_cost": 0.002, "inet_down_cost": 0.002,
        "direct_port_count": 100, "pci_gen": 5.0, "pcie_bw": 50.2, "mobo_name": "H13SSL", "ubuntu_version": "22.04",
        "has_avx": 1, "dph_base": 2.0, "min_bid": 1.1, "storage_cost": 0.15, "dlperf": 250.0, "total_flops": 60.0,
        "score": 300.0, "rentable": True, "rented": False, "external": False, "datacenter": True,
        "reliability": 0.995, "verification": "verified", "static_ip": True, "vms_enabled": False,
        "geolocation": "Sweden, SE", "public_ipaddr": "198.51.100.10", "hosting_type": 1, "cluster_id": None,
        "duration": 30 * 86400.0, "logo": "/static/logos/vastai_small2.png", "webpage": None,
    } | values  # fmt: skip
    row["driver_vers"] = driver_number(str(row["driver_version"]))
    row["verified"] = row["verification"] == "verified"
    return row


def driver_number(version: str) -> int:
    """580095005 for 580.95.05, as the API counts drivers."""
    return int("".join(part.zfill(3) for part in version.split(".")))


def usual_offers() -> list[dict[str, Any]]:
    """The market of the tests: a few right ones, and for each filter one that is cheaper and wrong."""
    wrong: list[dict[str, Any]] = [
        {"cpu_arch": "arm64"}, {"verification": "unverified"}, {"reliability": 0.71}, {"direct_port_count": 0},
        {"cuda_max_good": 12.4}, {"driver_version": "535.86.05"}, {"disk_space": 60.0}, {"inet_down": 45.0},
        {"num_gpus": 2}, {"rentable": False}, {"gpu_ram": 40960}, {"compute_cap": 800}, {"external": True},
        {"inet_down_cost": 0.09, "dph_base": 1.95},
    ]  # fmt: skip
    rows = [offer(8100001 + place, **({"dph_base": 0.9} | values)) for place, values in enumerate(wrong)]
    rows += [offer(8200001, dph_base=2.31), offer(8200002, dph_base=2.12), offer(8200003, dph_base=2.66)]
    kinds: list[tuple[str, int, int, float, int]] = [
        ("H100 SXM", 81559, 900, 2.2, 1), ("H100 PCIE", 81559, 900, 1.9, 1), ("H200", 143771, 900, 3.1, 1),
        ("B200", 183359, 1000, 4.4, 1), ("RTX PRO 6000 WS", 97887, 1200, 1.1, 1),
        ("RTX PRO 6000 S", 97887, 1200, 1.2, 1),
        ("A100 SXM4", 81920, 800, 4.0, 4), ("RTX 4090", 24564, 890, 0.35, 1), ("RTX 5090", 32607, 1200, 0.5, 1),
    ]  # fmt: skip
    for place, (name, memory, capability, price, gpus) in enumerate(kinds):
        for more in (0.0, 0.2):
            number = 8300001 + place * 10 + int(more > 0)
            values = {"gpu_name": name, "gpu_ram": memory, "compute_cap": capability, "num_gpus": gpus}
            rows.append(offer(number, **values, dph_base=price + more))
    rows.append(offer(8400001, gpu_name="RTX PRO 6000 WS", gpu_ram=97887, compute_cap=1200, vms_enabled=True))
    return rows


def priced(row: Mapping[str, Any], storage: float, kind: str = "on-demand") -> dict[str, Any]:
    """An offer with its prices for so many GB of disk, as a search shows them."""
    disk = float(row["storage_cost"]) * storage / HOURS_OF_MONTH
    base = float(row["min_bid"] if kind == "bid" else row["dph_base"])
    total = base + disk
    return {
        **row, "dph_base": base, "storage_total_cost": disk, "dph_total": total, "is_bid": kind == "bid",
        "dlperf_per_dphtotal": row["dlperf"] / total, "flops_per_dphtotal": row["total_flops"] / total,
    }  # fmt: skip


def _wanted(name: str, value: Any, like: Any) -> Any:
    """A query's value as the column has it: the command line sends every number as text."""
    if isinstance(value, list):
        return [_wanted(name, one, like) for one in value]
    if isinstance(like, bool) and isinstance(value, str):
        return value.lower() == "true"
    if isinstance(like, (int, float)) and not isinstance(like, bool) and isinstance(value, str):
        try:
            return float(value)
        except ValueError as error:
            raise Refused(400, "invalid_args", f"{name}: {value!r} is no number") from error
    return value


def matches(row: Mapping[str, Any], name: str, asked: Any) -> bool:
    """Tell whether an offer passes one filter of a search; Refused for what the API does not know."""
    if name not in FIELDS:
        raise Refused(400, "invalid_args", f"unknown field {name}")
    if not isinstance(asked, Mapping) or not set(asked) <= set(_OPERATORS):
        raise Refused(400, "invalid_args", f"{name}: {asked!r} is no filter")
    value = row["driver_vers"] if name == "driver_version" else row.get(name)
    if name == "geolocation":
        value = str(value)[-2:]
    for word, given in asked.items():
        wanted = _wanted(name, given, value)
        if value is None or (isinstance(value, (int, float)) and isinstance(wanted, str)):
            return False
        if not _OPERATORS[word](value, wanted):
            return False
    return True


@dataclass
class Market:
    """The state. ``row`` of an instance is what the API shows of it; everything else is the tests' own."""

    offers: dict[int, Any] = field(default_factory=lambda: {row["id"]: row for row in usual_offers()})
    keys: tuple[str, ...] = (KEY, SECOND_KEY)
    instances: dict[int, Instance] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)  # destroyed, in that order
    ssh_keys: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)  # of the next instances to be created
    container_may: set[str] = field(default_factory=lambda: {"instance", "state", "destroy", "logs"})
    page: int = PAGE
    credit: bool = True
    log: str = "server started\n"
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(31000001))
    ports: Iterator[int] = field(default_factory=lambda: itertools.count(40001))
    clock: Callable[[], float] = time.time  # the provider's: of each answer's Date, and of when a rental starts
    on_create: Callable[[Instance], Mapping[str, Any] | None] | None = None
    on_destroy: Callable[[Instance], None] | None = None

    # --- offers --------------------------------------------------------------------------------------

    def search(self, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What a search finds: filtered, priced, ordered, and cut off."""
        options = ("type", "order", "limit", "allocated_storage", "disable_bundling", "verified")
        kind, storage = query.get("type", "on-demand"), float(query.get("allocated_storage") or 5)
        if kind not in ("on-demand", "ondemand", "bid", "reserved"):
            raise Refused(400, "invalid_args", f"type {kind!r}")
        filters = {name: asked for name, asked in query.items() if name not in options or name == "verified"}
        rows = [priced(row, storage, kind) for row in self.offers.values()]
        rows = [row for row in rows if all(matches(row, name, asked) for name, asked in filters.items())]
        for name, direction in reversed(query.get("order") or [["score", "desc"]]):
            rows.sort(key=lambda row: row[name], reverse=direction == "desc")
        return rows[: min(int(query.get("limit") or MOST_OFFERS), MOST_OFFERS)]

    # --- instances -----------------------------------------------------------------------------------

    def create(self, number: int, body: Mapping[str, Any], owner: str) -> Instance:
        """Rent an offer; whoever comes second finds it gone."""
        row = self.offers.get(number)
        if row is None or not row["rentable"]:
            said = f"error 404/3603: no_such_ask  Instance type {number} is not available."
            raise Refused(410, "no_such_ask", said)
        if not self.credit:
            raise Refused(400, "insufficient_credit", "Your account lacks credit; see the billing page.")
        if not (body.get("image") or body.get("template_hash_id")):
            raise Refused(400, "invalid_args", "image is required")
        if len(body.get("onstart") or "") > ONSTART_LIMIT:
            raise Refused(400, "invalid_args", f"onstart is longer than {ONSTART_LIMIT} characters")
        if not isinstance(body.get("env") or {}, Mapping):
            raise Refused(400, "invalid_args", "env is no object")
        disk = float(body.get("disk") or 8)
        if disk > row["disk_space"]:
            raise Refused(400, "invalid_args", f"disk {disk} is more than the machine has")
        row["rentable"] = False
        life = self.lives.pop(0) if self.lives else Life()
        life.direct = life.direct and row["direct_port_count"] > 0
        instance = self.add(self._new_row(row, body, disk), owner, life, body)
        instance.offer = number
        return instance

    def again(self, number: int) -> Instance:
        """Make a second instance of the same request, as where a proxy sends it twice."""
        first = self.instances[number]
        row = {**copy.deepcopy(first.row), "id": next(self.numbers), "actual_status": None, "status_msg": ""}
        return self.add(row, first.owner, Life(), first.body)

    def add(self, row: dict[str, Any], owner: str, life: Life | None = None, body: Any = None) -> Instance:
        """Put an instance into the account of ``owner``."""
        env = dict(row["extra_env"])
        asked = [name.removeprefix("-p ").split(":")[-1] for name in env if name.startswith("-p ")]
        inside = [port if "/" in port else f"{port}/tcp" for port in asked]
        if "ssh_direc" in row["image_runtype"] and "22/tcp" not in inside:
            inside.append("22/tcp")
        ports = {port: [{"HostIp": "0.0.0.0", "HostPort": str(next(self.ports))}] for port in inside}
        instance = Instance(row, owner, life or Life(), f"ck-{secrets.token_hex(16)}", ports, dict(body or {}))
        self.instances[row["id"]] = instance
        return instance

    def _new_row(self, row: Mapping[str, Any], body: Mapping[str, Any], disk: float) -> dict[str, Any]:
        price = priced(row, disk)
        now = self.clock()
        kept = (
            "machine_id", "host_id", "num_gpus", "gpu_name", "gpu_ram", "gpu_arch", "gpu_frac", "compute_cap",
            "cuda_max_good", "driver_version", "cpu_name", "cpu_arch", "cpu_cores", "cpu_cores_effective", "cpu_ram",
            "inet_up", "inet_down", "inet_up_cost", "inet_down_cost", "geolocation", "verification", "storage_cost",
            "public_ipaddr", "dlperf", "direct_port_count",
        )  # fmt: skip
        return {name: row[name] for name in kept} | {
            "id": next(self.numbers), "gpu_totalram": row["gpu_ram"] * row["num_gpus"], "reliability2": 0.995,
            "actual_status": None, "cur_state": "unloaded", "next_state": "running", "intended_status": "running",
            "status_msg": "", "label": body.get("label"), "image_uuid": body.get("image") or "template",
            "image_args": body.get("args") or [], "image_runtype": body.get("runtype") or "ssh_proxy",
            "onstart": body.get("onstart"), "template_hash_id": body.get("template_hash_id"), "template_id": None,
            "template_name": None, "jupyter_token": secrets.token_hex(16),
            "extra_env": [[name, value] for name, value in (body.get("env") or {}).items()],
            "disk_space": disk, "disk_usage": -1.0, "disk_util": -1.0, "gpu_util": 0.0, "gpu_temp": 31.0,
            "cpu_util": 0.0, "mem_usage": 0.0, "mem_limit": 96.0, "vmem_usage": 0.0, "uptime_mins": None,
            "dph_base": price["dph_base"], "dph_total": price["dph_total"], "is_bid": False,
            "storage_total_cost": price["storage_total_cost"], "start_date": now, "end_date": now + 30 * 86400,
            "ssh_host": "ssh7.vast.ai", "ssh_idx": "7", "ssh_port": 10000 + row["id"] % 50000,
            "local_ipaddrs": "10.0.0.5 172.17.0.2", "direct_port_start": -1, "direct_port_end": -1, "ports": {},
            "volume_info": [], "instance_api_key": None,
        }  # fmt: skip

    def look(self, instance: Instance) -> dict[str, Any]:
        """What the API shows of an instance, and let it go on a step."""
        row, life = instance.row, instance.life
        instance.looks += 1
        if row["intended_status"] == "stopped":
            row |= {"actual_status": "stopped" if instance.running else None, "cur_state": "stopped", "ports": {}}
        elif row["actual_status"] in ("exited", "unknown", "offline"):
            pass
        elif instance.looks <= life.loading or life.stuck or not self._is_up(instance):
            row |= {"actual_status": "loading", "cur_state": "running", "status_msg": "Pulling from vllm/vllm-openai"}
        else:
            instance.running += 1
            row |= {"actual_status": "running", "cur_state": "running", "status_msg": "success, running image/ssh"}
            ports = instance.ports if life.direct else {}
            row["ports"] = ports if instance.running > life.no_ports_for else {}
            if life.dies_after is not None and instance.running > life.dies_after:
                row |= {"actual_status": life.dies_as, "ports": {}, "status_msg": "container gone"}
        return dict(row)

    def _is_up(self, instance: Instance) -> bool:
        return self.on_create is None or not instance.body or instance.ready.is_set()

    def listed(self, owner: str) -> list[Instance]:
        """The owner's instances, those that the list does not have yet left out."""
        found = []
        for instance in sorted(self.instances.values(), key=lambda one: int(one.row["id"])):
            instance.listed += 1
            if instance.owner == owner and instance.listed > instance.life.unlisted_for:
                found.append(instance)
        return found

    def destroy(self, number: int) -> Instance:
        """End an instance; the machine is on offer again."""
        instance = self.instances.pop(number, None)
        if instance is None:
            raise Refused(404, "no_such_instance", f"Instance {number} not found")
        self.gone.append(number)
        if instance.offer in self.offers:
            self.offers[instance.offer]["rentable"] = True
        return instance

    def serving(self) -> list[int]:
        """Which instances are billed for their GPU, too: those that nobody asked to be stopped."""
        return [number for number in self.billing() if self.instances[number].row["intended_status"] != "stopped"]

    def billing(self) -> list[int]:
        """Which instances cost money now: all that are not destroyed, as a stopped one's disk is billed."""
        return sorted(self.instances)


def others(market: Market, owner: str, labels: Sequence[str | None] = ("training", None)) -> list[int]:
    """Put instances that are not ours into an account, as they stand in a real one; return their numbers."""
    numbers: list[int] = []
    for label in (*labels, LABEL_OF_ANOTHER_LEDGER):
        body = {"image": "pytorch/pytorch", "label": label, "runtype": "ssh_direc ssh_proxy", "disk": 20}
        instance = market.add(market._new_row(offer(9000001 + len(numbers)), body, 20.0), owner, Life(loading=0))
        market.look(instance)
        numbers.append(int(instance.row["id"]))
    return numbers
