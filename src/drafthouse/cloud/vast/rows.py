"""What passes between us and vast.ai, as types.

What comes from there is others' data: each field but an ``id``, which the client looks at, may be missing or of
another type, so that it is an `object` until somebody has looked.
"""

from __future__ import annotations

from typing import TypedDict


class Priced(TypedDict, total=False):
    """What an offer or an instance costs: $ an hour, the disk a GB and month, traffic a GB."""

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
    """A machine that may be rented."""

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
    """A machine that is."""

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
