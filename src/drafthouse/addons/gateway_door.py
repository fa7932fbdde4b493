"""Where the gateway's sockets and its certificate are. Standard library only."""

from __future__ import annotations

NAME = "gateway"  # of the program, of the container (with the house's prefix), and of the folder


def door_folder(home: str) -> str:
    """The folder of the files with which requests are held."""
    return f"{home}/{NAME}/data/door"


def ready_socket(home: str) -> str:
    """The socket of the program that answers /ready (`addons/fleet/ready.py`)."""
    return f"{door_folder(home)}/ready.sock"


def admin_socket(home: str) -> str:
    """The socket of a front's admin API, in a folder that only its owner may enter; ``home`` is the front's."""
    return f"{home}/{NAME}/data/admin/admin.sock"


def certificate_file(home: str) -> str:
    """The certificate that was made on the box."""
    return f"{home}/{NAME}/tls/certificate.pem"
