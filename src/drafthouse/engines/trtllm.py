"""TensorRT-LLM: its two ways to count, its YAML, and how that says what is drafted with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from ..core.errors import Problem
from ..core.prometheus_text import Sample
from .base import Drafted, Engine, Series, by_field, by_place
from .pasted import Command, Speculation, whole_number

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Method, Settings

_BY_REQUEST, _BY_ITERATION = "by request", "by iteration"
_COUNTERS = "trtllm_spec_decode_*"
_SINCE = "1.3.0rc19"


class TensorRTLLM(Engine):
    """trtllm-serve. It counts twice (`tensorrt_llm/metrics/collector.py`), at /prometheus/metrics.

    That is there only with `return_perf_metrics: true`.

    - By request and position, since 1.3.0rc19 (PR 12636): `trtllm_spec_decode_drafted_tokens_total` and
      `trtllm_spec_decode_accepted_tokens_total`, with the label `token_position`. A draft has a token at position 0,
      so what was drafted there is the number of drafts. Written as a request ends.
    - By iteration (PR 12545), with `enable_iter_perf_stats: true`: `trtllm_spec_decode_num_draft_tokens_total` and
      `trtllm_spec_decode_num_accepted_tokens_total`, without the number of drafts.

    Neither has a line before it first moved, so that a server without them may draft all the same (every 1.2 does).
    """

    name = "trtllm"
    # With an underscore as trtllm-serve writes it, with a colon behind NVIDIA Dynamo.
    prefixes = ("trtllm_", "trtllm:")
    shows_zeros = False
    no_sign = (
        f"the server has neither {_COUNTERS} counters (TensorRT-LLM has them since {_SINCE}, with return_perf_metrics) "
        "nor avg_decoded_tokens_per_iter in its answers (gpt-oss's own chat format leaves it out)"
    )
    see_drafts = f"{_COUNTERS}, since TensorRT-LLM {_SINCE}"
    # Its queue and its KV cache it shows only with statistics of every iteration, which the catalogue leaves off.
    series = Series(
        drafts="trtllm_spec_decode_drafted_tokens_total",
        drafts_where='token_position="0"',
        draft_tokens="trtllm_spec_decode_drafted_tokens_total",
        accepted_tokens="trtllm_spec_decode_accepted_tokens_total",
        accepted_at="trtllm_spec_decode_accepted_tokens_total",
        position="token_position",
        output_tokens="trtllm_generation_tokens_total",
        input_tokens="trtllm_prompt_tokens_total",
        ttft="trtllm_time_to_first_token_seconds",
        tpot="trtllm_time_per_output_token_seconds",
        queue="trtllm_request_queue_time_seconds",
    )
    traffic: ClassVar[Mapping[str, str]] = {"trtllm_request_success": "requests", "trtllm:request_success": "requests"}
    programs: ClassVar[Mapping[str, str]] = {"trtllm-serve": ""}
    other_verbs: ClassVar[Mapping[str, str]] = {
        "disaggregated": "a router in front of separate prefill and decode servers",
        "disaggregated_mpi_worker": "a worker of separate prefill and decode servers, under MPI",
        "mm_embedding_serve": "a server of only the encoder of a multimodal model",
    }
    python_modules = ("tensorrt_llm.commands.serve",)
    images = ((r"nvcr\.io/nvidia/tensorrt-llm/release", ()),)
    python_package = (
        "tensorrt_llm",
        "its server's command: trtllm-serve MODEL --extra_llm_api_options FILE",
        "put the keyword arguments into that YAML file, under the same names",
    )
    forms = ("trtllm-serve",)
    _FIELDS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "spec_decode_drafted_tokens": (_BY_REQUEST, "draft_tokens"),
        "spec_decode_accepted_tokens": (_BY_REQUEST, "accepted_tokens"),
        "spec_decode_num_draft_tokens": (_BY_ITERATION, "draft_tokens"),
        "spec_decode_num_accepted_tokens": (_BY_ITERATION, "accepted_tokens"),
    }

    def drafted(self, samples: Sequence[Sample]) -> Drafted | None:
        """The counts by request, which knows the drafts, before those by iteration; never both added."""
        found = by_field(samples, self._FIELDS, self.prefixes, "token_position")
        if not found:
            return None
        by_request = any(family == _BY_REQUEST for family, _ in found)
        family = _BY_REQUEST if by_request else _BY_ITERATION
        drafts = found.get((family, "draft_tokens"), {})
        accepted = found.get((family, "accepted_tokens"), {})
        counted = Drafted(None, sum(drafts.values()), sum(accepted.values()), family=family)
        if by_request:
            return replace(counted, num_drafts=drafts.get(0, 0), per_position=by_place(accepted))
        return counted

    def config_problems(self, data: Settings, version: str, where: str) -> list[Problem]:
        """What this version would refuse in its YAML; it can be asked itself only where there is a GPU."""
        # On the controller alone: a bare box, which imports this file too, has no `packaging`.
        from .trtllm_config import check_config  # noqa: PLC0415

        return check_config(data, version, where)

    def config_warnings(self, data: Settings) -> list[str]:
        """What it accepts in its YAML with a warning in its log."""
        from .trtllm_config import warnings_of  # noqa: PLC0415 (as above)

        return warnings_of(data)

    def shows_counters(self, config: Settings) -> bool:
        """Tell whether its YAML asks for them, as that of versions which have them does."""
        return bool(config.get("return_perf_metrics"))

    def read_speculation(self, command: Command) -> Speculation | None:
        """Take `speculative_config` out of the settings of the YAML; see `Engine.read_speculation`."""
        key = f"{command.engine['speculation'].get('key', 'speculative_config')}."
        words: Settings = {}
        for name in list(command.config):
            if name.startswith(key):
                words[name.removeprefix(key)] = command.config.pop(name)
        if not words:
            return None
        kind = str(words.get("decoding_type", "AUTO"))
        methods = command.engine["methods"]
        method = _method_of(kind, methods)
        by_word: dict[str, str] = {}
        if method in methods:
            by_word = _words_of(methods[method])
            _to_todays(words, method, by_word, command, key)
        neutral = {by_word[word]: value for word, value in words.items() if word in by_word}
        tokens = neutral.get("num_speculative_tokens", words.get("max_draft_len"))
        draft = str(neutral.get("model", words.get("speculative_model_dir", ""))).rstrip("/")
        if tokens is not None:
            tokens = whole_number(tokens, f"{key}max_draft_len")
        known = (*by_word, "decoding_type", "max_draft_len", "speculative_model_dir")
        return Speculation(method, draft, tokens, words).sorted(command.option_names(method), known, prefix=key)


def _method_of(kind: str, methods: Mapping[str, Method]) -> str:
    """The catalogue's name of a decoding type, which may be given by its class; ``kind`` where it is unknown."""
    for name, entry in methods.items():
        if _plain(kind) in (_plain(name), _plain(entry.get("value", name))):
            return name
    return kind


