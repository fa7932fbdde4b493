"""vLLM: its counters, its log, and the ways to write its speculation (one JSON flag, dotted flags, older ones)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.errors import DrafthouseError, Problem, one_problem
from .base import Executor, HostPlace, LogLine, SpecDecodeCounters, spec_decode_series
from .pasted import Command, Given, Speculation, apply_keys, json_value, whole_number
from .vllm_ray import RAY, ray_environment, ray_words

if TYPE_CHECKING:
    from drafthouse.core.shell import Flag
    from drafthouse.engines.entry_types import Settings

_LOOKUP_WORDS = ("[ngram]", "ngram")
_SCHEDULE = "num_speculative_tokens_per_batch_size"
_OWN = ("method", "model", "num_speculative_tokens")
# deepseek_mtp, qwen3_next_mtp and others: a word for each architecture (vllm/config/speculative.py).
_OLD_MTP = re.compile(r"\w+_mtp")
_LOG_LINE = re.compile(r"SpecDecoding metrics: (.*)")
_LOG_FIELD = {
    "accepted": re.compile(r"Accepted: (\d+) tokens"),
    "drafted": re.compile(r"Drafted: (\d+) tokens"),
    "positions": re.compile(r"Per-position acceptance rate: ([\d.]+(?:, [\d.]+)*)"),
    "length": re.compile(r"Mean acceptance length: ([\d.]+)"),
}


class VLLM(SpecDecodeCounters):
    """vLLM's OpenAI server. Names: `vllm/v1/metrics/loggers.py`; TPOT by request is in 0.15.1, and not yet in 0.9.2."""

    name = "vllm"
    prefixes = ("vllm:",)
    series = spec_decode_series(
        "vllm:",
        output_tokens="vllm:generation_tokens_total",
        input_tokens="vllm:prompt_tokens_total",
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        kv_cache="vllm:kv_cache_usage_perc",
        ttft="vllm:time_to_first_token_seconds",
        tpot="vllm:request_time_per_output_token_seconds",
        queue="vllm:request_queue_time_seconds",
    )
    traffic: ClassVar[Mapping[str, str]] = {
        "vllm:request_success": "requests",
        "vllm:prompt_tokens": "input_tokens",
        "vllm:generation_tokens": "output_tokens",
        # In tokens (vllm/v1/metrics/loggers.py, 0.33.0).
        "vllm:prefix_cache_hits": "cached_tokens",
        "vllm:num_requests_running": "running",
        "vllm:num_requests_waiting": "running",
    }
    tokenizes = True
    programs: ClassVar[Mapping[str, str]] = {"vllm": "serve"}
    python_modules = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main", "dynamo.vllm")
    images = (
        # Also -rocm, -cpu, -xpu, and what others build on it under the same name.
        (r"(?:.*/)?vllm-(?:openai|cpu)(?:-[\w-]+)?", ("vllm", "serve")),
        (r"rocm/vllm(?:-dev)?", ()),
    )
    chart_command = ("vllm", "serve")
    python_calls = ("LLM", "AsyncLLM", "EngineArgs", "AsyncEngineArgs", "LLMConfig")
    # The oldest whose own parser has read the flags in our tests; the executor came with PR 23691.
    spans_hosts_since = "0.15.1"
    executors: ClassVar[Mapping[str, Executor]] = {"ray": RAY}
    same_on_hosts = ("vllm", "torch", "ray", "nvidia-nccl-*")
    forms = ("vllm serve", "python -m vllm.entrypoints.openai.api_server", "LLM(...) in Python")
    flags_in_file = True

    def place_flags(self, place: HostPlace) -> list[Flag]:
        """The flags for several hosts: a split model by ``--nnodes``, copies by ``--data-parallel-*``."""
        if place.executor == "ray":
            return [["--distributed-executor-backend", "ray"]]
        split, copies = place.ports
        follows: list[Flag] = [["--headless"]] if place.rank else []
        if place.copies == 1:
            return [
                ["--distributed-executor-backend", "mp"],
                ["--nnodes", str(place.hosts)],
                ["--node-rank", str(place.rank)],
                ["--master-addr", place.head],
                ["--master-port", str(split)],
                *follows,
            ]
        local = place.copies // place.hosts
        # A head that is told its first rank would take itself for one of several servers behind a balancer.
        first: list[Flag] = [["--data-parallel-start-rank", str(place.rank * local)]] if place.rank else []
        return [
            ["--data-parallel-size-local", str(local)],
            ["--data-parallel-address", place.head],
            ["--data-parallel-rpc-port", str(copies)],
            *first,
            *follows,
        ]

    def place_words(self, place: HostPlace) -> list[str]:
        """Ray's, where it is the executor."""
        return ray_words(place) if place.executor == "ray" else []

    def place_environment(self, place: HostPlace) -> dict[str, str]:
        """Which address and interface it uses, and which InfiniBand adapters where there are any."""
        environment = {
            "VLLM_HOST_IP": place.address,
            "NCCL_SOCKET_IFNAME": place.interface,
            "GLOO_SOCKET_IFNAME": place.interface,
        }
        if place.infiniband:
            # "=": these very names, or mlx5_1 would mean mlx5_10 too (NCCL's NCCL_IB_HCA).
            environment["NCCL_IB_HCA"] = f"={','.join(place.infiniband)}"
        if place.executor == "ray":
            environment |= ray_environment(place)
        return environment

    def log_lines(self, text: str) -> list[LogLine]:
        """The lines `SpecDecoding metrics: ...`; see `Engine.log_lines`.

        A line gives accepted and drafted tokens exactly and rounded rates. The number of drafts follows from
        them: accepted / (sum of the per-position rates), which has the most digits; without positions
        accepted / (mean length - 1). Lines where nothing was accepted say nothing about the drafts, unless
        the positions give the length of a draft.
        """
        return list(filter(None, map(_log_line, _LOG_LINE.findall(text))))

    def settings_of_call(self, given: Settings) -> Settings:
        """The settings; Ray Serve's `LLMConfig` has them, and the model, one level deeper."""
        settings, loading = given.get("engine_kwargs"), given.get("model_loading_config")
        if not isinstance(settings, dict) or not isinstance(loading, dict):
            return given
        return {"model": loading.get("model_source", loading.get("model_id")), **settings}

    def take_speculation(self, command: Command) -> None:
        """Take ``--speculative-config`` out of the flags, as one table; see `Engine.take_speculation`.

        The JSON, dotted keys and separate flags may be mixed; DrafthouseError where they contradict each other.
        """
        rest: list[Given] = []
        raw: Settings = {}
        flags: dict[str, str] = {}
        for flag in command.given:
            head, dot, key = flag.name.partition(".")
            if head != "speculative-config":
                rest.append(flag)
                continue
            items = {key: json_value(flag.value)} if dot else _json(flag)
            for name, value in items.items():
                *parents, last = name.replace("-", "_").split(".")
                place = raw
                for parent in parents:
                    place = place.setdefault(parent, {})
                if last in place and str(place[last]) != str(value):
                    raise DrafthouseError(_two(last, place[last], flags.get(last, "?"), value, flag.spelled))
                place[last] = value
                flags[last] = flag.spelled
        command.given, raw = rest, _one_method(raw, flags)
        lookups = {name for name in command.before if name.startswith("ngram-prompt-lookup")}
        if lookups == {"ngram-prompt-lookup-max"} and "prompt_lookup_min" not in raw:
            raw["prompt_lookup_min"] = 1
            why = "it was 1 where only the maximum was given; today it would be the maximum"
            command.note("(no minimum)", "prompt_lookup_min: 1", why, "chosen", "0.8.3")
        command.taken = raw

    def read_speculation(self, command: Command) -> Speculation | None:
        """Make one `Speculation` of the table that was taken; see `Engine.read_speculation`."""
        raw = command.taken
        if not raw:
            return None
        draft = str(raw.get("model") or "").rstrip("/")
        method = str(raw.get("method") or "")
        if not method:
            method = command.guess(draft)
            why = "derived from the draft; the engine would guess it from the draft's name, so it is explicit now"
            command.note("(no method)", f"method: {method}", why, "chosen")
        if _OLD_MTP.fullmatch(method):
            why = "one name for the heads inside all targets"
            command.note(f"method {method}", "method: mtp", why, "renamed", "0.11.0")
            method = "mtp"
        word, method = method, command.method_named(method, raw)
        tokens = raw.get("num_speculative_tokens")
        if tokens is not None:
            tokens = whole_number(tokens, "num_speculative_tokens")
        names = command.option_names(method)
        own: Settings = {}
        old: Settings = {}
        for key, value in raw.items():
            if key in names:
                own[key] = value
            else:
                old[key] = value
        settings = {**apply_keys(old, command.table, command.changes, "--speculative-config"), **own}
        entry = command.engine["methods"].get(method)
        rows = entry.get("options", {}).get(_SCHEDULE) if entry else None
        # On the controller alone: a bare box, which imports this file too, has no `packaging`.
        from ..core.versions import known  # noqa: PLC0415

        batch = old.get("disable_by_batch_size")
        if batch is not None and tokens and rows and known(command.version, rows):
            most = whole_number(batch, "disable_by_batch_size")
            settings.setdefault(_SCHEDULE, [[1, most, tokens], [most + 1, most + 1, 0]])
            version = command.changes.pop().version
            why = "rows of [first batch size, last, K]; the last row applies to all above it (0.25.0)"
            command.note("disable_by_batch_size", _SCHEDULE, why, "renamed", version)
        words: Settings = {"method": word}
        if draft:
            words["model"] = draft
        if tokens is not None:
            words["num_speculative_tokens"] = tokens
        for key, value in settings.items():
            words.setdefault(key, value)
        always = entry.get("always", {}) if entry else {}
        return Speculation(method, draft, tokens, words).sorted(names, [*_OWN, *always])


