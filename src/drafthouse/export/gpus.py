"""How each tool spells a GPU. Neither SkyPilot's nor dstack's parser knows a wrong name from a right one.

SkyPilot's are of its catalogues (`sky/catalog/data_fetchers`, 0.14.1), dstack's of `gpuhunt.KNOWN_NVIDIA_GPUS`.
The label `nvidia.com/gpu.product` is what NVIDIA's GPU feature discovery makes of nvidia-smi's name.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core.errors import one_problem
from ..profiles.resolved_types import Hardware


class Spelled(NamedTuple):
    """A GPU in the words of each tool; '' where it does not know it."""

    skypilot: str
    dstack: str
    product: str


#: By the beginning of what the catalogue's `gpu_names` has of nvidia-smi's name.
GPUS = {
    "RTX PRO 6000": Spelled("RTXPRO6000", "RTXPRO6000", "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition"),
    "H100 80GB HBM3": Spelled("H100", "H100", "NVIDIA-H100-80GB-HBM3"),
    "H100 NVL": Spelled("H100-NVL", "H100NVL", "NVIDIA-H100-NVL"),
    "A100-SXM4-80GB": Spelled("A100-80GB", "A100", "NVIDIA-A100-SXM4-80GB"),
    "GeForce RTX 3090": Spelled("RTX3090", "RTX3090", "NVIDIA-GeForce-RTX-3090"),
    "GeForce RTX 4090": Spelled("RTX4090", "RTX4090", "NVIDIA-GeForce-RTX-4090"),
    "GeForce RTX 5090": Spelled("RTX5090", "RTX5090", "NVIDIA-GeForce-RTX-5090"),
    "NVIDIA L40S": Spelled("L40S", "L40S", "NVIDIA-L40S"),
    "NVIDIA H200": Spelled("H200", "H200", "NVIDIA-H200"),
    "NVIDIA B200": Spelled("B200", "B200", "NVIDIA-B200"),
    "NVIDIA GB10": Spelled("", "", "NVIDIA-GB10"),
}


def spelled(hardware: Hardware, tool: str) -> str:
    """A profile's GPU as ``tool`` (a field of `Spelled`) spells it. Raises DrafthouseError without a name."""
    for name in hardware.get("gpu_names", ()):
        word = str(getattr(GPUS[name], tool)) if name in GPUS else ""
        if word:
            return word
    raise one_problem(
        "export-gpu",
        f"{hardware['name']}, which has no {tool} name here",
        f"a GPU that {tool} rents or schedules: {', '.join(sorted(names(tool)))}",
        "export to another target, or add its name to export/gpus.py",
        f"hardware {hardware['id']}",
    )


def names(tool: str) -> set[str]:
    """Every name of a tool that is known here."""
    return {str(getattr(gpu, tool)) for gpu in GPUS.values()} - {""}
