"""What the files of `profiles/catalog/` look like: their keys, types and words."""

from __future__ import annotations

from dataclasses import replace

from ..core.schema import Anything, List, Map, Shape, Table, Value
from ..engines.registry import DIALECTS
from .catalog_types import TRAITS
from .exposure import GIVES
from .forms import (
    FILE,
    FOLDER,
    IMAGE,
    NAME,
    NUMBER,
    OPTION,
    ROUTE,
    TAG,
    VALUE,
    VARIABLE,
    VERSION,
)
from .recipe_versions import RECIPE_VERSIONS

_TEXT, _NEEDED_TEXT = Value(str), Value(str, required=True)
_COUNT, _NEEDED_COUNT = Value(int, low=1), Value(int, required=True, low=1)
_SHARE = Value(float, low=0, high=1)
_FILE, _NAME, _IMAGE_NAME, _ROUTE = Value(form=FILE), Value(form=NAME), Value(form=IMAGE), Value(form=ROUTE)
_VERSION = Value(form=VERSION)
_ENVIRONMENT = Table(_TEXT, names=VARIABLE)

HARDWARE = Table(
    Map(
        {
            "name": _NEEDED_TEXT,
            "kind": Value(str, required=True, choices=("cpu", "gpu", "amd")),
            "inventory": Value(str, required=True, choices=("local", "workstation", "vastai")),
            "devices": _NEEDED_COUNT,
            "gpu_names": List(_TEXT),
            "vast_names": List(_TEXT),
            "memory_mib": _NEEDED_COUNT,
            "system_mib": _COUNT,
            "bandwidth_gb_s": Value(float, required=True, low=0.1),
            "compute_capability": Value(form=NUMBER),
        }
    )
)

_SOURCE = Map(
    {
        "path": Value(form=VALUE),
        "package": Map({"name": _NEEDED_TEXT, "version": _NEEDED_TEXT, "file": _NEEDED_TEXT, "sha256": _NEEDED_TEXT}),
        "derived": Map(
            {
                "from": _NEEDED_TEXT,
                "recipe": Value(
                    str,
                    required=True,
                    choices=tuple(RECIPE_VERSIONS),
                ),
                "parameters": Anything(),
            }
        ),
        "hub": Map(
            {
                "repo": _NEEDED_TEXT,
                "revision": _NEEDED_TEXT,
                "branch": _TEXT,
                "allow": List(_TEXT),
                "ignore": List(_TEXT),
            }
        ),
    },
    required=True,
    one_of=True,
)

#: Configurations that are not as transformers has them: speculators (vllm-project/speculators).
_LAYOUTS = ("speculators",)
MODELS = Table(
    Map(
        {
            "name": _NEEDED_TEXT,
            "served_name": Value(form=VALUE),
            "kind": Value(str, required=True, choices=("model", "head")),
            "head_for": _TEXT,
            "works_on": List(_TEXT),
            "head_method": _TEXT,
            "max_speculative_tokens": _COUNT,
            "speculators": Map({"target": _NEEDED_TEXT, "tokens": _NEEDED_COUNT}),
            "builtin_head": Map(
                {
                    "kind": Value(required=True, form=NAME),
                    "layers": _NEEDED_COUNT,
                    "tensors": List(_TEXT, required=True),
                    "dtypes": Table(List(_TEXT, required=True)),
                    "n_predict": _COUNT,
                    "max_tokens": _COUNT,
                    "weight_bytes": _COUNT,
                    "read_bytes": _COUNT,
                    "has_it": _TEXT,
                }
            ),
            "since": Table(_VERSION),
            "traits": List(Value(str, choices=TRAITS)),
            "format": Value(str, required=True, choices=("gguf", "safetensors")),
            "layout": Value(str, choices=_LAYOUTS),
            "folder": Value(required=True, form=FILE),
            "file": _FILE,
            "license": _NEEDED_TEXT,
            "gated": Value(bool),
            "allow_pickle": Map({"files": List(_TEXT, required=True), "reason": _NEEDED_TEXT}),
            "synthetic": _TEXT,
            "source": _SOURCE,
            "weight_bytes": _NEEDED_COUNT,
            "read_bytes": _COUNT,
            "parameters": _NEEDED_COUNT,
            "layers": _NEEDED_COUNT,
            "kv_layers": Value(int, low=0),
            "window_bytes": _COUNT,
            "state_bytes": _COUNT,
            "hidden": _NEEDED_COUNT,
            "heads": _NEEDED_COUNT,
            "kv_heads": _NEEDED_COUNT,
            "head_dim": _NEEDED_COUNT,
            "vocab": _NEEDED_COUNT,
            "context": _NEEDED_COUNT,
            "tokenizer": _NEEDED_TEXT,
            "temperature": Value(float, low=0, high=2),
            "quantization": _NAME,
        }
    )
)

