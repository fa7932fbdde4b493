#!/usr/bin/env python3
"""Unpack a bundle into a folder, every byte verified; needs nothing but Python. With --wheels its wheels alone.

What `make PROFILE BUNDLE=file` begins with, so that the controller's own environment needs no network either.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _clone import run

from drafthouse.core.exit_codes import DONE
from drafthouse.operate.offline_bundle import unpack


def main() -> int:
    """Unpack; a folder that holds this very bundle already is left alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, help="the file that make bundle made")
    parser.add_argument("folder", type=Path, help="where to")
    parser.add_argument("--wheels", action="store_true", help="unpack its wheels alone")
    given = parser.parse_args()

    def tell(event: Mapping[str, Any]) -> None:
        """Say nothing: it takes seconds."""

    unpack(given.bundle, given.folder, tell, "wheels/" if given.wheels else "")
    return DONE


if __name__ == "__main__":
    run(main)