def _log_line(text: str) -> LogLine | None:
    found = {name: pattern.search(text) for name, pattern in _LOG_FIELD.items()}
    if not found["accepted"] or not found["drafted"]:
        return None
    accepted, drafted = int(found["accepted"].group(1)), int(found["drafted"].group(1))
    rates: list[float] = []
    if positions := found["positions"]:
        rates = list(map(float, positions.group(1).split(", ")))
    length = float(found["length"].group(1)) if found["length"] else 1.0
    drafts: float | None = None
    kept = math.fsum(rates)
    if accepted and kept:
        drafts = accepted / kept
    elif accepted and length > 1:
        drafts = accepted / (length - 1)
    elif rates:
        drafts = drafted / len(rates)
    return LogLine(drafts, drafted, accepted, rates)


def _two(key: str, one: object, where: str, other: object, there: str) -> Problem:
    what = "two methods at once" if key in ("method", "model") else f"two values of {key}"
    return Problem(
        "conflicting-options",
        f"{what}: {one} ({where}) and {other} ({there})",
        "one speculative method",
        f"remove {where} or {there}",
        "speculation",
    )


def _one_method(raw: Settings, flags: Mapping[str, str]) -> Settings:
    """Write the method out where the model names a lookup, and refuse two methods at once."""
    model = str(raw.get("model", ""))
    if model.startswith("[") and model not in _LOOKUP_WORDS:
        raise one_problem(
            "unknown-value", model, "a model, or the lookup [ngram]", "did you mean [ngram]?", flags.get("model", "")
        )
    if raw.get("model") in _LOOKUP_WORDS:
        if raw.get("method", "ngram") not in _LOOKUP_WORDS:
            raise DrafthouseError(
                _two("method", raw["method"], flags["method"], f"a lookup ({raw['model']})", flags["model"])
            )
        raw = {"method": "ngram", **{key: value for key, value in raw.items() if key not in ("model", "method")}}
    if raw.get("method") in _LOOKUP_WORDS:
        raw["method"] = "ngram"
    lookups = [key for key in raw if key.startswith("prompt_lookup_")]
    if raw.get("model") and (raw.get("method") in ("ngram", "suffix") or (lookups and raw.get("method") is None)):
        key = "method" if raw.get("method") else lookups[0]
        raise DrafthouseError(_two("model", raw["model"], flags["model"], f"an n-gram lookup ({raw[key]})", flags[key]))
    if lookups and not raw.get("method"):
        raw = {"method": "ngram", **raw}
    return raw