def _to_todays(words: Settings, method: str, by_word: Mapping[str, str], command: Command, key: str) -> None:
    """Write words of other versions as the catalogue's own version has them: it would refuse one, or not read it."""
    from ..core.versions import spelled  # noqa: PLC0415 (as above)

    entry, version = command.engine["methods"][method], command.engine["default_version"]
    spellings = entry.get("spelled", {})
    for word, neutral in by_word.items():
        own = spelled(version, entry["names"][neutral], spellings.get(neutral, ()))
        if word in words and word != own:
            words[own] = words.pop(word)
            command.note(f"{key}{word}", f"{key}{own}", f"as {version} calls it", "renamed")
    kind = spelled(version, entry.get("value", method), spellings.get("value", ()))
    if "decoding_type" in words and words["decoding_type"] != kind:
        was = f"{key}decoding_type: {words['decoding_type']}"
        words["decoding_type"] = kind
        command.note(was, f"{key}decoding_type: {kind}", f"as {version} calls it", "renamed")


def _words_of(method: Method) -> dict[str, str]:
    """What a method's words mean, with those of other versions."""
    others = method.get("spelled", {})
    words: dict[str, str] = {}
    for neutral in method["names"]:
        for spelling in others.get(neutral, ()):
            words[spelling["as"]] = neutral
    return words | {word: neutral for neutral, word in method["names"].items()}


def _plain(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")
