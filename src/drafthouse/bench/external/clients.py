"""The records of a document: what each known client calls things, and for all others whatever has known columns.

The versions that this was written for: vllm bench serve 0.32, SGLang's bench_serving 0.5, GuideLLM 0.6 to 0.8, AIPerf
0.13, llama.cpp's server and llama-bench b9789, llama-benchy 0.4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...core.documents import Json
from .columns import ARM_COLUMNS, SPEEDS, UNITS, Row, expanded, hash_of, lists_of, renamed, to_number

#: A number of an author's summary, by its name.
_FIGURE = re.compile(
    r"throughput|tok_?s|tps|tpot|itl|speed_?up|effect|accept|mean_len|inter_token|spec_decode", re.IGNORECASE
)
_STREAMS, _PER_SECOND = "concurrent requests", "requests per second"
#: Columns that stand above records and hold for all of them.
_CONTEXT = ("kind", "run", "load", "rate", "temperature", "max_tokens", "model")
#: Settings of a draft: runs in one line with others of them are no repeats.
_SETTINGS = ("steps", "topk", "num_draft_tokens", "n_max")
#: Names of lists of records that say nothing of them.
_WRAPPERS = ("rows", "raw_runs", "runs", "records", "results", "requests", "samples", "benchmarks", "data", "metrics")
#: Answers inside each other at most, such as {"response": {"timings": …}}.
_DEEP = 4


@dataclass(frozen=True)
class Record:
    """One record: a request or, where ``whole`` is set, a run in one line; ``arm`` has what names its arm."""

    row: Row
    form: str = "named columns"
    arm: dict[str, str] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    whole: bool = False

    @property
    def run(self) -> str:
        """The run that it names; empty where it names none."""
        named = self.row.get("run")
        return "" if named is None or isinstance(named, list | dict) else str(named)

    @property
    def load(self) -> tuple[float | None, str]:
        """The load and its unit."""
        streams, rate = to_number(self.row.get("load")), to_number(self.row.get("rate"))
        if streams is None and rate is not None:
            return rate, _PER_SECOND
        return int(streams) if streams is not None and streams.is_integer() else streams, _STREAMS


def records_in(document: Json) -> Iterator[Record]:
    """The records of a document, in their order; nothing for one without a speed."""
    if isinstance(document, Mapping):
        for fits, reader in _READERS:
            if fits(document):
                yield from reader(document)
                return
    if any(fits(item) for item in _mappings(document) for fits, _ in _READERS):
        for item in _mappings(document):
            yield from records_in(item)
        return
    yield from _walk(document, Record({}))


# --- records by their columns -----------------------------------------------------------------------


def _walk(node: Json, above: Record) -> Iterator[Record]:
    """The records below a node; ``above`` is what the nodes around it say of all of them."""
    if isinstance(node, list):
        for item in node:
            if isinstance(item, list | Mapping):
                yield from _walk(item, above)
        return
    if not isinstance(node, Mapping):
        return
    if _is_answer(node):
        yield from _finished(_answer_with_timings(node), replace(above, form="answers of llama.cpp's server"))
        return
    if lists := lists_of(node):
        here = _below(above, node)
        form = "vllm bench serve or SGLang's bench_serving" if "ttfts" in lists else above.form
        here.row.pop("count", None)  # of the requests, each of which is a record here
        for row in expanded(node, lists):
            yield from _finished(row, replace(here, form=form))
        return
    inside = {name: value for name, value in node.items() if _holds_records(value)}
    if inside:
        here = _below(above, node)
        for name, value in inside.items():
            tells = isinstance(value, Mapping) or (len(inside) > 1 and name not in _WRAPPERS)
            named = {f"of {len(here.arm)}": name} if tells else {}
            yield from _walk(value, replace(here, arm={**here.arm, **named}))
        return
    yield from _finished(renamed(_flat(node)), _below(above, node), above.figures)


def _finished(row: Row, above: Record, figures: dict[str, float] | None = None) -> Iterator[Record]:
    """A record with what stands above it; nothing for one that has no column of an answer or a run.

    ``figures`` are its author's where it is a request: what stands in it is its own.
    """
    full: Row = {**above.row, **row}
    number = to_number(full.get("count"))
    whole = any(name in row for name in ("run_tps", "run_tpot_ms")) and not any(
        name in row for name in ("decode_ms", "gaps", "tps", "tpot_ms")
    )
    several = number is not None and number > 1
    asked = any(name in row for name in ("id", "prompt", "prompt_hash", "tokens", "e2el_ms", "decode_ms"))
    speeds = any(name in row for name in (*SPEEDS, "run_tps", "run_tpot_ms"))
    if not speeds and not asked:
        return
    in_one_line = speeds and (several or not asked or (whole and number is None))
    arm = dict(above.arm)
    if not in_one_line and full.get("id") is None and "name" in arm:
        full["id"] = arm.pop("name")
    told = above.figures if in_one_line or figures is None else figures
    yield replace(above, row=full, arm=arm, whole=in_one_line, figures=told)


def _below(above: Record, node: Mapping[str, Json]) -> Record:
    """What is known of all records below a node: its context, the columns of its arm, its author's figures."""
    flat = {name: value for name, value in node.items() if isinstance(value, str | int | float)}
    known = renamed(flat)
    context = {name: known[name] for name in _CONTEXT if name in known}
    arm = {name.lower(): str(value) for name, value in flat.items() if name.lower() in ARM_COLUMNS}
    figures = {}
    for name, value in flat.items():
        number = to_number(value)
        if number is not None and _FIGURE.search(name):
            figures[name] = number
    settings = [f"{name} {flat[name]}" for name in _SETTINGS if name in flat]
    if settings:
        context["settings"] = ", ".join(settings)
    if "count" in known:
        context["count"] = known["count"]
    return replace(
        above,
        row={**{name: value for name, value in above.row.items() if name != "count"}, **context},
        arm={**above.arm, **arm},
        figures={**above.figures, **figures},
    )