def _json(given: Given) -> Settings:
    """The JSON of --speculative-config; raises DrafthouseError with line and column where it is none."""
    reason = f"{type(given.value).__name__} instead of text"
    if isinstance(given.value, str):
        try:
            data: Any = json.loads(given.value)
        except json.JSONDecodeError as error:
            reason = json_fault(error)
        else:
            if isinstance(data, dict):
                return data
            reason = f"{type(data).__name__}, not keys with values"
    raise one_problem(
        "wrong-format",
        f"text that is not JSON ({reason})",
        'keys with values, such as {"method": "eagle3", "model": "...", "num_speculative_tokens": 3}',
        "correct it; put the whole JSON in single quotes",
        given.spelled,
    )


def json_fault(error: json.JSONDecodeError) -> str:
    """Line, column and words of a fault in JSON, the same from every Python.

    A comma before a closing bracket is told apart since 3.13, and with the place of the comma; older ones tell that
    of the bracket (https://docs.python.org/3/whatsnew/3.13.html#json).
    """
    place, message = error.pos, error.msg
    if message.startswith("Illegal trailing comma") and (comma := re.compile(r",\s*").match(error.doc, place)):
        place = comma.end()
    if error.doc[:place].rstrip().endswith(",") and error.doc[place : place + 1] in ("}", "]"):
        message = "a comma before the closing bracket"
    same = json.JSONDecodeError(message, error.doc, place)
    return f"line {same.lineno}, column {same.colno}: {same.msg}"