_SINCE_UNTIL: dict[str, Shape] = {
    "since": _VERSION,
    "until": _VERSION,
    "except": Map({"since": Value(required=True, form=VERSION), "until": Value(required=True, form=VERSION)}),
}
# Another spelling in some versions; '' where the version has no such word and needs none.
_SPELLED = List(Map({"as": _NEEDED_TEXT, **_SINCE_UNTIL}))
_TYPES = ("int", "float", "str", "bool", "schedule")
_CHOICES = Table(Map({"spelled": _SPELLED, **_SINCE_UNTIL}))
_INSTALL = Map(
    {
        "python_packages": List(_TEXT, required=True),
        "no_deps_packages": List(_TEXT),
        "launcher": _FILE,
        "lock": _FILE,
        "tools": List(_FILE),
        "torch_backend": _TEXT,
        "prerelease": Value(bool),
        "unpinned": Value(bool),
        "extra_index_url": _TEXT,
        "metadata_stub": Map({"name": _NEEDED_TEXT, "version": _NEEDED_TEXT}),
        "glibc": _TEXT,
    }
)
_REQUIRES = Map({"serve": Anything(), "environment": _ENVIRONMENT, "reason": _NEEDED_TEXT})
_METHOD = Map(
    {
        "draft": Value(str, required=True, choices=("model", "head", "lookup", "builtin")),
        "or_head": Value(bool),
        "head": _NAME,
        "whole_passes": Value(bool),
        "one_pass": Value(bool),
        "value": _TEXT,
        **_SINCE_UNTIL,
        "reason": _TEXT,
        "match": Map({"tokenizer": Value(bool), "vocab_difference": Value(int, low=0)}),
        "usual_tokens": _COUNT,
        "all_heads": Value(bool),
        "requires": _REQUIRES,
        "source_packages": List(_TEXT),
        "build_packages": List(_TEXT),
        "names": Table(_TEXT, required=True),
        "spelled": Table(_SPELLED),
        "always": Anything(),
        "follows": Table(Value(int)),
        "options": Table(
            Map(
                {
                    "name": _NEEDED_TEXT,
                    "type": Value(str, required=True, choices=_TYPES),
                    "choices": _CHOICES,
                    "spelled": _SPELLED,
                    **_SINCE_UNTIL,
                    "reason": _TEXT,
                }
            )
        ),
    }
)
_OPTION = Map(
    {
        "flag": _TEXT,
        "yaml": _TEXT,
        "environment": Value(form=VARIABLE),
        "type": Value(str, required=True, choices=(*_TYPES, "tokens")),
        "means": Table(Map({"is": Value(required=True, choices=("fit", "model")), **_SINCE_UNTIL})),
        "unless_said": Value(float),
        "warning": _TEXT,
        "choices": _CHOICES,
        "spelled": _SPELLED,
        "server_only": Value(bool),
        "refused_on": Table(Map({"values": List(_TEXT, required=True), "reason": _NEEDED_TEXT})),
        **_SINCE_UNTIL,
    }
)
_IMAGE = Map({"name": Value(required=True, form=IMAGE), "tag": Value(required=True, form=TAG), "digest": _IMAGE_NAME})
ENGINE = Map(
    {
        "name": _NEEDED_TEXT,
        "family": _TEXT,
        "template": Value(required=True, form=FILE),
        "offline_template": _FILE,
        "formats": List(_TEXT, required=True),
        "unread_layouts": List(Value(str, choices=_LAYOUTS)),
        "health": Value(required=True, form=ROUTE),
        "ready_timeout_s": _NEEDED_COUNT,
        "metrics": Map(
            {
                "dialect": Value(str, required=True, choices=tuple(DIALECTS)),
                "path": _ROUTE,
                "key": Value(bool, required=True),
                "ask": _NAME,
            },
            required=True,
        ),
        "open_paths": Map(
            {
                "ask": Value(str, required=True, choices=("GET", "PATCH")),
                "lists": _TEXT,
                "guards": Table(Map(_SINCE_UNTIL)),
                "routes": Table(
                    Map({"gives": Value(str, required=True, choices=GIVES), "guarded": Value(bool), **_SINCE_UNTIL}),
                    required=True,
                ),
            },
            required=True,
        ),
        "scores": Map(
            {
                "by": Value(str, required=True, choices=("prompt_logprobs",)),
                "tokens": _NEEDED_COUNT,
                **_SINCE_UNTIL,
            }
        ),
        "proof": Map({"proven": _NEEDED_TEXT, "missing": _TEXT}),
        "overhead_mib": _NEEDED_COUNT,
        "kv_bytes_per_value": _NEEDED_COUNT,
        "kv_type_option": _TEXT,
        "kv_bytes_by_type": Table(Value(float, low=0.1), names=NAME),
        "reserves": Value(str, required=True, choices=("needed", "share", "share_of_free")),
        "default_version": Value(required=True, form=VERSION),
        "releases": List(_VERSION),
        "versions": Table(
            Map(
                {
                    "reason": _NEEDED_TEXT,
                    "pinned": _NEEDED_TEXT,
                    "install": Table(_INSTALL),
                    "image": _IMAGE,
                }
            ),
            required=True,
            names=VERSION,
        ),
        "install": Table(_INSTALL, required=True),
        "image": _IMAGE,
        "rental_image": _IMAGE_NAME,
        "cuda": List(Map({"cuda": _NEEDED_TEXT, "driver": _NEEDED_TEXT, **_SINCE_UNTIL})),
        "shared_memory_mib": _COUNT,
        "nightly": Map({"reason": _NEEDED_TEXT, "install": Table(_INSTALL, required=True), "image": _IMAGE}),
        "plugin": Map(
            {
                "package": _NEEDED_TEXT,
                "versions": Table(_VERSION, required=True, names=VERSION),
                "flags": Map({"none": List(_TEXT, required=True), "one": List(_TEXT, required=True)}),
                "reason": _NEEDED_TEXT,
            }
        ),
        "container": Map(
            {
                "ipc": _NAME,
                "environment": _ENVIRONMENT,
                "ulimits": Table(Value(int), names=VARIABLE),
                "cache": Value(form=FOLDER),
            }
        ),
        "launch": Map(
            {
                "command": List(_TEXT, required=True),
                "target": _TEXT,
                "name": _TEXT,
                "host": _NEEDED_TEXT,
                "port": _NEEDED_TEXT,
                "key_file": _TEXT,
                "key_environment": Value(form=VARIABLE),
                "key_inside": _TEXT,
                "config": Map(
                    {
                        "flag": _NEEDED_TEXT,
                        "files": Table(_FILE, required=True),
                        "template": Value(required=True, form=FILE),
                        "always": Table(Map({"value": Anything(required=True), **_SINCE_UNTIL})),
                    }
                ),
                "always": List(List(_TEXT)),
                "environment": _ENVIRONMENT,
                "environment_by_kind": Table(_ENVIRONMENT),
                "environment_by_gpu": List(
                    Map(
                        {
                            "compute_capability": List(Value(form=NUMBER)),
                            "quantization": List(_NAME),
                            "environment": Table(_TEXT, required=True, names=VARIABLE),
                        }
                    )
                ),
            },
            required=True,
        ),
        "options": Table(_OPTION, required=True, names=OPTION),
        "flag_style": Value(str, choices=("-", "_")),
        "reserved": List(Map({"flags": List(_TEXT), "environment": List(_TEXT), "by": _TEXT, "warning": _TEXT})),
        "context_option": _NEEDED_TEXT,
        "sequences_option": _NEEDED_TEXT,
        "sequences_default": _COUNT,
        "context_is_shared": Value(bool, required=True),
        "share_option": _TEXT,
        "share_default": _SHARE,
        "devices_option": _TEXT,
        "copies_option": _TEXT,
        "speculation": Map(
            {
                "form": Value(str, required=True, choices=("flags", "json", "yaml")),
                "flag": _TEXT,
                "key": _TEXT,
                "at_most": Table(Map({"most": Value(int, required=True), "reason": _NEEDED_TEXT}), names=OPTION),
            },
            required=True,
        ),
        "methods": Table(_METHOD, required=True, names=NAME),
    }
)

# As it stands in a file: what it does not say itself is taken from the engine it is `like`, null takes that away.
ENGINE_FILE = Map(
    {
        "like": _NAME,
        **{name: replace(shape, required=False, null=True) for name, shape in ENGINE.fields.items()},
    }
)

GPUS = Map(
    {
        "generations": Table(
            Map(
                {
                    "open": Value(str, required=True, choices=("required", "recommended", "impossible")),
                    "cuda13": Value(bool, required=True),
                    "first_branch": _COUNT,
                    "last_branch": _COUNT,
                }
            ),
            required=True,
        ),
        "cards": Table(Map({"name": _NEEDED_TEXT, "generation": _NEEDED_TEXT, "first_branch": _COUNT}), required=True),
        "ranges": List(Map({"first": _NEEDED_TEXT, "last": _NEEDED_TEXT, "generation": _NEEDED_TEXT}), required=True),
    }
)
