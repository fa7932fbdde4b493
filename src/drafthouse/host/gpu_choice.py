"""Choose the GPUs of a machine that Drafthouse may use.

The inventory's variable `drafthouse_gpus` decides, else CUDA_VISIBLE_DEVICES, else the GPU names in the profile.
Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.host.box_types import Gpu, GpuChoice


def choose_gpus(uuids: Mapping[int, str], requested: Sequence[str]) -> tuple[list[int], GpuChoice | None]:
    """The indices of the chosen GPUs, in the order of the choice, and the choice; all GPUs and None without one.

    ``uuids`` are the UUIDs of the driver's GPUs by index. ``requested`` are the indices or UUIDs in `drafthouse_gpus`;
    a UUID may be shortened, as for CUDA. A word that names no GPU, several, or one for the second time, is wrong.
    """
    chosen_by = "drafthouse_gpus"
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not requested and variable is not None:
        chosen_by = "CUDA_VISIBLE_DEVICES"
        requested = [id_or_index.strip() for id_or_index in variable.split(",")]
    # ``uuids`` has no MIG parts of a GPU. The engine itself reads such a choice from the variable.
    if not requested or any(id_or_index.startswith("MIG-") for id_or_index in requested):
        return list(uuids), None
    chosen: dict[int, str] = {}
    invalid = []
    for id_or_index in requested:
        by_uuid = id_or_index.startswith("GPU-")
        if by_uuid:
            matches = [index for index, uuid in uuids.items() if uuid.startswith(id_or_index)]  # as CUDA does
        else:
            matches = [index for index in uuids if str(index) == id_or_index]
        if len(matches) != 1 or matches[0] in chosen:
            invalid.append(id_or_index)
        elif by_uuid:
            chosen[matches[0]] = uuids[matches[0]]
        else:
            chosen[matches[0]] = id_or_index
    return list(chosen), {"by": chosen_by, "ids": list(chosen.values()), "wrong": invalid, "listed": list(uuids)}


def fitting_gpus(gpus: Sequence[Gpu], names: Sequence[str], devices: int) -> list[str]:
    """The UUIDs of the first ``devices`` GPUs whose names fit the profile; [] if all GPUs fit, or fewer than needed.

    Without a choice CUDA would take the fastest GPU first. ``names`` are parts of the driver's GPU names.
    """
    fitting = gpus_named(gpus, names)
    if not devices <= len(fitting) < len(gpus):  # no choice is needed if all fit, and none is possible if too few do
        return []
    return [gpu["uuid"] for gpu in fitting[:devices]]


def gpus_named(gpus: Iterable[Gpu], names: Iterable[str]) -> list[Gpu]:
    """The GPUs whose driver names contain one of ``names``."""
    return [gpu for gpu in gpus if any(name in gpu["name"] for name in names)]
