"""What a box is, as types: the fact `drafthouse_box`, which `box_facts.read_box` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ..serving.history import Serving

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.core.first_process import FirstProcess
    from drafthouse.host.env_stamp import Stamp


class Gpu(TypedDict):
    """A GPU that the NVIDIA driver shows; ``split`` where its MIG mode is on: a program gets a part of it at most."""

    name: str
    memory_mib: int
    driver: str
    compute_capability: str
    uuid: str
    split: NotRequired[bool]


class GpuChoice(TypedDict):
    """The GPUs that were chosen: ``by`` what, as words of `drafthouse_gpus`; those ``wrong``; and all the indices."""

    by: str
    ids: list[str]
    wrong: list[str]
    listed: list[int]


class Listener(TypedDict):
    """Who listens on a port; the pid is None where it is not to be seen."""

    pid: int | None
    command: str
    ours: bool


class PrivateNetwork(TypedDict):
    """A host's addresses inside the private subnet, with their interfaces, and its InfiniBand adapters in use."""

    addresses: dict[str, str]
    infiniband: list[str]


class ServedNow(Serving):
    """What should serve: ``drift`` is why something else does, ``identity`` a hash of what is put on a box for it.

    ``keys``: under which results of it and of what served before are kept, the newest first.
    """

    drift: str
    identity: str
    keys: NotRequired[list[str]]


class BoxFacts(TypedDict):
    """A box; sizes are bytes. What need not be there is what the module of Ansible adds.

    ``environments``: the stamps of those that are whole, by their paths. ``programs``: the names of our archives.
    ``digests``: mode and SHA-256 of small files of ours, by their paths.
    ``cached``: by the paths of weights, what the cache of the hub's client has of them and a hard link brings.
    """

    hostname: str
    system: str
    machine: str
    kernel: str
    os: str
    glibc: str
    python: str
    python_executable: str
    can_make_environments: bool
    is_root: bool
    has_apt: bool
    has_python_apt: bool
    has_docker: bool
    cpu: str
    cores: int
    memory_total: int
    memory_available: int
    gpus: list[Gpu]
    gpu_choice: NotRequired[GpuChoice]
    nvidia_pci_devices: list[str]
    # Those of them whose memory accesses an IOMMU translates.
    translated_pci_devices: NotRequired[list[str]]
    disk: dict[str, int]
    # The file system (st_dev) of each of the same paths.
    file_systems: dict[str, int]
    docker_root: str
    shared_memory: int | None
    has_systemd: bool
    first_process: FirstProcess
    writable: dict[str, bool]
    ports: dict[str, Listener | None]
    present: NotRequired[list[str]]
    environments: NotRequired[dict[str, Stamp]]
    programs: NotRequired[list[str]]
    digests: NotRequired[dict[str, str]]
    cached: NotRequired[dict[str, int]]
    served: NotRequired[ServedNow | None]
    private: NotRequired[PrivateNetwork]
