"""Where the gateway's door is: requests are held there, and a replica says there that it takes none."""

from __future__ import annotations

NAME = "gateway"  # of the program, of the container (with the house's prefix), and of the folder


def door_folder(home: str) -> str:
    """Return the folder of the files with which requests are held."""
    return f"{home}/{NAME}/data/door"
