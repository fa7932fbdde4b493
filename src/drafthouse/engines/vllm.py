"""vLLM: its counters, its log, and its speculation settings (a JSON flag, dotted flags, or flags of old versions)."""

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
    from drafthouse.engines.entry_types import Method, Settings

_LOOKUP_WORDS = ("[ngram]", "ngram")  # as a model or a method: the n-gram lookup
_SCHEDULE = "num_speculative_tokens_per_batch_size"  # setting: K by batch size
_BASIC_KEYS = ("method", "model", "num_speculative_tokens")  # a `Speculation` has attributes for these
# Old versions have a method per architecture: deepseek_mtp, qwen3_next_mtp (vllm/config/speculative.py).
_OLD_MTP = re.compile(r"\w+_mtp")
_LOG_LINE = re.compile(r"SpecDecoding metrics: (.*)")
_LOG_FIELD = {
    "accepted": re.compile(r"Accepted: (\d+) tokens"),
    "drafted": re.compile(r"Drafted: (\d+) tokens"),
    "positions": re.compile(r"Per-position acceptance rate: ([\d.]+(?:, [\d.]+)*)"),
    "length": re.compile(r"Mean acceptance length: ([\d.]+)"),
}


class VLLM(SpecDecodeCounters):
    """vLLM's OpenAI server. The series are named in `vllm/v1/metrics/loggers.py`; 0.9.2 has no TPOT, 0.15.1 has it."""

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
        "vllm:prefix_cache_hits": "cached_tokens",  # tokens, not requests (vllm/v1/metrics/loggers.py, 0.33.0)
        "vllm:num_requests_running": "running",
        "vllm:num_requests_waiting": "running",
    }
    tokenizes = True
    programs: ClassVar[Mapping[str, str]] = {"vllm": "serve"}
    python_modules = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main", "dynamo.vllm")
    images = (
        # Also variants such as -rocm, -cpu and -xpu, and images of other registries with the same name.
        (r"(?:.*/)?vllm-(?:openai|cpu)(?:-[\w-]+)?", ("vllm", "serve")),
        (r"rocm/vllm(?:-dev)?", ()),
    )
    chart_command = ("vllm", "serve")
    python_calls = ("LLM", "AsyncLLM", "EngineArgs", "AsyncEngineArgs", "LLMConfig")
    # The oldest version whose parser accepts the flags in the tests; PR 23691 added the executor.
    spans_hosts_since = "0.15.1"
    executors: ClassVar[Mapping[str, Executor]] = {"ray": RAY}
    same_on_hosts = ("vllm", "torch", "ray", "nvidia-nccl-*")
    forms = ("vllm serve", "python -m vllm.entrypoints.openai.api_server", "LLM(...) in Python")
    flags_in_file = True

    def place_flags(self, place: HostPlace) -> list[Flag]:
        """The flags for several hosts: Ray's if that is the executor; else those for a split model, or for copies."""
        if place.executor == "ray":
            return [["--distributed-executor-backend", "ray"]]
        split_port, copies_port = place.ports
        headless: list[Flag] = [["--headless"]] if place.rank else []
        if place.copies == 1:
            return [
                ["--distributed-executor-backend", "mp"],
                ["--nnodes", str(place.hosts)],
                ["--node-rank", str(place.rank)],
                ["--master-addr", place.head],
                ["--master-port", str(split_port)],
                *headless,
            ]
        local_copies = place.copies // place.hosts
        # With this flag a head would act as one of several servers behind a load balancer.
        start: list[Flag] = [["--data-parallel-start-rank", str(place.rank * local_copies)]] if place.rank else []
        return [
            ["--data-parallel-size-local", str(local_copies)],
            ["--data-parallel-address", place.head],
            ["--data-parallel-rpc-port", str(copies_port)],
            *start,
            *headless,
        ]

    def place_words(self, place: HostPlace) -> list[str]:
        """Ray's command if it is the executor; otherwise vLLM needs none."""
        return ray_words(place) if place.executor == "ray" else []

    def place_environment(self, place: HostPlace) -> dict[str, str]:
        """The variables for this host's address, interface and InfiniBand adapters, and for Ray if it is used."""
        environment = {
            "VLLM_HOST_IP": place.address,
            "NCCL_SOCKET_IFNAME": place.interface,
            "GLOO_SOCKET_IFNAME": place.interface,
        }
        if place.infiniband:
            # NCCL reads names without a leading "=" as prefixes: mlx5_1 would match mlx5_10 too.
            environment["NCCL_IB_HCA"] = f"={','.join(place.infiniband)}"
        if place.executor == "ray":
            environment |= ray_environment(place)
        return environment

    def log_lines(self, text: str) -> list[LogLine]:
        """The lines `SpecDecoding metrics: ...`; see `Engine.log_lines`.

        A line has exact numbers of accepted and drafted tokens, and rounded rates. The number of drafts is computed:
        accepted / sum of the per-position rates, which is the most precise, or accepted / (mean length - 1) without
        positions. If nothing was accepted, it is drafted / number of positions, or None without positions.
        """
        return list(filter(None, map(_log_line, _LOG_LINE.findall(text))))

    def settings_of_call(self, given: Settings) -> Settings:
        """The arguments themselves; or those inside Ray Serve's `LLMConfig`, with the model."""
        settings = given.get("engine_kwargs")
        loading = given.get("model_loading_config")
        if not isinstance(settings, dict) or not isinstance(loading, dict):
            return given
        return {"model": loading.get("model_source", loading.get("model_id")), **settings}

    def take_speculation(self, command: Command) -> None:
        """Merge all ``--speculative-config`` flags into one mapping; see `Engine.take_speculation`.

        JSON, dotted keys and separate flags may be mixed. Raises DrafthouseError if they contradict each other.
        """
        rest: list[Given] = []
        raw: Settings = {}
        flags: dict[str, str] = {}  # last part of a key -> the flag that set it, as typed
        for flag in command.given:
            head, dot, key = flag.name.partition(".")
            if head != "speculative-config":
                rest.append(flag)
                continue
            items = {key: json_value(flag.value)} if dot else _json(flag)
            for name, value in items.items():
                *parents, last = name.replace("-", "_").split(".")
                level = raw
                for parent in parents:
                    level = level.setdefault(parent, {})
                if last in level and str(level[last]) != str(value):  # the same value twice is harmless
                    raise DrafthouseError(_clash(last, level[last], flags.get(last, "?"), value, flag.spelled))
                level[last] = value
                flags[last] = flag.spelled
        command.given = rest
        raw = _one_method(raw, flags)
        lookups = {name for name in command.before if name.startswith("ngram-prompt-lookup")}
        if lookups == {"ngram-prompt-lookup-max"} and "prompt_lookup_min" not in raw:
            raw["prompt_lookup_min"] = 1
            why = "it was 1 where only the maximum was given; today it would be the maximum"
            command.note("(no minimum)", "prompt_lookup_min: 1", why, "chosen", "0.8.3")
        command.taken = raw

    def read_speculation(self, command: Command) -> Speculation | None:
        """The `Speculation` of the mapping ``command.taken``; see `Engine.read_speculation`."""
        raw = command.taken
        if not raw:
            return None
        draft = str(raw.get("model") or "").rstrip("/")
        method = str(raw.get("method") or "")
        if not method:
            method = command.guess(str(raw.get("model", " ".join(raw))))
            why = "derived from the draft; the engine would guess it from the draft's name, so it is explicit now"
            command.note("(no method)", f"method: {method}", why, "chosen")
        if _OLD_MTP.fullmatch(method):
            why = "one name for the heads inside all targets"
            command.note(f"method {method}", "method: mtp", why, "renamed", "0.11.0")
            method = "mtp"
        engine_name = method
        method = command.method_named(engine_name, raw)
        tokens = raw.get("num_speculative_tokens")
        if tokens is not None:
            tokens = whole_number(tokens, "num_speculative_tokens")
        names = command.option_names(method)
        method_options: Settings = {}
        others: Settings = {}
        for key, value in raw.items():
            if key in names:
                method_options[key] = value
            else:
                others[key] = value
        settings = {**apply_keys(others, command.table, command.changes, "--speculative-config"), **method_options}
        entry = command.engine["methods"].get(method)
        if tokens and others.get("disable_by_batch_size") is not None:
            _add_schedule(settings, others["disable_by_batch_size"], tokens, entry, command)
        words: Settings = {"method": engine_name}
        if draft:
            words["model"] = draft
        if tokens is not None:
            words["num_speculative_tokens"] = tokens
        for key, value in settings.items():
            words.setdefault(key, value)
        always = entry.get("always", {}) if entry else {}
        return Speculation(method, draft, tokens, words).sort_words(names, [*_BASIC_KEYS, *always])


