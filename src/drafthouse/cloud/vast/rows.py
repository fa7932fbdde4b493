"""Types of the JSON objects in answers of vast.ai.

Fields are untrusted: only ``id`` is validated by the client. All others may be missing or of any type, so they are
declared as `object` and must be checked before use.
"""

from __future__ import annotations

from typing import TypedDict


class Priced(TypedDict, total=False):
    """Prices of an offer or an instance, in $."""

    dph_total: object  # per hour, the box with the disk of the search or of the instance
    dph_base: object  # per hour, the box alone
    storage_cost: object  # of the disk, per GB and month
    inet_down_cost: object  # of downloads, per GB
    inet_up_cost: object  # of uploads, per GB


class _Numbered(TypedDict):
    """An object with a number, which is the only field that is always there."""

    id: int  # above 0


class _Machine(_Numbered, Priced, total=False):
    """The fields that an offer and an instance have in common."""

    machine_id: object  # the same for all offers of one machine
    gpu_name: object
    num_gpus: object
    gpu_ram: object  # MB of one GPU
    driver_version: object
    cuda_max_good: object  # the newest CUDA version that the driver supports
    disk_space: object  # GB
    geolocation: object  # such as "Sweden, SE"


class Offer(_Machine, total=False):
    """A machine that can be rented."""

    compute_cap: object
    cpu_arch: object
    duration: object  # seconds for which it is on offer
    direct_port_count: object
    rentable: object
    rented: object
    external: object  # True: of another marketplace
    verified: object  # True, or "verified" in ``verification``: vast.ai has verified the machine
    verification: object
    reliability: object  # fraction of the time, under one of two keys
    reliability2: object
    inet_down: object  # Mbit/s


class Instance(_Machine, total=False):
    """A rented machine."""

    label: object
    actual_status: object  # such as "running"; missing until the instance is created
    status_msg: object
    start_date: object  # unix seconds
    storage_total_cost: object  # of its disk, in $ per hour
    image_uuid: object  # name of its image
    image_runtype: object  # how SSH reaches it
    public_ipaddr: object
    ports: object  # of the container, with the external ones
    ssh_host: object  # of vast.ai's proxy for SSH, as the next
    ssh_port: object


class SshKey(TypedDict, total=False):
    """A public key of the account."""

    key: object  # its text, or under ``public_key``
    public_key: object
    deleted_at: object  # of a deleted key only
