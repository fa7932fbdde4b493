"""The filter `alternative_names` for the role gateway, from module_utils."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..module_utils.addons.gateway import alternative_names


class FilterModule:
    """`drafthouse.core.alternative_names`: names and addresses in the form of a certificate's SubjectAltName."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return {"alternative_names": alternative_names}