def _holds_records(value: Json, deep: int = 0) -> bool:
    """Whether a value is a list of records, or holds one."""
    if isinstance(value, list):
        return any(isinstance(item, Mapping) for item in value)
    if not isinstance(value, Mapping) or deep > _DEEP:
        return False
    return bool(lists_of(value)) or any(_holds_records(item, deep + 1) for item in value.values())


def _flat(node: Mapping[str, Json], deep: int = 0) -> Row:
    """The values of a record and of the records inside it; what stands further out counts."""
    found: Row = {name: value for name, value in node.items() if not isinstance(value, Mapping | list)}
    for value in node.values():
        if isinstance(value, Mapping) and deep < _DEEP:
            found = {**_flat(value, deep + 1), **found}
    return found


# --- answers of llama.cpp's server ------------------------------------------------------------------


def _is_answer(node: Mapping[str, Json], deep: int = 0) -> bool:
    """Whether a record is a server's answer with its timings, maybe with the request beside it."""
    if isinstance(node.get("timings"), Mapping):
        return True
    inside = [value for value in node.values() if isinstance(value, Mapping)]
    return deep < 2 and any(_is_answer(value, deep + 1) for value in inside)


def _answer_with_timings(node: Mapping[str, Json]) -> Row:
    row = renamed(_flat(node))
    for name, value in _lists_inside(node):
        if name == "choices":
            first = value[0] if value else None
            told = renamed(_flat(first)) if isinstance(first, Mapping) else {}
            row.setdefault("text", told.get("text"))
        elif name == "messages":
            row.setdefault("prompt_hash", hash_of(json.dumps(value, sort_keys=True)))
    return row


def _lists_inside(node: Mapping[str, Json]) -> Iterator[tuple[str, Sequence[Json]]]:
    for name, value in node.items():
        if isinstance(value, list):
            yield name, value
        elif isinstance(value, Mapping):
            yield from _lists_inside(value)


# --- clients whose records need more than names ------------------------------------------------------


#: What of a request of GuideLLM is known by its name.
_GUIDELLM = ("request_id", "output_tokens", "prompt_tokens", "inter_token_latency_ms", "time_to_first_token_ms",
             "request_latency", "output")  # fmt: skip


def _guidellm(document: Mapping[str, Json]) -> Iterator[Record]:
    for benchmark in _mappings(document.get("benchmarks")):
        config = _mapping(benchmark.get("config"))
        strategy = _mapping(config.get("strategy"))
        streams = strategy.get("streams") or (1 if strategy.get("type_") == "synchronous" else None)
        above: Row = {"load": streams, "rate": None if streams else strategy.get("rate")}
        metrics = _mapping(benchmark.get("metrics"))
        figures = {}
        for name in ("output_tokens_per_second", "inter_token_latency_ms", "time_per_output_token_ms"):
            good = _mapping(_mapping(metrics.get(name)).get("successful"))
            number = to_number(good.get("mean" if name.endswith("second") else "median"))
            if number:
                figures[name] = number
        requests = _mapping(benchmark.get("requests"))
        found = False
        for status in ("successful", "errored", "incomplete"):
            ordered = sorted(
                _mappings(requests.get(status)), key=lambda one: to_number(one.get("request_start_time")) or 0
            )
            for request in ordered:
                found = True
                row = {**above, **_guidellm_row(request), "status": status}
                yield Record(row, "GuideLLM", figures=figures)
        if not found and figures:
            whole: Row = {**above, "run_tpot_ms": figures.get("inter_token_latency_ms"),
                          "run_tps": figures.get("output_tokens_per_second")}  # fmt: skip
            yield Record(whole, "GuideLLM", figures=figures, whole=True)


