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

#: A number of an author's summary, by its name.
_FIGURE = re.compile(
    r"throughput|tok_?s|tps|tpot|itl|speed_?up|effect|accept|mean_len|inter_token|spec_decode", re.IGNORECASE
)
_STREAMS, _PER_SECOND = "concurrent requests", "requests per second"
#: Columns that stand above records and hold for all of them.
_CONTEXT = ("kind", "run", "load", "rate", "temperature", "max_tokens", "model")
#: Settings of a draft: runs in one line with others of them are no repeats.
_SETTINGS = ("steps", "topk", "num_draft_tokens", "n_max")
#: Columns of a request, and speeds of a single answer.
_OF_A_REQUEST = {"id", "prompt", "prompt_hash", "tokens", "e2el_ms", "decode_ms"}
_OF_AN_ANSWER = {"decode_ms", "gaps", "tps", "tpot_ms"}
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
        if named is None or isinstance(named, list | dict):
            return ""
        return str(named)

    @property
    def load(self) -> tuple[float | None, str]:
        """The load and its unit."""
        streams, rate = to_number(self.row.get("load")), to_number(self.row.get("rate"))
        if streams is None:
            return (None, _STREAMS) if rate is None else (rate, _PER_SECOND)
        if streams.is_integer():
            streams = int(streams)
        return streams, _STREAMS


def records_in(document: Json) -> Iterator[Record]:
    """The records of a document, in their order; nothing for one without a speed."""
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
    """What reads a document of a client whose records need more than names; None for any other document."""
    for fits, reader in _READERS:
        if fits(document):
            return reader
    return None


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
    columns = row.keys()
    number = to_number(full.get("count"))
    asked = bool(columns & _OF_A_REQUEST)
    speeds = bool(columns & ALL_SPEEDS)
    if not speeds and not asked:
        return
    several = number is not None and number > 1
    whole = number is None and columns & RUN_SPEEDS and not columns & _OF_AN_ANSWER
    in_one_line = bool(speeds and (several or not asked or whole))
    arm = dict(above.arm)
    if not in_one_line and full.get("id") is None and "name" in arm:
        full["id"] = arm.pop("name")
    if in_one_line or figures is None:
        figures = above.figures
    yield replace(above, row=full, arm=arm, whole=in_one_line, figures=figures)


def _below(above: Record, node: Mapping[str, Json]) -> Record:
    """What is known of all records below a node: its context, the columns of its arm, its author's figures."""
    flat: dict[str, Json] = {}
    arm, figures = dict(above.arm), dict(above.figures)
    for name, value in node.items():
        if not isinstance(value, str | int | float):
            continue
        flat[name] = value
        if name.lower() in ARM_COLUMNS:
            arm[name.lower()] = str(value)
        number = to_number(value)
        if number is not None and _FIGURE.search(name):
            figures[name] = number
    known = renamed(flat)
    row = dict(above.row)
    row.pop("count", None)
    row |= {name: known[name] for name in _CONTEXT if name in known}
    settings = [f"{name} {flat[name]}" for name in _SETTINGS if name in flat]
    if settings:
        row["settings"] = ", ".join(settings)
    if "count" in known:
        row["count"] = known["count"]
    return replace(above, row=row, arm=arm, figures=figures)


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
    return deep < 2 and any(isinstance(value, Mapping) and _is_answer(value, deep + 1) for value in node.values())


def _answer_with_timings(node: Mapping[str, Json]) -> Row:
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
    for name, value in node.items():
        if isinstance(value, list):
            yield name, value
        elif isinstance(value, Mapping):
            yield from _lists_inside(value)


# --- clients whose records need more than names ------------------------------------------------------


#: What of a request of GuideLLM is known by its name.
_GUIDELLM = ("request_id", "output_tokens", "prompt_tokens", "inter_token_latency_ms", "time_to_first_token_ms",
             "request_latency", "output")  # fmt: skip


#: The figures of a benchmark of GuideLLM, and which statistic of its successful requests is read.
_GUIDELLM_FIGURES = {
    "output_tokens_per_second": "mean",
    "inter_token_latency_ms": "median",
    "time_per_output_token_ms": "median",
}