def _add_schedule(settings: Settings, batch_size: object, tokens: int, entry: Method | None, command: Command) -> None:
    """Add a schedule of K to ``settings`` in place of `disable_by_batch_size`, if the method has it in this version.

    Speculation stopped above ``batch_size``. Today the same is a schedule with K = ``tokens`` up to it and 0 above it.
    """
    # Imported here: only the controller calls this, and a box, which imports this file too, has no `packaging`.
    from ..core.versions import supports  # noqa: PLC0415

    schedule = entry.get("options", {}).get(_SCHEDULE) if entry else None
    if not schedule or not supports(command.version, schedule):
        return
    most = whole_number(batch_size, "disable_by_batch_size")
    settings.setdefault(_SCHEDULE, [[1, most, tokens], [most + 1, most + 1, 0]])
    version = command.changes.pop().version  # in place of the note of `apply_keys` that the key was removed
    why = "rows of [first batch size, last, K]; the last row applies to all above it (0.25.0)"
    command.note("disable_by_batch_size", _SCHEDULE, why, "renamed", version)


def _log_line(text: str) -> LogLine | None:
    """The figures of a line, explained at `VLLM.log_lines`; None for a line without token counts."""
    fields = {name: pattern.search(text) for name, pattern in _LOG_FIELD.items()}
    if not fields["accepted"] or not fields["drafted"]:
        return None
    accepted = int(fields["accepted"].group(1))
    drafted = int(fields["drafted"].group(1))
    rates: list[float] = []
    if positions := fields["positions"]:
        rates = list(map(float, positions.group(1).split(", ")))
    length = float(fields["length"].group(1)) if fields["length"] else 1.0
    drafts: float | None = None
    accepted_per_draft = math.fsum(rates)
    if accepted and accepted_per_draft:
        drafts = accepted / accepted_per_draft
    elif accepted and length > 1:
        drafts = accepted / (length - 1)
    elif rates:
        drafts = drafted / len(rates)
    return LogLine(drafts, drafted, accepted, rates)


