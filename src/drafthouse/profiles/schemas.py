"""The shapes of a profile, a site and the files of `profiles/catalog/`: their keys, types and allowed values."""

from __future__ import annotations

from dataclasses import replace

from ..core.forms import NAME
from ..core.schema import Map, Table, Value
from ..core.typed_shape import shape_of
from ..engines.entry_types import EngineEntry, Metrics
from ..engines.registry import DIALECTS
from . import several_hosts
from .catalog_types import Gpus, HardwareEntry, ModelEntry
from .profile_types import Profile, Site

PROFILE = shape_of(Profile)
SITE = Map({**shape_of(Site).fields, **several_hosts.SETTINGS})

HARDWARE = Table(shape_of(HardwareEntry))
MODELS = Table(shape_of(ModelEntry))
GPUS = shape_of(Gpus)

# The engines that Drafthouse knows are not part of the types: the dialect of an engine's counters is checked here.
_DIALECT = Value(required=True, choices=tuple(DIALECTS))
_METRICS = Map({**shape_of(Metrics).fields, "dialect": _DIALECT}, required=True)
ENGINE = Map({**shape_of(EngineEntry).fields, "metrics": _METRICS})

# In a file every key is optional: a missing key is that of the engine named by `like`, and null removes that key.
ENGINE_FILE = Map(
    {
        "like": Value(form=NAME),
        **{name: replace(shape, required=False, null=True) for name, shape in ENGINE.fields.items()},
    }
)
