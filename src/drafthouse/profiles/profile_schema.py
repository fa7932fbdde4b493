"""What a profile looks like: its keys, types and words."""

from __future__ import annotations

from ..core.schema import Anything, List, Map, Table, Value
from .forms import NAME, VARIABLE

_TEXT, _NEEDED_TEXT = Value(str), Value(str, required=True)
_COUNT = Value(int, low=1)

# How far a load ladder goes (one of levels, to, rates), how long a step may take, and how sharp is sharp enough.
_LADDER = Map(
    {
        "levels": List(_COUNT),
        "to": _COUNT,
        "rates": List(Value(float)),
        "seconds": Value(float, low=1),
        "narrow": Value(float, low=0.001, high=1),
        "kinds": List(_TEXT),
        "limits": Map({"ttft_ms": Value(float, low=0.1), "tpot_ms": Value(float, low=0.1)}),
        "rounds": Value(int, low=1, high=1_000),
    }
)

# What `make tune` may change: options with the values to try; and, to narrow it, methods, drafts and K.
_TUNABLE = Map(
    {
        "serve": Table(List(Anything())),
        "options": Table(List(Anything())),
        "methods": List(_TEXT),
        "drafts": List(_TEXT),
        "num_speculative_tokens": List(_COUNT),
    }
)

PROFILE = Map(
    {
        "title": _NEEDED_TEXT,
        "article": _TEXT,
        "hardware": _NEEDED_TEXT,
        "engine": _NEEDED_TEXT,
        "engine_version": _TEXT,
        "plugin_version": _TEXT,
        "channel": Value(str, choices=("stable", "nightly")),
        "runtimes": List(Value(str, choices=("docker", "process"))),
        "target": _NEEDED_TEXT,
        "speculation": Map(
            {
                "method": _NEEDED_TEXT,
                "draft": _TEXT,
                "num_speculative_tokens": Value(int, required=True, low=1),
                "options": Anything(),
            },
            required=True,
        ),
        "serve": Anything(),
        "environment": Table(_TEXT, names=VARIABLE),
        "temperature": Value(float, low=0, high=2),
        "expect": Map({"acceptance": Value(float, required=True, low=0, high=1), "source": _NEEDED_TEXT}),
        "experiment": Map(
            {
                "suites": List(_TEXT, required=True),
                "kinds": List(_TEXT),
                "once": List(_TEXT),
                "prompts_per_kind": Map({"declared": _COUNT, "others": _COUNT}),
                "max_output_tokens": Value(int, low=8),
                "stock": Value(bool),
                "concurrency": _COUNT,
                # To begin with; the budget buys more of them while the evidence is in doubt (`experiment_plan.py` looks
                # at it).
                "rounds": Value(int, low=2, high=1_000),
                "budget": Anything(),
                "most_rounds": Value(int, low=2, high=1_000),
                "schedule": Value(str, choices=("auto", "interleaved", "alternated")),
                "ladder": _LADDER,
            },
            required=True,
        ),
        "verified": List(_TEXT),
        # Known issues (catalog/known-issues.yml) that it runs into all the same, and why that is right.
        "accept_known_issues": Table(_TEXT, names=NAME),
        "tunable": _TUNABLE,
        # What the tuner left in a profile it wrote: where the values come from, and what they brought.
        "tuned": Anything(),
    }
)