def _guidellm_row(request: Mapping[str, Json]) -> Row:
    row = renamed({name: request.get(name) for name in _GUIDELLM})
    row["order"] = request.get("request_start_time")
    try:
        sent = _mapping(json.loads(str(request.get("request_args"))))
    except ValueError:
        return row
    body = _mapping(sent.get("body")) or sent
    asked = body.get("messages") or body.get("prompt")
    if asked:
        row["prompt_hash"] = hash_of(json.dumps(asked, sort_keys=True))
    row["temperature"] = body.get("temperature")
    row["max_tokens"] = body.get("max_completion_tokens") or body.get("max_tokens")
    return row


def _aiperf_record(document: Mapping[str, Json]) -> Iterator[Record]:
    about, metrics = _mapping(document.get("metadata")), _mapping(document.get("metrics"))
    if about.get("benchmark_phase", "profiling") != "profiling":
        return
    values: Row = {}
    for name, metric in metrics.items():
        value, unit = to_number(_mapping(metric).get("value")), str(_mapping(metric).get("unit"))
        values[name] = None if value is None else value * UNITS.get(unit, 1.0)
    turn = about.get("turn_index") or 0
    drafts = _mapping(document.get("spec_decode_acceptance"))
    row: Row = {
        "id": f"{about.get('conversation_id')} {turn}" if about.get("conversation_id") else None,
        "tokens": values.get("output_sequence_length"),
        "input_tokens": values.get("input_sequence_length"),
        "tpot_ms": values.get("inter_token_latency"),
        "ttft_ms": values.get("time_to_first_token"),
        "e2el_ms": values.get("request_latency"),
        "drafted": drafts.get("num_draft_tokens"),
        "accepted": drafts.get("num_accepted_draft_tokens"),
        "order": about.get("session_num"),
        "error": document.get("error") or ("cancelled" if about.get("was_cancelled") is True else None),
    }
    yield Record(row, "AIPerf")


def _aiperf_summary(document: Mapping[str, Json]) -> Iterator[Record]:
    figures = {}
    for name, field_name in (("inter_token_latency", "p50"), ("output_token_throughput", "avg")):
        number = to_number(_mapping(document.get(name)).get(field_name))
        if number:
            figures[f"{name} ({field_name})"] = number
    phases = json.dumps(document.get("input_config"))
    streams = re.search(r'"concurrency": (\d+)', phases)
    row: Row = {
        "run_tpot_ms": figures.get("inter_token_latency (p50)"),
        "run_tps": figures.get("output_token_throughput (avg)"),
        "load": int(streams.group(1)) if streams else None,
    }
    if figures:
        yield Record(row, "AIPerf", figures=figures, whole=True)


def _llama_bench(document: Mapping[str, Json]) -> Iterator[Record]:
    """A row of llama-bench: its repeats, of generation alone."""
    if not to_number(document.get("n_gen")):
        return
    kind = f"pp{document.get('n_prompt') or 0} tg{document.get('n_gen')} d{document.get('n_depth') or 0}"
    samples = document.get("samples_ts")
    for value in samples if isinstance(samples, list) and samples else [document.get("avg_ts")]:
        row: Row = {"run_tps": value, "kind": kind, "model": document.get("model_filename")}
        yield Record(row, "llama-bench", whole=True, figures={"avg_ts": to_number(document.get("avg_ts")) or 0.0})


def _llama_benchy(document: Mapping[str, Json]) -> Iterator[Record]:
    for one in _mappings(document.get("benchmarks")):
        told = _mapping(one.get("tg_req_throughput")) or _mapping(one.get("tg_throughput"))
        if one.get("is_context_prefill_phase") is True or not told:
            continue
        kind = f"pp{one.get('prompt_size')} tg{one.get('response_size')} d{one.get('context_size') or 0}"
        values = told.get("values")
        for value in values if isinstance(values, list) and values else [told.get("mean")]:
            row: Row = {"run_tps": value, "kind": kind, "load": one.get("concurrency"), "model": document.get("model")}
            yield Record(row, "llama-benchy", whole=True)


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Json) -> list[Mapping[str, Json]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _has(*names: str) -> Callable[[Mapping[str, Json]], bool]:
    """A test whether a document has all of these keys."""
    return lambda document: all(name in document for name in names)


def _benchmarks_with(*names: str) -> Callable[[Mapping[str, Json]], bool]:
    return lambda document: any(all(name in one for name in names) for one in _mappings(document.get("benchmarks")))


_READERS: tuple[tuple[Callable[[Mapping[str, Json]], bool], Callable[[Mapping[str, Json]], Iterator[Record]]], ...] = (
    (_benchmarks_with("metrics", "requests"), _guidellm),
    (_benchmarks_with("response_size"), _llama_benchy),
    (_has("metadata", "metrics"), _aiperf_record),
    (_has("request_latency", "input_config"), _aiperf_summary),
    (_has("n_gen", "avg_ts"), _llama_bench),
)
