"""The shape of the table of GPUs, `profiles/catalog/gpus.yml`."""

from __future__ import annotations

from ..core.schema import List, Map, Table, Value

_NEEDED_TEXT, _COUNT = Value(str, required=True), Value(int, low=1)
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
