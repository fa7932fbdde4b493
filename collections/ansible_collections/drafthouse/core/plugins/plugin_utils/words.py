"""How actions say what is wrong: the problems travel in the result, the callback prints them."""

from __future__ import annotations

from typing import Any

from ..module_utils.core.errors import DrafthouseError


def failure(error: DrafthouseError) -> dict[str, Any]:
    """Return the result of a task that found ``error``."""
    return {"failed": True, "changed": False, **error.result}
