"""The shape of what runs keep, as far as reports are made of it: results, ladders, resolved profiles and reports.

Looked at where such a file is read, so that a damaged one, or one that was edited, is refused by its name and the place
in it. What a key may hold is said and not that it is there: earlier versions wrote less, and what they left out is
not known. Fields that nobody reads are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ..core.errors import DrafthouseError, first_few
from ..core.schema import Anything, Findings, List, Map, Shape, Table, Value, check

if TYPE_CHECKING:
    from drafthouse.bench.result_types import ArmResult
    from drafthouse.bench.sweep.ladder_types import Ladder

_TEXT, _NUMBER, _FLAG = Value(str, null=True), Value(float, null=True), Value(bool, null=True)
# Of a key that has to be there, with a value or maybe null.
_NEEDED_TEXT, _NEEDED_NUMBER = Value(str, required=True), Value(float, required=True)
_NEEDED_FLAG, _NEEDED_COUNT = Value(bool, required=True), Value(int, required=True, low=0)
_MUST_TEXT, _MUST_NUMBER = Value(str, required=True, null=True), Value(float, required=True, null=True)
_COUNT = Value(int, null=True, low=0)
_SOME = Value(int, null=True, low=0, high=1_000_000)
_TEXTS, _NUMBERS = List(_TEXT, null=True), List(_NUMBER, null=True)


def _open(fields: Mapping[str, Shape], *, required: bool = False) -> Map:
    return Map(fields, required=required, others=True, null=not required)


def _rows(fields: Mapping[str, Shape]) -> List:
    return List(Map(fields, others=True), null=True)


_ANY = _open({})
_ANY_ROWS = _rows({})
_GAIN = _open(dict.fromkeys(("gain", "low", "high", "confidence", "reach"), _NEEDED_NUMBER) | {
    "n": _NEEDED_COUNT
})  # fmt: skip
_SPREAD = _open({"median": _NUMBER, "p90": _NUMBER, "p99": _NUMBER})
_POWER = _open(
    {
        "source": _MUST_TEXT,
        "why": _TEXT,
        "devices": _TEXTS,
        "gpus": _SOME,
        **dict.fromkeys(("idle_w", "mean_w", "energy_j"), _MUST_NUMBER),
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
    "round": _SOME,
    "http_status": _SOME,
    "throttled": _SOME,
    "itls_ms": _NUMBERS,
    "pieces": List(Value(int, low=0), null=True),
    "tool_calls": _rows({"name": _TEXT, "arguments": _TEXT}),
    "gate": _open({"name": _TEXT, "contains": _TEXT, "schema": Anything(), "tools": Table(Anything(), null=True)}),
    "timings": _open({"predicted_n": _COUNT, "draft_n": _COUNT, "draft_n_accepted": _COUNT}),
    "spec_metrics": _ANY,
}
_GPU = _rows({"index": _SOME, "name": _TEXT, "memory_used_bytes": _COUNT, "memory_total_bytes": _COUNT})
_STATE = _open({"host": _TEXT, "gpus": _GPU, "cpu": _ANY, "memory": _ANY})
_DISTURBED = _open({"polluted": _NEEDED_FLAG, "said": _MUST_TEXT, "miscounted": _FLAG})
_MACHINE = _open(
    {
        "before": _STATE,
        "after": _STATE,
        "groups": _rows(
            {
                "round": _SOME,
                "group": _TEXT,
                "before": _STATE,
                "after": _STATE,
                "between": _open({"seconds": _NUMBER, "own_cpu_s": _NUMBER, "busy_processes": _ANY_ROWS}),
                "clock": _DISTURBED,
            }
        ),
    }
)
_GPUS_MEASURED = List(
    Map(
        {
            "index": _NEEDED_COUNT,
            **dict.fromkeys(("uuid", "name"), _NEEDED_TEXT),
            "samples": _NEEDED_COUNT,
            **dict.fromkeys(("sm_clock_median_mhz", "sm_clock_min_mhz"), _MUST_NUMBER),
            **dict.fromkeys(("memory_clock_median_mhz", "temperature_max_c", "power_median_w"), _MUST_NUMBER),
            **dict.fromkeys(("utilization_median_percent", "memory_used_max_bytes", "throttled_share"), _MUST_NUMBER),
            "reasons": Table(Value(float, low=0), required=True),
            "error": _MUST_TEXT,
        },
        required=True,
        others=True,
    ),
    required=True,
)
_SCORED = _rows(
    {
        "group": _TEXT,
        "prompt_id": _TEXT,
        "round": Value(int, required=True),
        "temperature": _NEEDED_NUMBER,
        "tokens": _NEEDED_COUNT,
        "misses": _NEEDED_COUNT,
        "mean_logprob": _NEEDED_NUMBER,
        "worst": _NEEDED_NUMBER,
        "same_text": _FLAG,
    }
)

RESULT = Map(
    {
        **dict.fromkeys(("schema", "arm", "profile", "key", "date", "backend", "model_id"), _TEXT),
        **dict.fromkeys(("duration", "output_throughput", "median_tpot_ms", "median_ttft_ms"), _NUMBER),
        **dict.fromkeys(("completed", "failed", "cut_off", "empty", "no_usage", "num_prompts"), _COUNT),
        **dict.fromkeys(("total_input_tokens", "total_output_tokens"), _COUNT),
        "max_concurrency": _SOME,
        "rounds": _SOME,
        **_DRAFTING,
        "groups": Table(Map(_DRAFTING, others=True), null=True),
        "machine": _MACHINE,
        "memory": _open({"kv_tokens": _COUNT, "kv_bytes": _COUNT}),
        "engine": _open({"id": _TEXT, "name": _TEXT, "runtime": _TEXT, "ready_s": _NUMBER}),
        "settings": _open({"concurrency": _SOME, "first_round": _SOME, "temperatures": _NUMBERS, "ignore_eos": _FLAG}),
        "power": _POWER,
        "gpus": List(Map({"round": _SOME, "group": _TEXT, "gpus": _GPUS_MEASURED}, others=True), null=True),
        "suites": _TEXTS,
        "notes": _TEXTS,
        "tokenizer": _open({"error": _TEXT}),
        "counters": _rows(
            {"group": _TEXT, "round": _SOME, "before": _ANY, "after": _ANY, "counted": _ANY, "foreign": _DISTURBED}
        ),
        "scored": _SCORED,
        "scoring": _open({"why": _TEXT, "seconds": _NUMBER, "left": _SOME}),
        "requests": _rows(_REQUEST),
    },
    others=True,
)

_ARM = Map(
    {
        "files": _rows({"path": _NEEDED_TEXT, "content": _TEXT, "mode": _TEXT, "part": _TEXT}),
        "flags": List(List(_TEXT), null=True),
        "speculation_flags": List(List(_TEXT)),
        "environment": Table(Anything(), null=True),
        "env": Table(Anything(), null=True),
        "fit": _open({"kv_per_token": _NEEDED_NUMBER, "devices": _SOME}),
    },
    others=True,
)
# Of a profile that was resolved and not reported yet: its prompts, of which a report keeps hashes.
_SUITE = Map(
    {
        "name": _NEEDED_TEXT,
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
                                "id": _NEEDED_TEXT,
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
_TARGET = _open({"id": _TEXT, "name": _TEXT, "revision": _TEXT, "sha256": _TEXT})
RESOLVED = Map(
    {
        **dict.fromkeys(("profile", "title", "article", "key", "synthetic", "unpinned"), _TEXT),
        "hardware": _open({"id": _TEXT, "name": _TEXT, "bandwidth_gb_s": Value(float, low=1e-6)}),
        "engine": _open({"id": _TEXT, "name": _TEXT, "version": _TEXT, "runtime": _TEXT}),
        "target": _TARGET,
        "draft": _TARGET,
        "method": _open({"id": _TEXT, "name": _TEXT, "num_speculative_tokens": _SOME}),
        "experiment": _open(
            {
                "suites": _TEXTS,
                "kinds": _TEXTS,
                "concurrency": _SOME,
                "rounds": _SOME,
                "most_rounds": _SOME,
                "schedule": _TEXT,
                "temperatures": _NUMBERS,
                "ladder": _ANY,
            }
        ),
        "expectation": _open(
            dict.fromkeys(
                ("speedup", "acceptance", "bandwidth_bytes_s", "bytes_per_token", "draft_cost", "efficiency"), _NUMBER
            )
        ),
        "arms": Table(_ARM, null=True),
        "prompts": Table(Table(_TEXT), null=True),
        "suites": Table(_SUITE, null=True),
        "warnings": _TEXTS,
        # box_kind: of results before manage_host.
        "site": _open(
            {"box_kind": _TEXT, "manage_host": _FLAG, "runtime": _TEXT, "price_per_hour": _NUMBER, "currency": _TEXT}
        ),
    },
    others=True,
)

_LEVEL: dict[str, Shape] = {
    "level": Value(float, required=True, low=0),
    "word": _NEEDED_TEXT,
    "speedup": Map(_GAIN.fields, required=True, others=True),
    "corrected": _GAIN,
    "control": _GAIN,
}
_WHERE = _open({"level": _NEEDED_NUMBER, "change": _NEEDED_NUMBER})
_CROSSOVER = _open(
    {
        "word": _NEEDED_TEXT,
        "levels": List(Map(_LEVEL, others=True), required=True),
        "gaps": List(Value(float), required=True),
        "reaches_top": _NEEDED_FLAG,
        "pays_from": _MUST_NUMBER,
        "pays_until": _MUST_NUMBER,
        "interval": _NUMBERS,
        "quoted": _NUMBER,
        "beyond": _WHERE,
        "at_the_top": _WHERE,
        "missing": _rows({"level": _NUMBER, "why": _TEXT}),
        "sentence": _TEXT,
        "reasons": _TEXTS,
        "starts": _open({"rounds": Value(int, required=True)}),
        "threshold": _NUMBER,
        "prompts_needed": _NUMBER,
    }
)
LADDER = Map(
    {
        **dict.fromkeys(("schema", "profile", "key", "load", "unit"), _TEXT),
        "levels": List(Value(float, low=0), null=True),
        "limits": Table(_NUMBER, null=True),
        "rounds": _SOME,
        "kinds": _TEXTS,
        "notes": _TEXTS,
        "schedule": _ANY,
        "crossover": Table(_CROSSOVER, null=True),
        "steps": List(
            Map(
                {
                    "level": Value(float, required=True, low=0),
                    "arm": _NEEDED_TEXT,
                    "round": Value(int, required=True, low=0, high=1_000_000),
                    "kind": _NEEDED_TEXT,
                    "status": _NEEDED_TEXT,
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
    "kind": _NEEDED_TEXT,
    "word": _TEXT,
    "pays_from": _NUMBER,
    "pays_until": _NUMBER,
    "reaches_top": _FLAG,
    "interval": _NUMBERS,
}
_LOAD_ROW: dict[str, Shape] = {
    "kind": _NEEDED_TEXT,
    "level": _NEEDED_NUMBER,
    "speedup": _GAIN,
    **{arm: _open({"output_throughput": _NUMBER}) for arm in _ARMS},
}
REPORT = Map(
    {
        **dict.fromkeys(("schema", "profile", "title", "article", "key", "host", "date"), _TEXT),
        "verdict": Map(
            {
                "word": _NEEDED_TEXT,
                "sentence": _TEXT,
                "reasons": _TEXTS,
                "speedup": _GAIN,
                "scope": _open({"groups": _TEXTS, "kinds": _TEXTS}),
                "outputs": _ANY,
                "starts": _ANY,
            },
            required=True,
            others=True,
        ),
        "kinds": _rows({"group": _NEEDED_TEXT, "speedup": Map(_GAIN.fields, True, others=True, null=True)}),
        "acceptance": _open({"overall": _open({"rate": _NUMBER})}),
        "load": _open({"unit": _TEXT, "kinds": _rows(_LOAD_KIND), "rows": _rows(_LOAD_ROW)}),
        "gates": _rows({"name": _NEEDED_TEXT, "title": _NEEDED_TEXT, "word": _TEXT}),
        "cost": _open(
            {
                "rows": _rows(
                    {
                        "what": _NEEDED_TEXT,
                        "unit": _MUST_TEXT,
                        **{arm: Anything(required=True) for arm in _ARMS},
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
    """The data of a report or a ladder with `gain` in its speed-ups, which earlier versions called `median`."""
    if isinstance(data, list) and data and isinstance(data[0], dict):
        for item in data:
            with_gains(item)
    if not isinstance(data, dict):
        return data
    for name, value in data.items():
        with_gains(value)
        if name == "stock" and isinstance(value, dict):
            for arm in value.values():
                _name_gain(arm)
        elif name in ("speedup", "control", "corrected"):
            _name_gain(value)
    return data


def _name_gain(estimate: Any) -> None:
    if isinstance(estimate, dict) and "median" in estimate and "gain" not in estimate:
        estimate["gain"] = estimate.pop("median")


def checked(data: Mapping[str, Any], shape: Map, where: str) -> dict[str, Any]:
    """What the file ``where`` holds.

    Raises DrafthouseError with the first places where it is not of its shape.
    """
    findings = Findings(where)
    if not check(data, shape, findings):
        raise DrafthouseError(first_few(findings.problems, where))
    return dict(data)


def checked_result(data: Mapping[str, Any], where: str) -> ArmResult:
    """What the file ``where`` holds as an arm's result. Raises DrafthouseError as `checked` does."""
    return cast("ArmResult", checked(data, RESULT, where))


def checked_ladder(data: Mapping[str, Any], where: str) -> Ladder:
    """What the file ``where`` holds as a ladder. Raises DrafthouseError as `checked` does."""
    return cast("Ladder", checked(with_gains(data), LADDER, where))