def _clash(key: str, value: object, flag: str, other_value: object, other_flag: str) -> Problem:
    """The problem of two flags, as typed, that set ``key`` to different values."""
    what = "two methods at once" if key in ("method", "model") else f"two values of {key}"
    return Problem(
        "conflicting-options",
        f"{what}: {value} ({flag}) and {other_value} ({other_flag})",
        "one speculative method",
        f"remove {flag} or {other_flag}",
        "speculation",
    )


def _one_method(raw: Settings, flags: Mapping[str, str]) -> Settings:
    """The settings ``raw``, with ``method`` where ``model`` or another key means the n-gram lookup.

    ``flags``: by key, the flag that set it, as typed. Raises DrafthouseError for two methods, and for a word in
    brackets other than the lookup's.
    """
    model = str(raw.get("model", ""))
    if model.startswith("[") and model not in _LOOKUP_WORDS:
        raise one_problem(
            "unknown-value", model, "a model, or the lookup [ngram]", "did you mean [ngram]?", flags.get("model", "")
        )
    if raw.get("model") in _LOOKUP_WORDS:
        if raw.get("method", "ngram") not in _LOOKUP_WORDS:
            raise DrafthouseError(
                _clash("method", raw["method"], flags["method"], f"a lookup ({raw['model']})", flags["model"])
            )
        raw = {"method": "ngram", **{key: value for key, value in raw.items() if key not in ("model", "method")}}
    if raw.get("method") in _LOOKUP_WORDS:
        raw["method"] = "ngram"
    lookups = [key for key in raw if key.startswith("prompt_lookup_")]
    # A lookup has no draft model: one with a model is two methods at once.
    if raw.get("model") and (raw.get("method") in ("ngram", "suffix") or (lookups and raw.get("method") is None)):
        key = "method" if raw.get("method") else lookups[0]
        raise DrafthouseError(
            _clash("model", raw["model"], flags["model"], f"an n-gram lookup ({raw[key]})", flags[key])
        )
    if lookups and not raw.get("method"):
        raw = {"method": "ngram", **raw}
    return raw


def _json(given: Given) -> Settings:
    """The JSON of --speculative-config. Raises DrafthouseError, with line and column, if it is not a JSON object."""
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
    """Line, column and message of a JSON error, the same text in all Python versions.

    For a comma before a closing bracket, Python 3.13 has a message with the position of the comma, older versions
    another one with that of the bracket (https://docs.python.org/3/whatsnew/3.13.html#json).
    """
    position = error.pos
    message = error.msg
    if message.startswith("Illegal trailing comma") and (comma := re.compile(r",\s*").match(error.doc, position)):
        position = comma.end()
    if error.doc[:position].rstrip().endswith(",") and error.doc[position : position + 1] in ("}", "]"):
        message = "a comma before the closing bracket"
    unified = json.JSONDecodeError(message, error.doc, position)
    return f"line {unified.lineno}, column {unified.colno}: {unified.msg}"
