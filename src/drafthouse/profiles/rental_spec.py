"""Requirements of a profile on a rented box: GPU in vast.ai's terms, driver, image, disk and download.

They are part of the resolved profile (`rental`), so plan, search and tests use the same figures. The disk of a rental
cannot grow. It is therefore computed from the plan, and rounded up to whole GB:

    weights    every file of target and draft; a download grows in place and needs no second copy
  + the rest   25 GB, as preflight requires: the engine's environment (vLLM with PyTorch and CUDA about 11 GB), its
               compile cache, Drafthouse's environment, logs and results
  + margin     10 % of the sum: what a file system keeps for itself

The download is what comes over the network, for which providers charge: weights from the hub or a package index, and
the engine's environment or image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.versions import supports
from .memory_fit import GB

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry
    from drafthouse.profiles.engine_version import Chosen
    from drafthouse.profiles.resolved_types import Hardware, Rental, WeightItem

# Bytes for environments, logs and results besides the weights; preflight requires the same.
ROOM_FOR_THE_REST = {"cpu": 3 * GB, "gpu": 25 * GB}
# On some boards the driver reports a little less memory than the catalogue has; preflight has the same tolerance.
MEMORY_TOLERANCE = 0.97
# A factor: what the file system keeps for itself, and files that grow.
DISK_MARGIN = 1.1
# Bytes of the engine's image or environment over the network, compressed: about the size of vLLM's image.
ENGINE_DOWNLOAD = {"cpu": 1 * GB, "gpu": 12 * GB}


def rental_of(hardware: Hardware, engine: EngineEntry, chosen: Chosen, weights: Sequence[WeightItem]) -> Rental:
    """The rental for this hardware and engine; ``chosen`` has the engine's version and image.

    Its image is the engine's own for rentals, else that of the version, else ''. The fields are documented in `Rental`.
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
    """The GB of disk to rent for ``weights`` bytes, as the module's docstring computes it."""
    return math.ceil((weights + ROOM_FOR_THE_REST[kind]) * DISK_MARGIN / GB)


def cuda_of(engine: EngineEntry, version: str) -> dict[str, str]:
    """The least ``cuda`` and ``driver`` versions for an engine's ``version``; '' where the catalogue has none."""
    for entry in engine.get("cuda", ()):
        if supports(version, entry):
            return {"cuda": entry["cuda"], "driver": entry["driver"]}
    return {"cuda": "", "driver": ""}
