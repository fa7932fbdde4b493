"""Overrides: values that replace a profile's for one run or one trial, after the catalogue and the profile. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Profile, Unchecked


def laid_over(base: Unchecked, changes: Unchecked, *, nulls: bool = True) -> Unchecked:
    """``base`` with the values of ``changes``, merged mapping by mapping; if not ``nulls``, a null removes its key."""
    merged = dict(base)
    for key, value in changes.items():
        if isinstance(value, Mapping):
            inner = merged.get(key)
            merged[key] = laid_over(inner if isinstance(inner, Mapping) else {}, value, nulls=nulls)
        elif value is None and not nulls:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def with_overrides(profile: Profile, overrides: Unchecked) -> Profile:
    """The profile with ``overrides``, not checked yet; a null removes a key, such as the draft for another method."""
    return cast("Profile", laid_over(cast("Unchecked", copy.deepcopy(profile)), overrides, nulls=False))
