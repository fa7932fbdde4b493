"""What a rented box must be for a profile: its GPU in vast.ai's words, driver, image, disk and download.

Pure, and part of the resolved profile (`rental`), so that plan, search and tests read one and the same figures.

The disk is fixed when a box is rented, so it is computed from the plan and never guessed:

    weights    every file of target and draft, at its size on disk (a download grows in place: it needs no second copy)
  + the rest   25 GB, as preflight asks for: an engine's environment (vLLM's with PyTorch and CUDA's libraries is about
               11 GB), its compile cache, our own environment, logs and results
  + margin     10 % of the sum: what a file system keeps for itself
  = rounded up to whole GB

What a person pays traffic for is what comes over the network: weights from the hub or a package index, and the engine's
environment (or its image, whichever the box uses).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.versions import known
from .memory_fit import GB

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry
    from drafthouse.profiles.engine_version import Chosen
    from drafthouse.profiles.resolved_types import Hardware, Rental, WeightItem

# Environments, logs and results beside the weights; preflight asks a box for the same.
ROOM_FOR_THE_REST = {"cpu": 3 * GB, "gpu": 25 * GB}
# A driver shows a little less memory than the catalogue says on some boards; preflight allows as much.
MEMORY_TOLERANCE = 0.97
# Of the whole disk: what the file system keeps for itself, and a file that grows.
DISK_MARGIN = 1.1
# The engine's image or environment over the network, both parts compressed: vLLM's image is about that large.
ENGINE_DOWNLOAD = {"cpu": 1 * GB, "gpu": 12 * GB}


def rental_of(hardware: Hardware, engine: EngineEntry, chosen: Chosen, weights: Sequence[WeightItem]) -> Rental:
    """What to rent for this hardware and engine; ``chosen`` has the engine's version and image.

    ``vast_names`` is empty where nobody rents such hardware out (a CPU, or a GPU not named yet), ``image`` is '' where
    there is none to rent with. Memory is MiB of one device, ``compute_cap`` a hundred times the compute capability,
    disk and download are GB.
    """
    kind = hardware["kind"]
    cuda = cuda_of(engine, chosen.version)
    fetched = sum(item["bytes"] for item in weights if item["source"] in ("hub", "package"))
    capability = hardware.get("compute_capability")
    return {
        "vast_names": list(hardware.get("vast_names", ())),
        "devices": hardware["devices"],
        "memory_mib": hardware["memory_mib"],
        "compute_cap": round(float(capability) * 100) if capability else 0,
        "cuda": cuda["cuda"],
        "driver": cuda["driver"],
        "image": engine.get("rental_image") or chosen.image or "",
        "disk_gb": disk_gb(sum(item["bytes"] for item in weights), kind),
        "download_gb": round((fetched + ENGINE_DOWNLOAD[kind]) / GB, 1),
    }


def disk_gb(weights: float, kind: str) -> int:
    """The whole GB to rent for ``weights`` bytes; the module says the arithmetic."""
    return math.ceil((weights + ROOM_FOR_THE_REST[kind]) * DISK_MARGIN / GB)


def cuda_of(engine: EngineEntry, version: str) -> dict[str, str]:
    """{cuda, driver} that ``version`` of an engine needs at least: '' where the catalogue says nothing."""
    for entry in engine.get("cuda", ()):
        if known(version, entry):
            return {"cuda": entry["cuda"], "driver": entry["driver"]}
    return {"cuda": "", "driver": ""}
