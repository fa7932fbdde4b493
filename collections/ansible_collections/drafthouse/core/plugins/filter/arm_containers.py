"""Filters over module_utils, for roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..module_utils.profiles.container import arm_container

if TYPE_CHECKING:
    from ..module_utils.profiles.container import Container
    from ..module_utils.profiles.resolved_types import ResolvedProfile


class FilterModule:
    """`drafthouse.core.arm_containers`: the containers of a resolved profile's arms, for the module `containers`."""

    def filters(self) -> dict[str, Callable[..., list[Container]]]:
        """The filters by their names."""
        return {"arm_containers": arm_containers}


def arm_containers(resolved: ResolvedProfile, arms: Mapping[str, int], ready_timeout_s: int = 0) -> list[Container]:
    """The containers of ``arms``, each at its port."""
    return [arm_container(resolved, arm, int(port), int(ready_timeout_s)) for arm, port in arms.items()]
