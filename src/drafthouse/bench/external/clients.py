"""Find the records (requests, or summaries of runs) in a document of any benchmark client.

Documents of some clients have a reader of their own (`_READERS`); all others are read by the names of their columns.

Supported formats: vllm bench serve 0.32, SGLang's bench_serving 0.5, GuideLLM 0.6 to 0.8, AIPerf 0.13, llama.cpp's
server and llama-bench b9789, llama-benchy 0.4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...core.documents import Json
from .columns import (
    ALL_SPEEDS,
    ARM_COLUMNS,
    RUN_SPEEDS,
    UNITS,
    Row,
    expanded,
    hash_of,
    lists_of,
    renamed,
    scaled,
    to_number,
)

#: Names of numbers in a file's summary that are kept as the author's figures.
_FIGURE = re.compile(
    r"throughput|tok_?s|tps|tpot|itl|speed_?up|effect|accept|mean_len|inter_token|spec_decode", re.IGNORECASE
)
# Units of a load.
_STREAMS = "concurrent requests"
_PER_SECOND = "requests per second"
#: Columns of an outer object that apply to all records inside it.
_CONTEXT = ("kind", "run", "load", "rate", "temperature", "max_tokens", "model")
#: Draft settings. Runs of a summary that differ in them are not repeats of each other.
_SETTINGS = ("steps", "topk", "num_draft_tokens", "n_max")
#: Columns that only a single request has, and the speeds of a single answer.
_OF_A_REQUEST = {"id", "prompt", "prompt_hash", "tokens", "e2el_ms", "decode_ms"}
_OF_AN_ANSWER = {"decode_ms", "gaps", "tps", "tpot_ms"}
#: Names of lists of records that do not name an arm.
_WRAPPERS = ("rows", "raw_runs", "runs", "records", "results", "requests", "samples", "benchmarks", "data", "metrics")
#: The largest depth of objects inside a record, such as {"response": {"timings": …}}.
_MOST_DEPTH = 4


@dataclass(frozen=True)
class Record:
    """A request, or a run's summary."""

    row: Row  # values by canonical column
    form: str = "named columns"  # the client's name, for people
    arm: dict[str, str] = field(default_factory=dict)  # by column, the values that name its server arm
    figures: dict[str, float] = field(default_factory=dict)  # the author's figures by their names in the file
    is_summary: bool = False  # True: the speeds are those of a whole run

    @property
    def run(self) -> str:
        """The name or number of the record's run; '' if it has none, or a value that is no name."""
        named = self.row.get("run")
        if named is None or isinstance(named, list | dict):
            return ""
        return str(named)

    @property
    def load(self) -> tuple[float | None, str]:
        """The load and its unit: concurrent requests if the record has them, else requests a second; None: unknown."""
        streams = to_number(self.row.get("load"))
        rate = to_number(self.row.get("rate"))
        if streams is None:
            return (None, _STREAMS) if rate is None else (rate, _PER_SECOND)
        if streams.is_integer():
            streams = int(streams)
        return streams, _STREAMS


def records_in(document: Json) -> Iterator[Record]:
    """The records of a document, in order; records with neither a speed nor a request are skipped."""
    if isinstance(document, Mapping):
        reader = _reader_of(document)
        if reader:
            yield from reader(document)
            return
    items = _mappings(document)
    if any(map(_reader_of, items)):
        for item in items:
            yield from records_in(item)
        return
    yield from _walk(document, Record({}))


def _reader_of(document: Mapping[str, Json]) -> Callable[[Mapping[str, Json]], Iterator[Record]] | None:
    """The reader for a document of a client that needs one; None for a document that is read by its column names."""
    for fits, reader in _READERS:
        if fits(document):
            return reader
    return None


# --- records by their columns -----------------------------------------------------------------------


