"""Write a profile's files to build/<profile>/, exactly as a run puts them on the box.

Example:
  drafthouse render rtx6000-qwen-eagle3

It also writes the container of each arm (compose.yaml), the same in the engine's Python API (offline.py), a first
request (smoke.sh), and the engine-defaults arm `stock` if the method changes the engine's settings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.exit_codes import DONE
from ..core.places import WORK
from .parser import Parser
from .profile_arguments import arguments, resolved

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import File


def options() -> Parser:
    """The argument parser of `drafthouse render`."""
    return arguments(__doc__, "render")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the profile's files and print their paths."""
    profile = resolved(options().parse_args(argv))
    folder = WORK / "build" / profile["profile"]
    files: list[File] = []
    for arm, data in profile["arms"].items():
        for file in data["files"]:
            files.append({**file, "path": f"{arm}/{file['path']}"})
    for file in [*files, *profile["extras"]]:
        path = folder / file["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["content"], "utf-8")
        path.chmod(int(file["mode"], 8))
        print(path.relative_to(WORK))
    profile_file = folder / "resolved.json"
    profile_file.write_text(json.dumps(profile, indent=1) + "\n", "utf-8")
    print(profile_file.relative_to(WORK))
    return DONE
