"""The paths of the gateway's sockets and its certificate on a box; ``home`` is Drafthouse's folder on that box.

Standard library only.
"""

from __future__ import annotations

NAME = "gateway"  # name of the program, of its folder, and (after "drafthouse-") of the container


def door_folder(home: str) -> str:
    """The folder of the files with which the watchdog holds requests (`watchdog/switch.py`)."""
    return f"{home}/{NAME}/data/door"


def ready_socket(home: str) -> str:
    """The socket of the program that answers /ready (`addons/fleet/ready.py`)."""
    return f"{door_folder(home)}/ready.sock"


def admin_socket(home: str) -> str:
    """The socket of Caddy's admin API on a fleet's front, in a folder that only its owner may enter."""
    return f"{home}/{NAME}/data/admin/admin.sock"


def certificate_file(home: str) -> str:
    """The certificate that is created on the box if it has no public name."""
    return f"{home}/{NAME}/tls/certificate.pem"