def _walk(node: Json, above: Record) -> Iterator[Record]:
    """The records inside ``node``; ``above`` has the values that outer objects set for all of them.

    By the first of these that ``node`` is: a list of records; a plain value (no record); an answer of llama.cpp's
    server; an object with parallel lists, one value per request; an object that contains records; a record.
    """
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
        context = _below(above, node)
        form = "vllm bench serve or SGLang's bench_serving" if "ttfts" in lists else above.form
        context.row.pop("count", None)  # the number of requests, each of which becomes a record
        for row in expanded(node, lists):
            yield from _finished(row, replace(context, form=form))
        return
    inside = {name: value for name, value in node.items() if _holds_records(value)}
    if inside:
        context = _below(above, node)
        for name, value in inside.items():
            # The key of an object names an arm. That of a list does only beside other lists, and if it is no wrapper.
            names_arm = isinstance(value, Mapping) or (len(inside) > 1 and name not in _WRAPPERS)
            named = {f"of {len(context.arm)}": name} if names_arm else {}
            yield from _walk(value, replace(context, arm={**context.arm, **named}))
        return
    yield from _finished(renamed(_flat(node)), _below(above, node), above.figures)


def _finished(row: Row, above: Record, figures: dict[str, float] | None = None) -> Iterator[Record]:
    """The record of a row, merged with the values ``above`` it; nothing if the row has neither a speed nor a request.

    ``figures`` are the author's figures to keep with a request; None and a summary take those of ``above``.
    """
    full: Row = {**above.row, **row}
    columns = row.keys()
    request_count = to_number(full.get("count"))
    is_request = bool(columns & _OF_A_REQUEST)
    has_speed = bool(columns & ALL_SPEEDS)
    if not has_speed and not is_request:
        return
    # A speed is that of a whole run if it is over several requests, if no request is named, or by its column's name.
    has_several = request_count is not None and request_count > 1
    run_only = request_count is None and columns & RUN_SPEEDS and not columns & _OF_AN_ANSWER
    is_summary = bool(has_speed and (has_several or not is_request or run_only))
    arm = dict(above.arm)
    if not is_summary and full.get("id") is None and "name" in arm:
        full["id"] = arm.pop("name")  # the name of a request is its prompt's, not the arm's
    if is_summary or figures is None:
        figures = above.figures
    yield replace(above, row=full, arm=arm, is_summary=is_summary, figures=figures)


def _below(above: Record, node: Mapping[str, Json]) -> Record:
    """``above`` updated with the values of ``node`` that apply to all records inside: context, arm, figures."""
    flat: dict[str, Json] = {}
    arm = dict(above.arm)
    figures = dict(above.figures)
    for name, value in node.items():
        if not isinstance(value, str | int | float):
            continue
        flat[name] = value
        if name.lower() in ARM_COLUMNS:
            arm[name.lower()] = str(value)
        number = to_number(value)
        if number is not None and _FIGURE.search(name):
            figures[name] = number
    canonical = renamed(flat)
    row = dict(above.row)
    row.pop("count", None)  # the count of an outer object is not that of the objects inside
    row |= {name: canonical[name] for name in _CONTEXT if name in canonical}
    settings = [f"{name} {flat[name]}" for name in _SETTINGS if name in flat]
    if settings:
        row["settings"] = ", ".join(settings)
    if "count" in canonical:
        row["count"] = canonical["count"]
    return replace(above, row=row, arm=arm, figures=figures)


def _holds_records(value: Json, depth: int = 0) -> bool:
    """True if a value is a list with objects, or an object with such a list or with parallel lists inside."""
    if isinstance(value, list):
        return any(isinstance(item, Mapping) for item in value)
    if not isinstance(value, Mapping) or depth > _MOST_DEPTH:
        return False
    return bool(lists_of(value)) or any(_holds_records(item, depth + 1) for item in value.values())


def _flat(node: Mapping[str, Json], depth: int = 0) -> Row:
    """The values of an object and of the objects inside it; for equal names the outer value wins."""
    values: Row = {name: value for name, value in node.items() if not isinstance(value, Mapping | list)}
    for value in node.values():
        if isinstance(value, Mapping) and depth < _MOST_DEPTH:
            values = {**_flat(value, depth + 1), **values}
    return values


# --- answers of llama.cpp's server ------------------------------------------------------------------


def _is_answer(node: Mapping[str, Json], depth: int = 0) -> bool:
    """True if an object is an answer of llama.cpp's server with `timings`, possibly together with its request."""
    if isinstance(node.get("timings"), Mapping):
        return True
    return depth < 2 and any(isinstance(value, Mapping) and _is_answer(value, depth + 1) for value in node.values())


