"""Map the column names of other benchmark clients to canonical names, and build an answer from a record's values.

A column is recognised by its name; case and the characters between words do not matter. A name may end in a unit of
time (`_ms`, `_s`). Times are converted to ms.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from ...core.documents import Json, short
from ..result_types import Request
from ..samples import time_per_token

#: The prompt kind of records without one.
ALL = "all prompts"
#: The values of a record of a file, by canonical column name.
Row: TypeAlias = "dict[str, Json]"

#: Canonical columns, with the names that files use for them, separated by spaces.
_NAMES = {
    "id": "id prompt_id request_id question_id prompt_idx prompt_index prompt_name task_id sample_id example_id idx",
    "prompt": "prompt question input_text prompt_text",
    "prompt_hash": "prompt_hash prompt_sha256 prompt_md5",
    "kind": "kind category task task_type dataset dataset_name benchmark_name class",
    "tokens": "tokens output_tokens completion_tokens predicted_n tokens_predicted n_tokens_generated generated_tokens"
    " new_tokens n_tokens n_predict output_len output_lens num_output_tokens",
    "input_tokens": "input_tokens prompt_tokens prompt_n tokens_evaluated input_len input_lens n_prompt_tokens",
    "tps": "tps tok_s tokens_s tok_per_s tok_per_sec tokens_per_s tokens_per_sec tokens_per_second decode_tps"
    " decode_tok_s predicted_per_second generation_tps gen_tps eval_tps",
    "run_tps": "output_throughput per_request_tok_s_p50 per_request_tok_s_p50_mean mean_tps avg_tps median_tps avg_ts"
    " mean_tok_s avg_tok_s tok_s_mean tps_mean aggregate_tok_s",
    "run_tpot_ms": "median_tpot_ms mean_tpot_ms tpot_ms_p50 tpot_ms_p50_mean avg_tpot_ms",
    "drafted": "drafted draft_n n_drafted n_draft draft_tokens num_draft_tokens proposed proposed_tokens",
    "accepted": "accepted draft_n_accepted n_accepted n_accept draft_acc accepted_tokens num_accepted_tokens"
    " num_accepted_draft_tokens",
    "acceptance": "acceptance acceptance_rate accept_rate draft_acceptance_rate accept spec_decode_acceptance_rate",
    "text": "text answer output output_text response generated_text generated_texts completion content",
    "hash": "hash out_hash output_hash text_hash answer_hash output_sha256 sha256 md5",
    "error": "error errors first_error exception",
    "status": "status",
    "ok": "ok success",
    "temperature": "temperature temp",
    "max_tokens": "max_tokens max_new_tokens n_predict_max",
    "run": "run round repeat rep trial pass run_index run_id iteration",
    "load": "concurrency max_concurrency batch_size parallel n_parallel streams users num_users level",
    "rate": "request_rate",
    "count": "requests num_requests n_requests completed num_prompts runs",
    "model": "model model_id model_name",
    "gaps": "itls",
    "order": "order",
}
#: Canonical columns of times, with the names that files use for them, without the unit.
_TIMES = {
    "e2el_ms": "seconds wall total elapsed latency latencies duration wall_time total_time time e2el e2e e2e_latency"
    " request_latency",
    "decode_ms": "decode predicted eval generation gen generation_time gen_time decode_time eval_time eval_duration",
    "ttft_ms": "ttft ttfts time_to_first_token",
    "tpot_ms": "tpot tpots itl inter_token_latency ms_per_token predicted_per_token time_per_output_token",
}
_CANONICAL = {name: canonical for canonical, names in _NAMES.items() for name in names.split()}
_CANONICAL_TIMES = {name: canonical for canonical, names in _TIMES.items() for name in names.split()}
#: Units of time, as factors to ms.
UNITS = {"ms": 1.0, "s": 1000.0, "sec": 1000.0, "seconds": 1000.0, "ns": 1e-6, "us": 1e-3}
#: Columns of times without a unit at the end that are in ms; all others are in seconds.
_IN_MS = ("ms_per_token",)
#: Columns that identify the arm (server configuration) of a record; their values together are the arm's name.
ARM_COLUMNS = ("arm", "variant", "config", "configuration", "decoder", "method", "mode", "spec", "speculation", "label",
               "name", "system", "backend", "file", "gpu", "card", "engine", "model", "target", "quant")  # fmt: skip
#: Columns from which a request's speed can be computed, the most direct first.
SPEEDS = ("tpot_ms", "gaps", "decode_ms", "tps", "e2el_ms")
#: Columns with the speed of a whole run, and the columns of any speed.
RUN_SPEEDS = frozenset(("run_tps", "run_tpot_ms"))
ALL_SPEEDS = RUN_SPEEDS.union(SPEEDS)
#: Two figures of one answer that differ by more than this fraction contradict each other.
SLACK = 0.05
#: TPOTs outside these bounds (ms) are ignored as invalid.
FASTEST_MS = 1e-3
SLOWEST_MS = 1e6
#: Numbers (tokens, times) from this one on are ignored as invalid.
BEYOND = 1e12


def canonical_name(column: str) -> tuple[str, float] | None:
    """The canonical name of a column, and the factor that converts it to ms (1 if it is no time); None if unknown."""
    plain = re.sub(r"[^a-z0-9]+", "_", column.strip().lower()).strip("_")
    if plain in _CANONICAL:
        return _CANONICAL[plain], 1.0
    if plain in _CANONICAL_TIMES:
        return _CANONICAL_TIMES[plain], 1.0 if plain in _IN_MS else 1000.0
    stem, _, unit = plain.rpartition("_")
    if unit in UNITS and stem in _CANONICAL_TIMES:
        return _CANONICAL_TIMES[stem], UNITS[unit]
    return None


def renamed(record: Mapping[str, Json]) -> Row:
    """The values of a record by canonical name; if several columns have the same one, the first with a value counts."""
    row: Row = {}
    for column, value in record.items():
        canonical = canonical_name(str(column))
        if canonical is None or value is None or value == "":
            continue
        name, factor = canonical
        if row.get(name) is not None:
            continue
        if factor == 1.0:
            row[name] = value
        elif isinstance(value, list):
            row[name] = [scaled(item, factor) for item in value]
        else:
            row[name] = scaled(value, factor)
    return row


def scaled(value: Json, factor: float) -> float | None:
    """``value`` times ``factor``; None if it is no number."""
    number = to_number(value)
    return None if number is None else number * factor


def number_in(value: object) -> float | None:
    """``value`` as a float if it is a finite number, otherwise None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an int that is too large for a float
        return None


