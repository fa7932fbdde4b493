"""Types of the Ansible fact `drafthouse_box`: a box is a machine that serves models (`box_facts.read_box`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ..serving.history import Serving

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.core.first_process import FirstProcess
    from drafthouse.host.env_stamp import Stamp


class Gpu(TypedDict):
    """A GPU as the NVIDIA driver reports it; ``split``: MIG mode is on, so a program gets a part of it at most."""

    name: str
    memory_mib: int
    driver: str
    compute_capability: str
    uuid: str
    split: NotRequired[bool]


class GpuChoice(TypedDict):
    """A choice of GPUs by the user or by CUDA_VISIBLE_DEVICES."""

    by: str  # the variable that made it
    ids: list[str]  # UUIDs or indices of the chosen GPUs
    wrong: list[str]  # its words that name no GPU, or one twice
    listed: list[int]  # indices of all GPUs of the machine


class Listener(TypedDict):
    """A process that listens on a port; its pid is None if this user may not see it. ``ours``: Drafthouse runs it."""

    pid: int | None
    command: str
    ours: bool


class PrivateNetwork(TypedDict):
    """Interface name by IPv4 address inside the private subnet, and the InfiniBand adapters whose link is up."""

    addresses: dict[str, str]
    infiniband: list[str]


class ServedNow(Serving):
    """The configuration that should serve."""

    drift: str  # why another configuration serves; '' if this one does
    identity: str  # a hash of its files
    keys: NotRequired[list[str]]  # names of the stored results of this and of earlier configurations, newest first


class BoxFacts(TypedDict):
    """The facts of a box; sizes are bytes. `read_box` gives the required keys, the Ansible module adds the rest."""

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
    # Those PCI devices whose memory accesses an IOMMU translates.
    translated_pci_devices: NotRequired[list[str]]
    disk: dict[str, int]
    # Id of the file system (st_dev), for the same paths as in ``disk``.
    file_systems: dict[str, int]
    docker_root: str
    shared_memory: int | None
    has_systemd: bool
    first_process: FirstProcess
    writable: dict[str, bool]
    ports: dict[str, Listener | None]
    present: NotRequired[list[str]]
    environments: NotRequired[dict[str, Stamp]]  # stamps of complete Python environments, by path
    programs: NotRequired[list[str]]  # names of installed Drafthouse archives
    digests: NotRequired[dict[str, str]]  # mode and SHA-256 of small Drafthouse files, by path
    cached: NotRequired[dict[str, int]]  # bytes that a hard link into the Hugging Face cache saves, by path of weights
    served: NotRequired[ServedNow | None]
    private: NotRequired[PrivateNetwork]