def _answer_with_timings(node: Mapping[str, Json]) -> Row:
    """The values of an answer of llama.cpp's server, with its text and a hash of its prompt if they are there."""
    row = renamed(_flat(node))
    for name, value in _lists_inside(node):
        if name == "choices":
            text = None
            if value and isinstance(value[0], Mapping):
                text = renamed(_flat(value[0])).get("text")
            row.setdefault("text", text)
        elif name == "messages":
            row.setdefault("prompt_hash", hash_of(json.dumps(value, sort_keys=True)))
    return row


def _lists_inside(node: Mapping[str, Json]) -> Iterator[tuple[str, Sequence[Json]]]:
    """Yield name and value of all lists in an object and in the objects inside it."""
    for name, value in node.items():
        if isinstance(value, list):
            yield name, value
        elif isinstance(value, Mapping):
            yield from _lists_inside(value)


# --- clients whose records need more than names ------------------------------------------------------


#: The keys of a GuideLLM request that are columns.
_GUIDELLM = ("request_id", "output_tokens", "prompt_tokens", "inter_token_latency_ms", "time_to_first_token_ms",
             "request_latency", "output")  # fmt: skip
#: Figures of a GuideLLM benchmark, with the statistic over its successful requests that is read.
_GUIDELLM_FIGURES = {
    "output_tokens_per_second": "mean",
    "inter_token_latency_ms": "median",
    "time_per_output_token_ms": "median",
}


def _guidellm_records(document: Mapping[str, Json]) -> Iterator[Record]:
    """The requests of each GuideLLM benchmark by the time of their start, or its summary if it lists no requests."""
    for benchmark in _mappings(document.get("benchmarks")):
        above = _guidellm_load(_mapping(_mapping(benchmark.get("config")).get("strategy")))
        metrics = _mapping(benchmark.get("metrics"))
        figures = {}
        for name, statistic in _GUIDELLM_FIGURES.items():
            number = to_number(_mapping(_mapping(metrics.get(name)).get("successful")).get(statistic))
            if number:
                figures[name] = number
        requests = _mapping(benchmark.get("requests"))
        any_request = False
        for status in ("successful", "errored", "incomplete"):
            ordered = sorted(
                _mappings(requests.get(status)), key=lambda request: to_number(request.get("request_start_time")) or 0
            )
            for request in ordered:
                any_request = True
                row = {**above, **_guidellm_row(request), "status": status}
                yield Record(row, "GuideLLM", figures=figures)
        if not any_request and figures:
            summary: Row = {**above, "run_tpot_ms": figures.get("inter_token_latency_ms"),
                          "run_tps": figures.get("output_tokens_per_second")}  # fmt: skip
            yield Record(summary, "GuideLLM", figures=figures, is_summary=True)


def _guidellm_load(strategy: Mapping[str, Json]) -> Row:
    """The load of a GuideLLM strategy: concurrent streams or requests per second."""
    streams = strategy.get("streams")
    if not streams and strategy.get("type_") == "synchronous":
        streams = 1
    if streams:
        return {"load": streams, "rate": None}
    return {"load": None, "rate": strategy.get("rate")}


def _guidellm_row(request: Mapping[str, Json]) -> Row:
    """The values of a GuideLLM request; prompt and settings come from ``request_args``, JSON text of what was sent."""
    row = renamed({name: request.get(name) for name in _GUIDELLM})
    row["order"] = request.get("request_start_time")
    try:
        request_args = _mapping(json.loads(str(request.get("request_args"))))
    except ValueError:
        return row
    body = _mapping(request_args.get("body")) or request_args
    prompt = body.get("messages") or body.get("prompt")
    if prompt:
        row["prompt_hash"] = hash_of(json.dumps(prompt, sort_keys=True))
    row["temperature"] = body.get("temperature")
    row["max_tokens"] = body.get("max_completion_tokens") or body.get("max_tokens")
    return row


