"""Types of the Ansible fact `drafthouse_box`: a box is a machine that serves models (`box_facts.read_box`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ..serving.history import Serving

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.core.first_process import FirstProcess
    from drafthouse.host.env_stamp import Stamp


class Gpu(TypedDict):
    """A GPU as the NVIDIA driver reports it."""

    name: str
    memory_mib: int  # for a GPU that shares the system's memory, all of that
    driver: str  # its version
    compute_capability: str  # such as 12.0
    uuid: str
    split: NotRequired[bool]  # MIG mode is on, so a program gets a part of it at most


class GpuChoice(TypedDict):
    """A choice of GPUs by the user or by CUDA_VISIBLE_DEVICES."""

    by: str  # the variable that made it
    ids: list[str]  # UUIDs or indices of the chosen GPUs
    wrong: list[str]  # its words that name no GPU, or one twice
    listed: list[int]  # indices of all GPUs of the machine


class Listener(TypedDict):
    """A process that listens on a port."""

    pid: int | None  # None: this user may not see it
    command: str  # the beginning of its command line, without secrets
    ours: bool  # Drafthouse runs it


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
    system: str  # Linux
    machine: str  # the CPU's architecture, such as x86_64
    kernel: str  # its release
    os: str  # the distribution's name and version
    glibc: str  # its version; '' with another C library
    python: str  # version of the Python that reads the facts
    python_executable: str
    can_make_environments: bool  # that Python has ensurepip
    is_root: bool
    has_apt: bool
    has_python_apt: bool
    has_docker: bool  # Docker's socket exists; it need not answer
    cpu: str  # model name; '' if unknown
    cores: int  # that this process may use
    memory_total: int
    memory_available: int
    gpus: list[Gpu]  # the chosen ones; without a choice all
    gpu_choice: NotRequired[GpuChoice]  # no key: no choice was made
    nvidia_pci_devices: list[str]  # PCI addresses of NVIDIA GPUs, also without a driver
    translated_pci_devices: NotRequired[list[str]]  # those whose memory accesses an IOMMU translates
    disk: dict[str, int]  # free bytes by path
    file_systems: dict[str, int]  # id of the file system (st_dev), for the same paths
    docker_root: str  # folder of Docker's images and containers
    shared_memory: int | None  # size of /dev/shm; None: there is none
    has_systemd: bool
    first_process: FirstProcess
    writable: dict[str, bool]  # by path
    ports: dict[str, Listener | None]  # by port; None: nothing listens
    present: NotRequired[list[str]]  # paths that exist, of weights, environments and programs
    environments: NotRequired[dict[str, Stamp]]  # stamps of complete Python environments, by path
    programs: NotRequired[list[str]]  # names of installed Drafthouse archives
    digests: NotRequired[dict[str, str]]  # mode and SHA-256 of small Drafthouse files, by path
    cached: NotRequired[dict[str, int]]  # bytes that a hard link into the Hugging Face cache saves, by path of weights
    served: NotRequired[ServedNow | None]
    private: NotRequired[PrivateNetwork]
