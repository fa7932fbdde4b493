"""Overrides: values that replace a profile's for one run or one trial, after the catalogue and the profile."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Profile, Unchecked


def laid_over(base: Unchecked, changes: Unchecked, *, nulls: bool = True) -> Unchecked:
    """A copy of ``base`` with the values of ``changes``, merged mapping by mapping; lists are replaced as a whole.

    ``nulls``: True if a null is a value like any other, False if it removes its key.
    """
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
    """A copy of the profile with ``overrides``, not checked yet; a null removes its key, such as an unwanted draft."""
    return cast("Profile", laid_over(cast("Unchecked", copy.deepcopy(profile)), overrides, nulls=False))
