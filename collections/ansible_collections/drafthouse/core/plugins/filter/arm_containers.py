"""The filter `arm_containers` for the role serve, from module_utils."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..module_utils.profiles.container import arm_container

if TYPE_CHECKING:
    from ..module_utils.profiles.container import Container
    from ..module_utils.profiles.resolved_types import ResolvedProfile


class FilterModule:
    """`drafthouse.core.arm_containers`: containers of a profile's arms, for the module `containers`."""

    def filters(self) -> dict[str, Callable[..., list[Container]]]:
        """Filters by name."""
        return {"arm_containers": arm_containers}


def arm_containers(resolved: ResolvedProfile, arms: Mapping[str, int], ready_timeout_s: int = 0) -> list[Container]:
    """Containers of ``arms`` (the port of each arm by name). ``ready_timeout_s``: see `arm_container`."""
    return [arm_container(resolved, arm, int(port), int(ready_timeout_s)) for arm, port in arms.items()]
