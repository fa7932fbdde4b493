"""A home on this machine for the lane's own runs, as the end-to-end tests have one."""

from __future__ import annotations

from tests.e2e.conftest import home, port, run

__all__ = ["home", "port", "run"]