def _guidellm(document: Mapping[str, Json]) -> Iterator[Record]:
    for benchmark in _mappings(document.get("benchmarks")):
        above = _guidellm_load(_mapping(_mapping(benchmark.get("config")).get("strategy")))
        metrics = _mapping(benchmark.get("metrics"))
        figures = {}
        for name, statistic in _GUIDELLM_FIGURES.items():
            number = to_number(_mapping(_mapping(metrics.get(name)).get("successful")).get(statistic))
            if number:
                figures[name] = number
        requests = _mapping(benchmark.get("requests"))
        found = False
        for status in ("successful", "errored", "incomplete"):
            ordered = sorted(
                _mappings(requests.get(status)), key=lambda request: to_number(request.get("request_start_time")) or 0
            )
            for request in ordered:
                found = True
                row = {**above, **_guidellm_row(request), "status": status}
                yield Record(row, "GuideLLM", figures=figures)
        if not found and figures:
            whole: Row = {**above, "run_tpot_ms": figures.get("inter_token_latency_ms"),
                          "run_tps": figures.get("output_tokens_per_second")}  # fmt: skip
            yield Record(whole, "GuideLLM", figures=figures, whole=True)


def _guidellm_load(strategy: Mapping[str, Json]) -> Row:
    """The load of a strategy: its streams, or its requests a second."""
    streams = strategy.get("streams")
    if not streams and strategy.get("type_") == "synchronous":
        streams = 1
    if streams:
        return {"load": streams, "rate": None}
    return {"load": None, "rate": strategy.get("rate")}


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
        unit = str(_mapping(metric).get("unit"))
        values[name] = scaled(_mapping(metric).get("value"), UNITS.get(unit, 1.0))
    request_id = None
    if about.get("conversation_id"):
        request_id = f"{about['conversation_id']} {about.get('turn_index') or 0}"
    error = document.get("error")
    if not error:
        error = "cancelled" if about.get("was_cancelled") is True else None
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
        "order": about.get("session_num"),
        "error": error,
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
    for value in _repeats(document.get("samples_ts"), document.get("avg_ts")):
        row: Row = {"run_tps": value, "kind": kind, "model": document.get("model_filename")}
        yield Record(row, "llama-bench", whole=True, figures={"avg_ts": to_number(document.get("avg_ts")) or 0.0})


def _repeats(values: Json, mean: Json) -> Sequence[Json]:
    """The speeds of a test's repeats; where there are none, their mean alone."""
    if isinstance(values, list) and values:
        return values
    return [mean]


def _llama_benchy(document: Mapping[str, Json]) -> Iterator[Record]:
    for test in _mappings(document.get("benchmarks")):
        speed = _mapping(test.get("tg_req_throughput")) or _mapping(test.get("tg_throughput"))
        if test.get("is_context_prefill_phase") is True or not speed:
            continue
        kind = f"pp{test.get('prompt_size')} tg{test.get('response_size')} d{test.get('context_size') or 0}"
        for value in _repeats(speed.get("values"), speed.get("mean")):
            row: Row = {"run_tps": value, "kind": kind, "load": test.get("concurrency"), "model": document.get("model")}
            yield Record(row, "llama-benchy", whole=True)


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Json) -> list[Mapping[str, Json]]:
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def _has(*names: str) -> Callable[[Mapping[str, Json]], bool]:
    """A test whether a document has all of these keys."""
    return lambda document: document.keys() >= set(names)


def _benchmarks_with(*names: str) -> Callable[[Mapping[str, Json]], bool]:
    return lambda document: any(map(_has(*names), _mappings(document.get("benchmarks"))))


_READERS: tuple[tuple[Callable[[Mapping[str, Json]], bool], Callable[[Mapping[str, Json]], Iterator[Record]]], ...] = (
    (_benchmarks_with("metrics", "requests"), _guidellm),
    (_benchmarks_with("response_size"), _llama_benchy),
    (_has("metadata", "metrics"), _aiperf_record),
    (_has("request_latency", "input_config"), _aiperf_summary),
    (_has("n_gen", "avg_ts"), _llama_bench),
)
