"""TensorRT-LLM: its two sets of counters, its YAML configuration file, and the speculation settings in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from ..core.errors import Problem
from ..core.prometheus_text import Sample
from .base import Drafted, Engine, Series, by_field, by_position
from .pasted import Command, Speculation, whole_number

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Method, Settings

#: The two sets of counters, as `Drafted.family` names them.
_BY_REQUEST, _BY_ITERATION = "by request", "by iteration"
_COUNTERS = "trtllm_spec_decode_*"
_SINCE = "1.3.0rc19"  # the first version with the counters by request


class TensorRTLLM(Engine):
    """trtllm-serve. It counts draft tokens in two ways (`tensorrt_llm/metrics/collector.py`).

    The counters are at /prometheus/metrics, only with `return_perf_metrics: true`.

    - By request and position, since 1.3.0rc19 (PR 12636): `trtllm_spec_decode_drafted_tokens_total` and
      `trtllm_spec_decode_accepted_tokens_total`, with the label `token_position`, updated when a request ends. Each
      draft has a token at position 0, so the drafted tokens there are the number of drafts.
    - By iteration (PR 12545), with `enable_iter_perf_stats: true`: `trtllm_spec_decode_num_draft_tokens_total` and
      `trtllm_spec_decode_num_accepted_tokens_total`, without the number of drafts.

    A counter is missing until it first increases. So a server without them may speculate all the same, as 1.2 does.
    """

    name = "trtllm"
    # trtllm-serve has the underscore, NVIDIA Dynamo the colon.
    prefixes = ("trtllm_", "trtllm:")
    shows_zeros = False
    no_sign = (
        f"the server has neither {_COUNTERS} counters (TensorRT-LLM has them since {_SINCE}, with return_perf_metrics) "
        "nor avg_decoded_tokens_per_iter in its answers (gpt-oss's own chat format leaves it out)"
    )
    see_drafts = f"{_COUNTERS}, since TensorRT-LLM {_SINCE}"
    # The queue length and the KV cache use are shown only with enable_iter_perf_stats, which the catalogue leaves off.
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
    #: Counter, without prefix and `_total` -> its set, and its field in `Drafted`.
    _FIELDS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "spec_decode_drafted_tokens": (_BY_REQUEST, "draft_tokens"),
        "spec_decode_accepted_tokens": (_BY_REQUEST, "accepted_tokens"),
        "spec_decode_num_draft_tokens": (_BY_ITERATION, "draft_tokens"),
        "spec_decode_num_accepted_tokens": (_BY_ITERATION, "accepted_tokens"),
    }

    def drafted(self, samples: Sequence[Sample]) -> Drafted | None:
        """The counters by request, which include the drafts; only if they are missing, those by iteration."""
        values = by_field(samples, self._FIELDS, self.prefixes, "token_position")
        if not values:
            return None
        by_request = any(counted_by == _BY_REQUEST for counted_by, _ in values)
        family = _BY_REQUEST if by_request else _BY_ITERATION
        drafted = values.get((family, "draft_tokens"), {})  # by position
        accepted = values.get((family, "accepted_tokens"), {})
        totals = Drafted(
            num_drafts=None, draft_tokens=sum(drafted.values()), accepted_tokens=sum(accepted.values()), family=family
        )
        if by_request:
            return replace(totals, num_drafts=drafted.get(0, 0), per_position=by_position(accepted))
        return totals

    def config_problems(self, data: Settings, version: str, where: str) -> list[Problem]:
        """What this version would refuse in its YAML; the engine's own check needs a GPU."""
        # Imported here: only the controller calls this, and a box, which imports this file too, has no `packaging`.
        from .trtllm_config import check_config  # noqa: PLC0415

        return check_config(data, version, where)

    def config_warnings(self, data: Settings) -> list[str]:
        """What the engine would change in the YAML, with only a line in its log."""
        from .trtllm_config import warnings_of  # noqa: PLC0415 (as above)

        return warnings_of(data)

    def shows_counters(self, config: Settings) -> bool:
        """True if the YAML enables the metrics; the catalogue does so for the versions that have them."""
        return bool(config.get("return_perf_metrics"))

    def read_speculation(self, command: Command) -> Speculation | None:
        """Take `speculative_config` out of the settings of the YAML; see `Engine.read_speculation`."""
        prefix = f"{command.engine['speculation'].get('key', 'speculative_config')}."
        words: Settings = {}
        for name in list(command.config):
            if name.startswith(prefix):
                words[name.removeprefix(prefix)] = command.config.pop(name)
        if not words:
            return None
        kind = str(words.get("decoding_type", "AUTO"))
        methods = command.engine["methods"]
        method = _method_of(kind, methods)
        profile_names: dict[str, str] = {}
        if method in methods:
            profile_names = _profile_names(methods[method])
            _rename_words(words, method, profile_names, command, prefix)
        settings = {profile_names[word]: value for word, value in words.items() if word in profile_names}
        tokens = settings.get("num_speculative_tokens", words.get("max_draft_len"))
        draft = str(settings.get("model", words.get("speculative_model_dir", ""))).rstrip("/")
        if tokens is not None:
            tokens = whole_number(tokens, f"{prefix}max_draft_len")
        basic = (*profile_names, "decoding_type", "max_draft_len", "speculative_model_dir")
        return Speculation(method, draft, tokens, words).sort_words(command.option_names(method), basic, prefix=prefix)


def _method_of(kind: str, methods: Mapping[str, Method]) -> str:
    """The catalogue's method for a decoding type, by its name in any spelling; ``kind`` itself if there is none."""
    for name, entry in methods.items():
        if _without_separators(kind) in (_without_separators(name), _without_separators(entry.get("value", name))):
            return name
    return kind


def _rename_words(
    words: Settings, method: str, profile_names: Mapping[str, str], command: Command, prefix: str
) -> None:
    """Rename keys of other versions in ``words`` to those of the catalogue's version, which ignores or refuses them.

    ``prefix``: of the keys in the file, for the notes to the user.
    """
    from ..core.versions import spelled  # noqa: PLC0415 (as above)

    entry = command.engine["methods"][method]
    version = command.engine["default_version"]
    spellings = entry.get("spelled", {})
    for word, profile_name in profile_names.items():
        new = spelled(version, entry["names"][profile_name], spellings.get(profile_name, ()))
        if word in words and word != new:
            words[new] = words.pop(word)
            command.note(f"{prefix}{word}", f"{prefix}{new}", f"as {version} calls it", "renamed")
    kind = spelled(version, entry.get("value", method), spellings.get("value", ()))
    if "decoding_type" in words and words["decoding_type"] != kind:
        was = f"{prefix}decoding_type: {words['decoding_type']}"
        words["decoding_type"] = kind
        command.note(was, f"{prefix}decoding_type: {kind}", f"as {version} calls it", "renamed")


def _profile_names(method: Method) -> dict[str, str]:
    """The engine's names of a method's settings, in all versions -> a profile's names."""
    spellings = method.get("spelled", {})
    names: dict[str, str] = {}
    for profile_name in method["names"]:
        for spelling in spellings.get(profile_name, ()):
            names[spelling["as"]] = profile_name
    return names | {word: profile_name for profile_name, word in method["names"].items()}


def _without_separators(word: str) -> str:
    """A word in small letters without `_` and `-`, so that spellings can be compared."""
    return word.lower().replace("_", "").replace("-", "")