def to_number(value: Json) -> float | None:
    """``value`` as a finite float, also from text such as "3.5", "12 %" or "1.4x"; None for anything else."""
    if not isinstance(value, str):
        return number_in(value)
    text = value.strip().removesuffix("%").removesuffix("x").strip()
    try:
        return number_in(float(text))
    except ValueError:
        return None


@dataclass(frozen=True)
class Answer:
    """One request of a file, in the form of a Drafthouse request.

    The answers of two arms are paired by ``key``, or else by ``prompt``; None where the file has no such column.
    """

    request: Request
    key: str | None = None  # the request's id
    prompt: str | None = None  # a hash of its prompt
    text: str | None = None  # the answer, or its hash; only compared with the other arm's
    acceptance: float | None = None  # the acceptance rate, a fraction
    clock: str = ""  # the source of the TPOT; '' without one
    failed: str = ""  # the reason if the answer is not complete
    notes: tuple[str, ...] = ()  # what is wrong with the record


def hash_of(text: str) -> str:
    """A short hash of a prompt or an answer."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def answer_of(row: Row) -> Answer:
    """The answer of a record. A bad record raises nothing; ``failed`` and ``notes`` of the answer describe it."""
    notes: list[str] = []
    times = {name: _positive(row.get(name)) for name in ("tpot_ms", "decode_ms", "ttft_ms", "e2el_ms", "tps")}
    times["tpot_ms"] = times["tpot_ms"] or _positive(row.get("run_tpot_ms"))
    tokens = _whole_number(row.get("tokens"))
    if times["ttft_ms"] and times["e2el_ms"] and times["ttft_ms"] > times["e2el_ms"]:
        notes.append("a first token after the answer's end (is its column in ms? name it ttft_ms)")
        times["ttft_ms"] = None
    tpot_ms, clock = _time_per_token(times, tokens, row.get("gaps"), notes)
    key, prompt_hash = _prompt_key(row)
    drafted, accepted, acceptance = _drafting(row, notes)
    kind = str(row.get("kind") or ALL)
    text = row.get("text")
    if not isinstance(text, str) or not text:
        text = None
    answer_text = text or row.get("hash")
    timings = None
    if drafted is not None:
        timings = {"draft_n": drafted, "draft_n_accepted": accepted}
    request = {
        "kind": kind, "group": kind, "suite": "", "status": "ok", "tpot_ms": tpot_ms, "ttft_ms": times["ttft_ms"],
        "e2el_ms": times["e2el_ms"], "output_tokens": tokens, "input_tokens": _whole_number(row.get("input_tokens")),
        "max_tokens": _whole_number(row.get("max_tokens")), "temperature": to_number(row.get("temperature")),
        "text": text, "reasoning_text": "", "timings": timings,
    }  # fmt: skip
    return Answer(
        cast("Request", request),
        key=key,
        prompt=prompt_hash,
        text=None if answer_text is None else str(answer_text),
        acceptance=acceptance,
        clock=clock,
        failed=_failure(row, tpot_ms),
        notes=tuple(notes),
    )


def _time_per_token(
    times: Mapping[str, float | None], tokens: int | None, gaps: Json, notes: list[str]
) -> tuple[float | None, str]:
    """The TPOT in ms and the name of its source, (None, "") without any; contradictions are added to ``notes``.

    ``gaps`` are the times between chunks in seconds, None if the file has none.
    """
    decode = times["decode_ms"]
    tps = times["tps"]
    e2el = times["e2el_ms"]
    ttft = times["ttft_ms"]
    candidates = [(times["tpot_ms"], "the time per token that the file gives")]  # the most direct first
    if tokens:
        candidates.append((_streamed(gaps, tokens), "the times between the chunks"))
        candidates.append(((decode or 0.0) / tokens, "tokens and decode time"))  # 0 is not believable: skipped below
    if tps:
        candidates.append((1000.0 / tps, "the tokens per second that the file gives"))
    if tokens and e2el:
        if ttft and tokens > 1:
            candidates.append(((e2el - ttft) / (tokens - 1), "tokens and time after the first one"))
        candidates.append((e2el / tokens, "tokens and time of the whole answer"))
    if tps and tokens:
        _contradictions(tps, tokens, decode, e2el, notes)
    for value, clock in candidates:
        if believable(value):
            return value, clock
    return None, ""


def _streamed(gaps: Json, tokens: int) -> float | None:
    """The TPOT in ms from the times between chunks (``gaps``, in seconds); None without them."""
    if not isinstance(gaps, list) or not gaps:
        return None
    waits = [1000.0 * (to_number(gap) or 0.0) for gap in gaps]
    return time_per_token(0.0, sum(waits), tokens, waits)


def _contradictions(tps: float, tokens: int, decode: float | None, e2el: float | None, notes: list[str]) -> None:
    """Note tokens per second that contradict tokens and times. Some clients divide by tokens - 1, which is accepted."""
    if decode and not (1.0 - SLACK) * (tokens - 1) <= tps * decode / 1000.0 <= (1.0 + SLACK) * tokens:
        notes.append("tokens per second that contradict tokens and decode time")
    elif e2el and 1000.0 * tokens / e2el > tps * (1.0 + SLACK):
        notes.append("fewer tokens per second than tokens over the time of the whole answer")


def _drafting(row: Row, notes: list[str]) -> tuple[int | None, int | None, float | None]:
    """Drafted and accepted tokens, and the acceptance rate (a fraction); impossible values are noted and dropped."""
    drafted = _whole_number(row.get("drafted"), minimum=0)
    accepted = _whole_number(row.get("accepted"), minimum=0)
    rate = to_number(row.get("acceptance"))
    if drafted is not None and accepted is not None and accepted > drafted:
        share = f"{100 * accepted / drafted:,.0f} %" if drafted else f"{accepted} tokens of none"
        notes.append(f"an acceptance of {share}, which cannot be")
        return drafted, None, None
    if rate is not None and (rate > 1.5 or str(row.get("acceptance")).strip().endswith("%")):
        rate /= 100  # a percentage; a value from 1 to 1.5 is taken for a wrong fraction
    if rate is not None and rate > 1:
        notes.append(f"an acceptance of {100 * rate:,.0f} %, which cannot be")
        rate = None
    return drafted, accepted, rate


def _prompt_key(row: Row) -> tuple[str | None, str | None]:
    """The id of a record's prompt, and the hash of its text; None for what the record does not have.

    A prompt without a space is taken for an id.
    """
    key = row.get("id")
    prompt = row.get("prompt")
    prompt_hash = row.get("prompt_hash")
    if prompt_hash is not None:
        prompt_hash = str(prompt_hash)
    if isinstance(prompt, str | int) and not isinstance(prompt, bool):
        text = str(prompt).strip()
        if any(letter.isspace() for letter in text):
            prompt_hash = prompt_hash or hash_of(text)
        elif key is None:
            key = text
    if key is None or isinstance(key, list | dict):
        return None, prompt_hash
    return str(key), prompt_hash


def _failure(row: Row, tpot_ms: float | None) -> str:
    """The reason why a record is no complete answer; '' if it is one.

    Files say it in one of three columns: an error's text, a flag ``ok``, or a status. A record without a speed
    (``tpot_ms`` None) is no answer either.
    """
    error = row.get("error")
    status = row.get("status")
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("type") or "an error"
    if error and str(error).lower() not in ("false", "0", "none", "nan"):
        return short(str(error), 80)
    if str(row.get("ok")).lower() in ("false", "0"):
        return "failed"
    if isinstance(status, str) and status.lower() not in ("ok", "success", "successful", "completed", "done", "200"):
        return f"status {short(status)}"
    return "" if tpot_ms else "no speed"


def _positive(value: Json) -> float | None:
    """``value`` as a number above 0 and below `BEYOND`, otherwise None."""
    number = to_number(value)
    return number if number is not None and 0 < number < BEYOND else None


def _whole_number(value: Json, minimum: int = 1) -> int | None:
    """``value``, rounded, if it is a number from ``minimum`` on and below `BEYOND`, otherwise None."""
    number = to_number(value)
    return round(number) if number is not None and minimum <= number < BEYOND else None


def believable(tpot_ms: float | None) -> float | None:
    """``tpot_ms`` if a model can have it, otherwise None."""
    return tpot_ms if tpot_ms and FASTEST_MS <= tpot_ms <= SLOWEST_MS else None


def lists_of(record: Mapping[str, Json]) -> dict[str, Sequence[Json]]:
    """The lists of a record that hold one value per request (`ttfts`, `output_lens`); {} if it has none."""
    lists: dict[str, Sequence[Json]] = {}
    length = 0
    for column, value in record.items():
        if not isinstance(value, list):
            continue
        canonical = canonical_name(str(column))
        if canonical is None:
            continue
        lists[column] = value
        if canonical[0] in (*SPEEDS, "tokens", "ttft_ms"):
            length = max(length, len(value))
    if not length:
        return {}
    # Lists of another length, such as one of the errors, do not hold a value for each request.
    return {column: values for column, values in lists.items() if len(values) == length}


def expanded(record: Mapping[str, Json], lists: Mapping[str, Sequence[Json]]) -> Iterable[Row]:
    """The rows of parallel lists, one for each request; values of the record as a whole are not repeated in them."""
    for index in range(len(next(iter(lists.values())))):
        yield renamed({name: values[index] for name, values in lists.items()})
