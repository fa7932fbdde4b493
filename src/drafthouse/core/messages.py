"""Error messages of the kernel, the NVIDIA driver, Docker, NVIDIA's toolkit, CUDA and engines: causes and remedies.

The container check, the driver role, the engine log reader and the doctor share this table. It is ordered: where a text
matches two entries, the first explains more. Standard library only, Python 3.10: it runs on the box.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """A regular expression for a message, the cause of the message, and what to do about it."""

    pattern: str
    cause: str
    do: str


_TOOLKIT = "set container_engine_nvidia=always and run again: the role installs and registers NVIDIA's toolkit"
_FIRMWARE = (
    "switch on Above 4G decoding and Resizable BAR in the firmware, check power cables and seat,"
    " and read `dmesg | grep -e NVRM -e RmInitAdapter`"
)
_RESET = "reboot the box; if it comes again, try another driver branch (nvidia_driver_branch)"

MESSAGES = (
    # --- the kernel's log (Xid, an error of the driver by its number: docs.nvidia.com/deploy/xid-errors) ---
    Message(
        r"\bXid \(PCI:[^)]*\): 79\b|GPU has fallen off the bus|GPU is lost",
        "the GPU has fallen off the PCI bus: power, temperature or its seat",
        "power the box off and on; check cables, temperature and riser; lower the power limit (nvidia-smi -pl)",
    ),
    Message(
        r"\bXid \(PCI:[^)]*\): (?:48|63|64|92|94|95)\b",
        "the GPU's memory has errors",
        "see `nvidia-smi -q -d ECC,ROW_REMAPPER`, reset the GPU or reboot; have the card replaced if it comes again",
    ),
    Message(
        r"\bXid \(PCI:[^)]*\): (?:8|61|62|109|119|120)\b|_kgspIsHeartbeatTimedOut|GPU is probably locked"
        r"|GSP task watchdog timeout",
        "the GPU or its GSP firmware stopped responding",
        _RESET,
    ),
    Message(
        r"\bXid \(PCI:[^)]*\): 74\b",
        "NVLink has errors",
        "see `nvidia-smi nvlink -e`; reseat the bridge, then reboot",
    ),
    Message(r"\bXid \(PCI:[^)]*\): 154\b", "the driver asks for a reset of the GPU", _RESET),
    Message(
        r"\bXid \(PCI:[^)]*\): (?:13|31|43|45)\b|illegal memory access was encountered"
        r"|device-side assert triggered|index out of bounds\"` failed",
        "a program on the GPU read outside its memory, or was ended",
        "see the engine's log of that moment; a known issue of the engine is the usual cause",
    ),
    Message(
        r"\bSXid \(PCI",
        "an NVSwitch has errors",
        "see the log of nvidia-fabricmanager and `nvidia-smi nvlink -e`; reboot the box, or rent another",
    ),
    Message(r"RmInitAdapter failed|failed to wait for GFW_BOOT", "the driver cannot start the GPU", _FIRMWARE),
    # --- the driver ---
    Message(
        r"(?i)driver/library version mismatch",
        "the driver's library is newer than its kernel module",
        "reboot the box",
    ),
    Message(r"No devices were found", "the driver runs, but no GPU answers it", _FIRMWARE),
    Message(
        r"Key was rejected by service",
        "Secure Boot refuses the driver's kernel module",
        "enrol its key (mokutil --import) and confirm it at the next boot, or switch off Secure Boot",
    ),
    Message(
        r"couldn't communicate with the NVIDIA driver|Unable to load the kernel module 'nvidia",
        "the driver's kernel module is not loaded",
        "see `dkms status` and `modprobe -v nvidia`; with Secure Boot the module needs an enrolled key",
    ),
    Message(
        r"Failed to initialize NVML: Unknown Error",
        "the container has lost its GPUs, which `systemctl daemon-reload` does with systemd's cgroup driver",
        "restart the container; container_engine_reload_safe: true (the default) keeps it from happening again",
    ),
    # --- Docker and NVIDIA's toolkit ---
    Message(
        r"could not select device driver|failed to discover GPU vendor from CDI|no known GPU vendor"
        r"|unknown or invalid runtime name: nvidia|Unknown runtime specified nvidia",
        "the engine knows no NVIDIA runtime",
        _TOOLKIT,
    ),
    Message(
        r"unresolvable CDI devices",
        "no CDI file that the engine reads names this GPU",
        "run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` and compare `nvidia-ctk cdi list`; since 1.19.1"
        f" the toolkit writes a CDI version that an old Podman cannot read; without nvidia-ctk, {_TOOLKIT}",
    ),
    Message(
        r"creating shared memory segment /dev/shm|failed to extend /dev/shm",
        "the container's /dev/shm is too small for NCCL",
        "start the container with --ipc=host or a larger --shm-size; on vast.ai, rent a larger share of the machine",
    ),
    Message(
        r"load library failed: libnvidia-ml\.so\.1|libnvidia-ml\.so\.1: cannot open shared object",
        "the toolkit does not find the driver's libraries where Docker runs",
        "Docker Desktop and other Docker in a virtual machine have no GPU: install Docker Engine on the box itself;"
        " otherwise run `ldconfig`, and see `root` in /etc/nvidia-container-runtime/config.toml",
    ),
    Message(
        r"unable to find any existing device filters attached to the cgroup",
        "the toolkit may not change the container's cgroup: Docker runs rootless or in a container",
        "set no-cgroups = true in /etc/nvidia-container-runtime/config.toml, or run Docker as root on the box itself",
    ),
    Message(
        r"mount error: file creation failed: .{1,300}: file exists",
        "the image contains a file of the driver that the toolkit would put there",
        "an image without the driver's libraries: it was made with a GPU mounted (docker commit)",
    ),
    Message(
        r"manifest unknown|manifest for \S+ not found",
        "the registry has no such image or tag",
        "see the tags of the image; some begin with a v",
    ),
    # --- CUDA, in an engine's log ---
    Message(
        r"(?i)system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|(?:error|code|cuInit: status)[ :=]*802\b",
        "the NVSwitch fabric is not up",
        "install and start nvidia-fabricmanager of the driver's own version",
    ),
    Message(
        r"(?i)forward compatibility was attempted on non supported HW|(?:error|code|cuInit: status)[ :=]*804\b",
        "a CUDA compatibility library in the image hides the box's driver, which this card does not allow",
        "install a driver of the image's CUDA version, or an image without cuda-compat",
    ),
    Message(
        r"(?i)unsupported display driver ?/ ?cuda driver combination|SYSTEM_DRIVER_MISMATCH",
        "CUDA loads another driver's library (libcuda) than the one of the box's driver",
        "reboot after an update of the driver; in a container, put the box's library first"
        " (LD_LIBRARY_PATH=/usr/local/nvidia/lib64), or take an image without cuda-compat",
    ),
    Message(
        r"(?i)CUDA driver version is insufficient|driver on your system is too old|unsatisfied condition: cuda *>"
        r"|compiled with an unsupported toolchain",
        "the driver is older than the engine's CUDA",
        "install a newer driver (nvidia_driver_branch), or rent a box that has one",
    ),
    Message(
        r"(?i)cuInit.{0,80}(?:CUDA_ERROR_UNKNOWN|999)|CUDA unknown error",
        "CUDA cannot start although nvidia-smi works: mostly /dev/nvidia-uvm is missing",
        "run `nvidia-modprobe -u -c=0` on the box, update the Container Toolkit, and restart the container",
    ),
    Message(
        r"(?i)no kernel image is available|is not implemented for (?:Blackwell|Hopper)|\.cuh:\d+: Unsupported archi"
        r"|a supported arch was not in the list of target arches|requires GPUs with sm\d|only supports Ampere GPUs"
        r"|requires SM\d+\+",
        "the engine was not built for this GPU's generation",
        "a newer engine version (make upgrade LIST=1), or a profile for this card",
    ),
    Message(
        r"(?i)no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE",
        "CUDA sees no GPU",
        "see `nvidia-smi -L` where the engine runs, and drafthouse_gpus and CUDA_VISIBLE_DEVICES",
    ),
    Message(
        r"peer access is not supported between",
        "the GPUs cannot read each other's memory",
        "switch off vLLM's own all-reduce (disable_custom_all_reduce), or set NCCL_P2P_DISABLE=1",
    ),
    # --- kernels that the engine compiles at its start ---
    Message(
        r"is not defined for option 'gpu-name'",
        "Triton's assembler (ptxas) is older than this GPU",
        "a newer engine version, or TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas of a CUDA that knows the GPU",
    ),
    Message(
        r"nvcc: not found|Could not find nvcc|nvcc fatal",
        "the engine compiles kernels at its start, and nvcc is missing or of another version",
        "use the engine's container image, or install the CUDA toolkit of the engine's CUDA version",
    ),
    Message(
        r"out of resource: shared memory",
        "a Triton kernel needs more shared memory of a multiprocessor than this GPU has",
        "another backend for attention or experts, or a newer engine version: fewer tokens do not help",
    ),
    # --- the GPU's memory ---
    Message(
        r"Free memory on device .{0,80}less than desired GPU memory utilization",
        "another program holds the GPU's memory, or gpu_memory_utilization asks for more than is free",
        "see `nvidia-smi` and end that program, or lower gpu_memory_utilization",
    ),
    Message(
        r"No available memory for the cache blocks|larger than the available KV\s+cache|increase --mem-fraction-static",
        "no memory is left for the KV cache that the context needs",
        "a shorter context, more of the memory (gpu_memory_utilization, mem_fraction_static), or smaller weights:"
        " drafthouse fits MODEL",
    ),
    Message(
        r"(?i)cuda.{0,80}(?<!run )(?<!running )out of memory|insufficient GPU memory|to allocate CUDA\d* buffer"
        r"|Error Code 2: OutOfMemory",
        "the GPU's memory is full",
        "a shorter context, fewer sequences, smaller weights (drafthouse fits MODEL), or no other program on the GPU",
    ),
    # --- the model, the draft, the command ---
    Message(
        r"Transformers does not recognize this architecture|unknown model architecture: '"
        r"|Model architectures .{1,120} are not supported for now",
        "this version of the engine does not know the architecture of the model or draft",
        "a newer engine version (make upgrade LIST=1), or another checkpoint",
    ),
    Message(
        r"MetadataIncompleteBuffer",
        "a file of the weights is incomplete or damaged",
        "remove it, and download it again (make weights)",
    ),
    Message(
        r"failed to open GGUF file",
        "there is no such file, or the engine may not read it",
        "see the path where the engine runs: in a container it is that of the mount",
    ),
    Message(
        r"error loading model: missing tensor '",
        "the GGUF file was made for another version of the engine",
        "a newer engine version (make upgrade LIST=1), or a file that was converted for this one",
    ),
    Message(
        r"must be divisible by (?:tensor parallel size|ep_size)|AssertionError: \d+ is not divisible by \d",
        "this number of GPUs does not divide the model's heads or experts",
        "a tensor_parallel_size that divides them: 1, 2, 4 or 8 for most models",
    ),
    Message(
        r"\.so: undefined symbol: ",
        "a Python package was compiled for another version of PyTorch",
        "use the engine's container image, or install both packages anew in versions that belong together",
    ),
    Message(
        r"Model Runner V2 does not yet support",
        "vLLM's second model runner cannot do this",
        "set VLLM_USE_V2_MODEL_RUNNER=0, for both arms, or choose another method",
    ),
    Message(
        r"num_speculative_tokens must be provided",
        "the number of draft tokens is missing, and the draft's config.json does not give it",
        "set num_speculative_tokens",
    ),
    Message(
        r"model doesn't contain MTP layers",
        "the file has no MTP layers, or the draft that was named is no MTP head",
        "a GGUF file that keeps them (tensors with nextn), or another method",
    ),
    Message(
        r"draft model vocab (?:type )?must match",
        "the draft has another vocabulary than the target",
        "a draft that drafthouse drafts MODEL lists",
    ),
    Message(
        r"error: (?:invalid argument|unrecognized arguments): -",
        "this version of the engine has no such flag",
        "see the engine's --help; names of flags change between versions",
    ),
    Message(
        r"error: argument --[\w-]+: invalid loads value",
        "the flag's value is no JSON",
        "double quotes around names and texts, true and false in lower case, single quotes around it all",
    ),
    Message(
        r"(?i)couldn't bind HTTP server socket|address already in use",
        "another program holds the port",
        "see `ss -ltnp` and end it, or choose another port",
    ),
    # --- the hub ---
    Message(
        r"status client error \(429 Too Many Requests|429 Client Error: Too Many Requests",
        "the hub refuses too many requests in a short time",
        "set HF_TOKEN, whose limit is higher, and try again in some minutes; make weights downloads before the start",
    ),
    Message(
        r"Cannot access gated repo|Access to model \S+ is restricted",
        "the hub gives this model only to accounts that accepted its licence",
        "accept it on the model's page, with HF_TOKEN of that account; a fine-grained one needs public gated repos",
    ),
    Message(
        r"401 Client Error.{0,40} for url: https://huggingface\.co/|Repository Not Found for url",
        "the hub has no such repository, or not for this HF_TOKEN",
        "see the name on the hub; a private repository needs a token of an account that may read it",
    ),
    Message(
        r"CAS service error",
        "a download from the hub broke off",
        "try again; if it comes again, set HF_HUB_DISABLE_XET=1, or make weights",
    ),
    Message(
        r"LocalEntryNotFoundError: ",
        "the hub was not reached, and the files are not on the disk",
        "see the network and HF_HUB_OFFLINE; make weights downloads before the start",
    ),
)


def known_message(text: str) -> Message | None:
    """The first entry of the table whose pattern matches in ``text``; None if none does."""
    return next((message for message in MESSAGES if re.search(message.pattern, text)), None)


def last_known_message(lines: list[str]) -> tuple[str, Message] | None:
    """The last line that an entry of the table matches, and the entry; None if there is none."""
    for line in reversed(lines):
        if message := known_message(line):
            return line, message
    return None
