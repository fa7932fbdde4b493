"""Which of a box's GPUs are ours: `drafthouse_gpus`, else CUDA_VISIBLE_DEVICES, else those that the profile is for.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.host.box_types import Gpu, GpuChoice


def choose_gpus(uuids: Mapping[int, str], asked: Sequence[str]) -> tuple[list[int], GpuChoice | None]:
    """The indices of the GPUs that are ours, in the order of the choice; without one all, and None.

    ``uuids`` are those of the driver's GPUs, by index; ``asked`` are words of `drafthouse_gpus`.
    """
    by, variable = "drafthouse_gpus", os.environ.get("CUDA_VISIBLE_DEVICES")
    if not asked and variable is not None:
        by, asked = "CUDA_VISIBLE_DEVICES", [word.strip() for word in variable.split(",")]
    # Parts of a GPU are not listed here: such a choice is left to the engine, which finds it as it is.
    if not asked or any(word.startswith("MIG-") for word in asked):
        return list(uuids), None
    chosen: dict[int, str] = {}
    wrong = []
    for word in asked:
        by_uuid = word.startswith("GPU-")
        if by_uuid:
            found = [index for index, uuid in uuids.items() if uuid.startswith(word)]  # as CUDA does
        else:
            found = [index for index in uuids if str(index) == word]
        if len(found) != 1 or found[0] in chosen:
            wrong.append(word)
        elif by_uuid:
            chosen[found[0]] = uuids[found[0]]
        else:
            chosen[found[0]] = word
    return list(chosen), {"by": by, "ids": list(chosen.values()), "wrong": wrong, "listed": list(uuids)}


def fitting_gpus(gpus: Sequence[Gpu], names: Sequence[str], devices: int) -> list[str]:
    """The UUIDs of the GPUs that a profile is for, on a box with others beside them; [] where nothing is to choose.

    Left to itself CUDA begins with the fastest. ``names`` are parts of the driver's names.
    """
    fitting = gpus_named(gpus, names)
    if not devices <= len(fitting) < len(gpus):
        return []
    return [gpu["uuid"] for gpu in fitting[:devices]]


def gpus_named(gpus: Iterable[Gpu], names: Iterable[str]) -> list[Gpu]:
    """The GPUs whose names, as the driver has them, contain one of ``names``."""
    return [gpu for gpu in gpus if any(name in gpu["name"] for name in names)]
