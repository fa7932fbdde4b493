"""Filters over module_utils, for roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..module_utils.addons.gateway import alternative_names


class FilterModule:
    """`drafthouse.core.alternative_names`: names and addresses as a certificate's SubjectAltName says them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by their names."""
        return {"alternative_names": alternative_names}
