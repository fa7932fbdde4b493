"""The names of GPUs in SkyPilot, dstack and Kubernetes. The parsers of SkyPilot and dstack accept wrong names too.

SkyPilot's names are from its catalogues (`sky/catalog/data_fetchers`, 0.14.1), dstack's from
`gpuhunt.KNOWN_NVIDIA_GPUS`. ``product`` is the node label `nvidia.com/gpu.product` of NVIDIA's GPU feature discovery.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core.errors import one_problem
from ..profiles.resolved_types import Hardware


class ToolNames(NamedTuple):
    """A GPU's name in each tool; "" if the tool does not have that GPU."""

    skypilot: str
    dstack: str
    product: str  # the node label, for Kubernetes


#: By a text of the catalogue's `gpu_names`, which is part of the GPU's name in nvidia-smi.
GPUS = {
    "RTX PRO 6000": ToolNames("RTXPRO6000", "RTXPRO6000", "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition"),
    "H100 80GB HBM3": ToolNames("H100", "H100", "NVIDIA-H100-80GB-HBM3"),
    "H100 NVL": ToolNames("H100-NVL", "H100NVL", "NVIDIA-H100-NVL"),
    "A100-SXM4-80GB": ToolNames("A100-80GB", "A100", "NVIDIA-A100-SXM4-80GB"),
    "GeForce RTX 3090": ToolNames("RTX3090", "RTX3090", "NVIDIA-GeForce-RTX-3090"),
    "GeForce RTX 4090": ToolNames("RTX4090", "RTX4090", "NVIDIA-GeForce-RTX-4090"),
    "GeForce RTX 5090": ToolNames("RTX5090", "RTX5090", "NVIDIA-GeForce-RTX-5090"),
    "NVIDIA L40S": ToolNames("L40S", "L40S", "NVIDIA-L40S"),
    "NVIDIA H200": ToolNames("H200", "H200", "NVIDIA-H200"),
    "NVIDIA B200": ToolNames("B200", "B200", "NVIDIA-B200"),
    "NVIDIA GB10": ToolNames("", "", "NVIDIA-GB10"),
}


def gpu_name(hardware: Hardware, tool: str) -> str:
    """The name of a profile's GPU in ``tool``, a field of `ToolNames`; the first of the catalogue's names that has one.

    Raises DrafthouseError if none has.
    """
    for catalogue_name in hardware.get("gpu_names", ()):
        tool_name = str(getattr(GPUS[catalogue_name], tool)) if catalogue_name in GPUS else ""
        if tool_name:
            return tool_name
    raise one_problem(
        "export-gpu",
        f"{hardware['name']}, which has no {tool} name here",
        f"a GPU that {tool} rents or schedules: {', '.join(sorted(gpu_names_of(tool)))}",
        "export to another target, or add its name to export/gpus.py",
        f"hardware {hardware['id']}",
    )


def gpu_names_of(tool: str) -> set[str]:
    """All GPU names of a tool in the table."""
    return {str(getattr(gpu, tool)) for gpu in GPUS.values()} - {""}
