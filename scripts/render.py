#!/usr/bin/env python3
"""Write a profile's files to build/<profile>/: for each arm the very files that a run puts on the box.

Beside them, for reading and trying: the container of each arm (compose.yaml), the same in the engine's Python
API (offline.py), a first request (smoke.sh), and the arm `stock` where the method changes the engine's settings.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from _clone import run
from _profile import arguments, resolved

from drafthouse.core.exit_codes import DONE
from drafthouse.profiles.workspace import ROOT

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import File


def main() -> int:
    """Render, and name what was written."""
    profile = resolved(arguments(__doc__ or "").parse_args())
    folder = ROOT / "build" / profile["profile"]
    files: list[File] = [
        {**file, "path": f"{arm}/{file['path']}"} for arm, data in profile["arms"].items() for file in data["files"]
    ]
    for file in [*files, *profile["extras"]]:
        path = folder / file["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["content"], "utf-8")
        path.chmod(int(file["mode"], 8))
        print(path.relative_to(ROOT))
    everything = folder / "resolved.json"
    everything.write_text(json.dumps(profile, indent=1) + "\n", "utf-8")
    print(everything.relative_to(ROOT))
    return DONE


if __name__ == "__main__":
    run(main)
