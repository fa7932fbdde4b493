"""Types of the JSON objects in answers of vast.ai.

Fields are untrusted: only ``id`` is validated by the client. All others may be missing or of any type, so they are
declared as `object` and must be checked before use.
"""

from __future__ import annotations

from typing import TypedDict


class Priced(TypedDict, total=False):
    """Prices of an offer or an instance in $: ``dph_*`` per hour, ``storage_cost`` per GB and month, traffic per GB."""

    dph_total: object
    dph_base: object
    storage_cost: object
    inet_down_cost: object
    inet_up_cost: object


class _Numbered(TypedDict):
    id: int


class _Machine(_Numbered, Priced, total=False):
    machine_id: object
    gpu_name: object
    num_gpus: object
    gpu_ram: object
    driver_version: object
    cuda_max_good: object
    disk_space: object
    geolocation: object


class Offer(_Machine, total=False):
    """A machine that can be rented."""

    compute_cap: object
    cpu_arch: object
    duration: object
    direct_port_count: object
    rentable: object
    rented: object
    external: object
    verified: object
    verification: object
    reliability: object
    reliability2: object
    inet_down: object


class Instance(_Machine, total=False):
    """A rented machine."""

    label: object
    actual_status: object
    status_msg: object
    start_date: object
    storage_total_cost: object
    image_uuid: object
    image_runtype: object
    public_ipaddr: object
    ports: object
    ssh_host: object
    ssh_port: object


class SshKey(TypedDict, total=False):
    """A public key of the account."""

    key: object
    public_key: object
    deleted_at: object