def _aiperf_records(document: Mapping[str, Json]) -> Iterator[Record]:
    """The record of an AIPerf request (a line of profile_export.jsonl); none for a warm-up request."""
    metadata = _mapping(document.get("metadata"))
    metrics = _mapping(document.get("metrics"))
    if metadata.get("benchmark_phase", "profiling") != "profiling":
        return
    values: Row = {}
    for name, metric in metrics.items():
        unit = str(_mapping(metric).get("unit"))
        values[name] = scaled(_mapping(metric).get("value"), UNITS.get(unit, 1.0))
    request_id = None
    if metadata.get("conversation_id"):
        request_id = f"{metadata['conversation_id']} {metadata.get('turn_index') or 0}"
    error = document.get("error")
    if not error:
        error = "cancelled" if metadata.get("was_cancelled") is True else None
    drafts = _mapping(document.get("spec_decode_acceptance"))
    row: Row = {
        "id": request_id,
        "tokens": values.get("output_sequence_length"),
        "input_tokens": values.get("input_sequence_length"),
        "tpot_ms": values.get("inter_token_latency"),
        "ttft_ms": values.get("time_to_first_token"),
        "e2el_ms": values.get("request_latency"),
        "drafted": drafts.get("num_draft_tokens"),
        "accepted": drafts.get("num_accepted_draft_tokens"),
        "order": metadata.get("session_num"),
        "error": error,
    }
    yield Record(row, "AIPerf")


def _aiperf_summary(document: Mapping[str, Json]) -> Iterator[Record]:
    """The record of an AIPerf run (profile_export_aiperf.json); none without a speed."""
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
        yield Record(row, "AIPerf", figures=figures, is_summary=True)


def _llama_bench_records(document: Mapping[str, Json]) -> Iterator[Record]:
    """One record for each repeat of a llama-bench test that generates tokens."""
    if not to_number(document.get("n_gen")):
        return
    kind = f"pp{document.get('n_prompt') or 0} tg{document.get('n_gen')} d{document.get('n_depth') or 0}"
    for value in _repeats(document.get("samples_ts"), document.get("avg_ts")):
        row: Row = {"run_tps": value, "kind": kind, "model": document.get("model_filename")}
        yield Record(row, "llama-bench", is_summary=True, figures={"avg_ts": to_number(document.get("avg_ts")) or 0.0})


def _repeats(values: Json, mean: Json) -> Sequence[Json]:
    """The speeds of a test's repeats, or their mean if the file has no single values."""
    if isinstance(values, list) and values:
        return values
    return [mean]


def _llama_benchy_records(document: Mapping[str, Json]) -> Iterator[Record]:
    """One record for each repeat of a llama-benchy test that generates tokens."""
    for test in _mappings(document.get("benchmarks")):
        speed = _mapping(test.get("tg_req_throughput")) or _mapping(test.get("tg_throughput"))
        if test.get("is_context_prefill_phase") is True or not speed:
            continue
        kind = f"pp{test.get('prompt_size')} tg{test.get('response_size')} d{test.get('context_size') or 0}"
        for value in _repeats(speed.get("values"), speed.get("mean")):
            row: Row = {"run_tps": value, "kind": kind, "load": test.get("concurrency"), "model": document.get("model")}
            yield Record(row, "llama-benchy", is_summary=True)


def _mapping(value: Json) -> Mapping[str, Json]:
    """``value`` if it is an object, otherwise {}: a file of another client may have anything there."""
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Json) -> list[Mapping[str, Json]]:
    """The objects in a list; [] if ``value`` is no list."""
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def _has(*names: str) -> Callable[[Mapping[str, Json]], bool]:
    """A predicate: the document has all of these keys."""
    return lambda document: document.keys() >= set(names)


def _benchmarks_with(*names: str) -> Callable[[Mapping[str, Json]], bool]:
    """A predicate: one of the document's ``benchmarks`` has all of these keys."""
    return lambda document: any(map(_has(*names), _mappings(document.get("benchmarks"))))


#: The documents that need a reader of their own, each by a predicate and its reader; the first that fits counts.
_READERS: tuple[tuple[Callable[[Mapping[str, Json]], bool], Callable[[Mapping[str, Json]], Iterator[Record]]], ...] = (
    (_benchmarks_with("metrics", "requests"), _guidellm_records),
    (_benchmarks_with("response_size"), _llama_benchy_records),
    (_has("metadata", "metrics"), _aiperf_records),
    (_has("request_latency", "input_config"), _aiperf_summary),
    (_has("n_gen", "avg_ts"), _llama_bench_records),
)
