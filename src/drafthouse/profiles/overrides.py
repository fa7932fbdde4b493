"""What is laid over a profile for one run or one trial: the third and last layer. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Profile, Unchecked


def laid_over(base: Unchecked, more: Unchecked, *, nulls: bool = True) -> Unchecked:
    """``more`` laid over ``base``, mapping by mapping; without ``nulls`` a null takes the key away."""
    merged = dict(base)
    for key, value in more.items():
        if isinstance(value, Mapping):
            below = merged.get(key)
            merged[key] = laid_over(below if isinstance(below, Mapping) else {}, value, nulls=nulls)
        elif value is None and not nulls:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def changed(profile: Profile, overrides: Unchecked) -> Profile:
    """A profile with what is laid over it, checked by nobody yet; a null takes the key away.

    Another method has no draft: its overrides say `draft: null`.
    """
    return cast("Profile", laid_over(cast("Unchecked", copy.deepcopy(profile)), overrides, nulls=False))
