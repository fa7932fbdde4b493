"""Shapes of the JSON files that runs keep: results, ladders (load sweeps), resolved profiles and reports.

A file is checked when it is read, so that a damaged or edited one is refused with its name and the place of the error.
Most keys are optional, because earlier versions wrote fewer. Keys that no code reads are not checked. What the keys
mean is said where their types are: `result_types.py`, `sweep/ladder_types.py`, `report/report_types.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ..core.errors import DrafthouseError, first_few
from ..core.schema import Anything, Findings, List, Map, Shape, Table, Value, check

if TYPE_CHECKING:
    from drafthouse.bench.result_types import ArmResult
    from drafthouse.bench.sweep.ladder_types import Ladder

# Values that may be missing or null.
_TEXT = Value(str, null=True)
_NUMBER = Value(float, null=True)
_FLAG = Value(bool, null=True)
_COUNT = Value(int, null=True, low=0)
_SMALL_COUNT = Value(int, null=True, low=0, high=1_000_000)  # rounds, concurrency: a larger one is damage
_TEXTS = List(_TEXT, null=True)
_NUMBERS = List(_NUMBER, null=True)
# Values that must exist and are not null.
_REQUIRED_TEXT = Value(str, required=True)
_REQUIRED_NUMBER = Value(float, required=True)
_REQUIRED_FLAG = Value(bool, required=True)
_REQUIRED_COUNT = Value(int, required=True, low=0)
# Values whose key must exist, and which may be null.
_TEXT_NULL = Value(str, required=True, null=True)
_NUMBER_NULL = Value(float, required=True, null=True)


def _dict(fields: Mapping[str, Shape], *, required: bool = False) -> Map:
    """An object with these fields and any others; unless ``required``, it may be missing or null."""
    return Map(fields, required=required, others=True, null=not required)


def _dicts(fields: Mapping[str, Shape]) -> List:
    """A list of objects with these fields and any others; it may be missing or null."""
    return List(Map(fields, others=True), null=True)


_ANY = _dict({})
_ANY_DICTS = _dicts({})
_SPEEDUP = _dict(dict.fromkeys(("gain", "low", "high", "confidence", "reach"), _REQUIRED_NUMBER) | {
    "n": _REQUIRED_COUNT
})  # fmt: skip
_SPREAD = _dict({"median": _NUMBER, "p90": _NUMBER, "p99": _NUMBER})
_POWER = _dict(
    {
        "source": _TEXT_NULL,
        "why": _TEXT,
        "devices": _TEXTS,
        "gpus": _SMALL_COUNT,
        **dict.fromkeys(("idle_w", "mean_w", "energy_j"), _NUMBER_NULL),
        "energy_above_idle_j": _NUMBER,
        "seconds": _NUMBER,
        "output_tokens": _COUNT,
        "j_per_output_token": _NUMBER,
    }
)
_DRAFTING: dict[str, Shape] = {
    "spec_decode_acceptance_rate": _NUMBER,
    "spec_decode_acceptance_length": _NUMBER,
    "spec_decode_num_drafts": _COUNT,
    "spec_decode_draft_tokens": _COUNT,
    "spec_decode_accepted_tokens": _COUNT,
    "spec_decode_per_position_acceptance_rates": _NUMBERS,
    "spec_decode_source": _TEXT,
}
_REQUEST: dict[str, Shape] = {
    **dict.fromkeys(("prompt_id", "kind", "suite", "group", "status", "error", "finish_reason"), _TEXT),
    **dict.fromkeys(("text", "reasoning_text"), _TEXT),
    **dict.fromkeys(("temperature", "started_s", "avg_decoded_tokens_per_iter", "throttled_s"), _NUMBER),
    **dict.fromkeys(("ttft_ms", "ttfat_ms", "e2el_ms", "tpot_ms"), _NUMBER),
    **dict.fromkeys(("input_tokens", "output_tokens", "cached_tokens", "max_tokens", "tokenized", "chunks"), _COUNT),
    "round": _SMALL_COUNT,
    "http_status": _SMALL_COUNT,
    "throttled": _SMALL_COUNT,
    "itls_ms": _NUMBERS,
    "pieces": List(Value(int, low=0), null=True),
    "tool_calls": _dicts({"name": _TEXT, "arguments": _TEXT}),
    "gate": _dict({"name": _TEXT, "contains": _TEXT, "schema": Anything(), "tools": Table(Anything(), null=True)}),
    "timings": _dict({"predicted_n": _COUNT, "draft_n": _COUNT, "draft_n_accepted": _COUNT}),
    "spec_metrics": _ANY,
}
_GPU = _dicts({"index": _SMALL_COUNT, "name": _TEXT, "memory_used_bytes": _COUNT, "memory_total_bytes": _COUNT})
_STATE = _dict({"host": _TEXT, "gpus": _GPU, "cpu": _ANY, "memory": _ANY})
_DISTURBED = _dict({"polluted": _REQUIRED_FLAG, "said": _TEXT_NULL, "miscounted": _FLAG})
_MACHINE = _dict(
    {
        "before": _STATE,
        "after": _STATE,
        "groups": _dicts(
            {
                "round": _SMALL_COUNT,
                "group": _TEXT,
                "before": _STATE,
                "after": _STATE,
                "between": _dict({"seconds": _NUMBER, "own_cpu_s": _NUMBER, "busy_processes": _ANY_DICTS}),
                "clock": _DISTURBED,
            }
        ),
    }
)
_GPUS_MEASURED = List(
    Map(
        {
            "index": _REQUIRED_COUNT,
            **dict.fromkeys(("uuid", "name"), _REQUIRED_TEXT),
            "samples": _REQUIRED_COUNT,
            **dict.fromkeys(("sm_clock_median_mhz", "sm_clock_min_mhz"), _NUMBER_NULL),
            **dict.fromkeys(("memory_clock_median_mhz", "temperature_max_c", "power_median_w"), _NUMBER_NULL),
            **dict.fromkeys(("utilization_median_percent", "memory_used_max_bytes", "throttled_share"), _NUMBER_NULL),
            "reasons": Table(Value(float, low=0), required=True),
            "error": _TEXT_NULL,
        },
        required=True,
        others=True,
    ),
    required=True,
)
_SCORED = _dicts(
    {
        "group": _TEXT,
        "prompt_id": _TEXT,
        "round": Value(int, required=True),
        "temperature": _REQUIRED_NUMBER,
        "tokens": _REQUIRED_COUNT,
        "misses": _REQUIRED_COUNT,
        "mean_logprob": _REQUIRED_NUMBER,
        "worst": _REQUIRED_NUMBER,
        "same_text": _FLAG,
    }
)

RESULT = Map(
    {
        **dict.fromkeys(("schema", "arm", "profile", "key", "date", "backend", "model_id"), _TEXT),
        **dict.fromkeys(("duration", "output_throughput", "median_tpot_ms", "median_ttft_ms"), _NUMBER),
        **dict.fromkeys(("completed", "failed", "cut_off", "empty", "no_usage", "num_prompts"), _COUNT),
        **dict.fromkeys(("total_input_tokens", "total_output_tokens"), _COUNT),
        "max_concurrency": _SMALL_COUNT,
        "rounds": _SMALL_COUNT,
        **_DRAFTING,
        "groups": Table(Map(_DRAFTING, others=True), null=True),
        "machine": _MACHINE,
        "memory": _dict({"kv_tokens": _COUNT, "kv_bytes": _COUNT}),
        "engine": _dict({"id": _TEXT, "name": _TEXT, "runtime": _TEXT, "ready_s": _NUMBER}),
        "settings": _dict(
            {"concurrency": _SMALL_COUNT, "first_round": _SMALL_COUNT, "temperatures": _NUMBERS, "ignore_eos": _FLAG}
        ),
        "power": _POWER,
        "gpus": List(Map({"round": _SMALL_COUNT, "group": _TEXT, "gpus": _GPUS_MEASURED}, others=True), null=True),
        "suites": _TEXTS,
        "notes": _TEXTS,
        "tokenizer": _dict({"error": _TEXT}),
        "counters": _dicts(
            {
                "group": _TEXT,
                "round": _SMALL_COUNT,
                "before": _ANY,
                "after": _ANY,
                "counted": _ANY,
                "foreign": _DISTURBED,
            }
        ),
        "scored": _SCORED,
        "scoring": _dict({"why": _TEXT, "seconds": _NUMBER, "left": _SMALL_COUNT}),
        "requests": _dicts(_REQUEST),
    },
    others=True,
)

_ARM = Map(
    {
        "files": _dicts({"path": _REQUIRED_TEXT, "content": _TEXT, "mode": _TEXT, "part": _TEXT}),
        "flags": List(List(_TEXT), null=True),
        "speculation_flags": List(List(_TEXT)),
        "environment": Table(Anything(), null=True),
        "env": Table(Anything(), null=True),
        "fit": _dict({"kv_per_token": _REQUIRED_NUMBER, "devices": _SMALL_COUNT}),
    },
    others=True,
)
# Prompts of a resolved profile. A report keeps only hashes of them.
_SUITE = Map(
    {
        "name": _REQUIRED_TEXT,
        "kinds": Table(
            Map(
                {
                    "output_tokens": Value(int, required=True, low=1),
                    "repeat": Value(int, low=1, high=10_000),
                    "temperatures": List(Value(float)),
                    "request": _ANY,
                    "prompts": List(
                        Map(
                            {
                                "id": _REQUIRED_TEXT,
                                "messages": List(_ANY, required=True),
                                "output_tokens": Value(int, low=1),
                                "request": _ANY,
                            },
                            others=True,
                        ),
                        required=True,
                    ),
                },
                others=True,
            ),
            required=True,
        ),
    },
    others=True,
)
_TARGET = _dict({"id": _TEXT, "name": _TEXT, "revision": _TEXT, "sha256": _TEXT})
RESOLVED = Map(
    {
        **dict.fromkeys(("profile", "title", "article", "key", "synthetic", "unpinned"), _TEXT),
        "hardware": _dict({"id": _TEXT, "name": _TEXT, "bandwidth_gb_s": Value(float, low=1e-6)}),
        "engine": _dict({"id": _TEXT, "name": _TEXT, "version": _TEXT, "runtime": _TEXT}),
        "target": _TARGET,
        "draft": _TARGET,
        "method": _dict({"id": _TEXT, "name": _TEXT, "num_speculative_tokens": _SMALL_COUNT}),
        "experiment": _dict(
            {
                "suites": _TEXTS,
                "kinds": _TEXTS,
                "concurrency": _SMALL_COUNT,
                "rounds": _SMALL_COUNT,
                "most_rounds": _SMALL_COUNT,
                "schedule": _TEXT,
                "temperatures": _NUMBERS,
                "ladder": _ANY,
            }
        ),
        "expectation": _dict(
            dict.fromkeys(
                ("speedup", "acceptance", "bandwidth_bytes_s", "bytes_per_token", "draft_cost", "efficiency"), _NUMBER
            )
        ),
        "arms": Table(_ARM, null=True),
        "prompts": Table(Table(_TEXT), null=True),
        "suites": Table(_SUITE, null=True),
        "warnings": _TEXTS,
        # Results of older versions have box_kind instead of manage_host.
        "site": _dict(
            {"box_kind": _TEXT, "manage_host": _FLAG, "runtime": _TEXT, "price_per_hour": _NUMBER, "currency": _TEXT}
        ),
    },
    others=True,
)

_LEVEL: dict[str, Shape] = {
    "level": Value(float, required=True, low=0),
    "word": _REQUIRED_TEXT,
    "speedup": Map(_SPEEDUP.fields, required=True, others=True),
    "corrected": _SPEEDUP,
    "control": _SPEEDUP,
}
_LEVEL_CHANGE = _dict({"level": _REQUIRED_NUMBER, "change": _REQUIRED_NUMBER})
_CROSSOVER = _dict(
    {
        "word": _REQUIRED_TEXT,
        "levels": List(Map(_LEVEL, others=True), required=True),
        "gaps": List(Value(float), required=True),
        "reaches_top": _REQUIRED_FLAG,
        "pays_from": _NUMBER_NULL,
        "pays_until": _NUMBER_NULL,
        "interval": _NUMBERS,
        "quoted": _NUMBER,
        "beyond": _LEVEL_CHANGE,
        "at_the_top": _LEVEL_CHANGE,
        "missing": _dicts({"level": _NUMBER, "why": _TEXT}),
        "sentence": _TEXT,
        "reasons": _TEXTS,
        "starts": _dict({"rounds": Value(int, required=True)}),
        "threshold": _NUMBER,
        "prompts_needed": _NUMBER,
    }
)
LADDER = Map(
    {
        **dict.fromkeys(("schema", "profile", "key", "load", "unit"), _TEXT),
        "levels": List(Value(float, low=0), null=True),
        "limits": Table(_NUMBER, null=True),
        "rounds": _SMALL_COUNT,
        "kinds": _TEXTS,
        "notes": _TEXTS,
        "schedule": _ANY,
        "crossover": Table(_CROSSOVER, null=True),
        "steps": List(
            Map(
                {
                    "level": Value(float, required=True, low=0),
                    "arm": _REQUIRED_TEXT,
                    "round": Value(int, required=True, low=0, high=1_000_000),
                    "kind": _REQUIRED_TEXT,
                    "status": _REQUIRED_TEXT,
                    **dict.fromkeys(("ended_by",), _TEXT),
                    **dict.fromkeys(("started_unix_s", "duration_s", "output_throughput", "per_user_tok_s"), _NUMBER),
                    **dict.fromkeys(("request_throughput", "goodput"), _NUMBER),
                    **dict.fromkeys(("num_prompts", "completed", "failed"), _COUNT),
                    **dict.fromkeys(("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"), _SPREAD),
                    "tpot_by_prompt": Table(List(Value(float)), null=True),
                    "tpot_interval": _ANY,
                    "restarted": _FLAG,
                    "notes": _TEXTS,
                    "power": _POWER,
                    **_DRAFTING,
                },
                others=True,
            ),
            null=True,
        ),
    },
    others=True,
)

_ARMS = ("baseline", "speculative")
_LOAD_KIND: dict[str, Shape] = {
    "kind": _REQUIRED_TEXT,
    "word": _TEXT,
    "pays_from": _NUMBER,
    "pays_until": _NUMBER,
    "reaches_top": _FLAG,
    "interval": _NUMBERS,
}
_LOAD_ROW: dict[str, Shape] = {
    "kind": _REQUIRED_TEXT,
    "level": _REQUIRED_NUMBER,
    "speedup": _SPEEDUP,
    **{arm: _dict({"output_throughput": _NUMBER}) for arm in _ARMS},
}
REPORT = Map(
    {
        **dict.fromkeys(("schema", "profile", "title", "article", "key", "host", "date"), _TEXT),
        "verdict": Map(
            {
                "word": _REQUIRED_TEXT,
                "sentence": _TEXT,
                "reasons": _TEXTS,
                "speedup": _SPEEDUP,
                "scope": _dict({"groups": _TEXTS, "kinds": _TEXTS}),
                "outputs": _ANY,
                "starts": _ANY,
            },
            required=True,
            others=True,
        ),
        "kinds": _dicts({"group": _REQUIRED_TEXT, "speedup": Map(_SPEEDUP.fields, True, others=True, null=True)}),
        "acceptance": _dict({"overall": _dict({"rate": _NUMBER})}),
        "load": _dict({"unit": _TEXT, "kinds": _dicts(_LOAD_KIND), "rows": _dicts(_LOAD_ROW)}),
        "gates": _dicts({"name": _REQUIRED_TEXT, "title": _REQUIRED_TEXT, "word": _TEXT}),
        "cost": _dict(
            {
                "rows": _dicts(
                    {
                        "what": _REQUIRED_TEXT,
                        "unit": _TEXT_NULL,
                        **dict.fromkeys(_ARMS, Anything(required=True)),
                    }
                )
            }
        ),
        "warnings": _TEXTS,
        "resolved": RESOLVED,
    },
    others=True,
)


def with_gains(data: Any) -> Any:
    """``data`` of a report or a ladder itself, after `median` of each speed-up in it was renamed to `gain`.

    Earlier versions wrote `median`. Speed-ups are under the keys speedup, control and corrected, and by arm in stock.
    """
    if isinstance(data, list) and data and isinstance(data[0], dict):
        for item in data:
            with_gains(item)
    if not isinstance(data, dict):
        return data
    for name, value in data.items():
        with_gains(value)
        if name == "stock" and isinstance(value, dict):
            for arm in value.values():
                _rename_median(arm)
        elif name in ("speedup", "control", "corrected"):
            _rename_median(value)
    return data


def _rename_median(estimate: Any) -> None:
    """Rename the key in place; anything that is no speed-up with a `median` stays as it is."""
    if isinstance(estimate, dict) and "median" in estimate and "gain" not in estimate:
        estimate["gain"] = estimate.pop("median")


def checked(data: Mapping[str, Any], shape: Map, file: str) -> dict[str, Any]:
    """``data`` as a dict if it has the ``shape``; ``file`` names the file in errors.

    Raises DrafthouseError with the first places that differ from the shape.
    """
    findings = Findings(file)
    if not check(data, shape, findings):
        raise DrafthouseError(first_few(findings.problems, file))
    return dict(data)


def checked_result(data: Mapping[str, Any], file: str) -> ArmResult:
    """``data`` of the file named ``file`` as an arm's result. Raises DrafthouseError as `checked` does."""
    return cast("ArmResult", checked(data, RESULT, file))


def checked_ladder(data: Mapping[str, Any], file: str) -> Ladder:
    """``data`` of the file named ``file`` as a load sweep. Raises DrafthouseError as `checked` does."""
    return cast("Ladder", checked(with_gains(data), LADDER, file))
