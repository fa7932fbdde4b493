"""Ask a running server for its version and settings: context length, cache, maximum number of sequences.

The sources are `/version`, `/v1/models` (all engines), `/props` (llama.cpp), `/server_info` (SGLang), the labels of the
metric `vllm:cache_config_info` (vLLM), and the engine's log. The result has the same keys for all engines; what no
source reports is missing.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Literal

from ..core.files import object_of
from ..core.http import opener

if TYPE_CHECKING:
    from drafthouse.bench.client import Endpoint
    from drafthouse.bench.result_types import EngineSeen, ServerSettings

# Log lines at the engine's start, by key: settings in which baseline and speculative server may differ unintentionally.
_IN_LOG: dict[Literal["model_runner", "async_scheduling"], re.Pattern[str]] = {
    "model_runner": re.compile(r"[Uu]sing (?:the )?(V[12]) [Mm]odel [Rr]unner"),
    "async_scheduling": re.compile(r"[Aa]sync(?:hronous)? scheduling (?:is|.{0,90}will be) (enabled|disabled)"),
}
JsonObject = dict[str, Any]
# A metric line whose labels are vLLM's cache settings, and one label of it: name="value".
_CACHE_INFO = re.compile(r"^\w+:cache_config_info\{(.*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def engine_seen(endpoint: Endpoint, log: str) -> EngineSeen:
    """The engine's version, context length and settings, as its server and its ``log`` report them."""
    seen = from_log(log)
    version = _object_at(endpoint, "/version").get("version")
    if version is not None:
        seen["version_answered"] = version
    entry: JsonObject = next(iter(_object_at(endpoint, "/v1/models").get("data") or []), {})
    length = entry.get("max_model_len") or (entry.get("meta") or {}).get("n_ctx")
    if length is not None:
        seen["max_model_len_answered"] = length
    settings = server_settings(
        props=_object_at(endpoint, "/props"),
        server_info=_object_at(endpoint, "/server_info"),
        metrics=_text_at(endpoint, endpoint.metrics_path),
    )
    if settings:
        seen["settings_answered"] = settings
    return seen


def from_log(text: str) -> EngineSeen:
    """The settings in an engine's log. Of several starts in the log the last one counts, because it was measured."""
    seen: EngineSeen = {}
    for name, pattern in _IN_LOG.items():
        if words := pattern.findall(text):
            seen[name] = words[-1]
    return seen


def server_settings(props: JsonObject, server_info: JsonObject, metrics: str) -> ServerSettings:
    """The settings in a server's replies, as text; those that it does not report are missing.

    ``props`` is llama.cpp's reply, ``server_info`` SGLang's, {} for other engines; ``metrics`` is the metrics page.
    """
    reported: JsonObject = {}
    if props:
        reported["context"] = (props.get("default_generation_settings") or {}).get("n_ctx")
        reported["max_sequences"] = props.get("total_slots")
    if server_info:
        # SGLang's max_running_requests is left out, because SGLang lowers it itself when it speculates.
        reported["context"] = server_info.get("context_length")
        reported["cache_dtype"] = server_info.get("kv_cache_dtype")
        disabled = server_info.get("disable_radix_cache")
        reported["prefix_cache"] = None if disabled is None else not disabled
    if match := _CACHE_INFO.search(metrics):
        labels = dict(_LABEL.findall(match[1]))
        reported["cache_dtype"] = labels.get("cache_dtype")
        reported["block_size"] = labels.get("block_size")
        reported["prefix_cache"] = labels.get("enable_prefix_caching")
    settings: ServerSettings = {}
    for name in ("context", "cache_dtype", "block_size", "prefix_cache", "max_sequences"):
        if reported.get(name) is not None:
            settings[name] = str(reported[name])
    return settings


def _object_at(endpoint: Endpoint, path: str) -> JsonObject:
    """The JSON object at ``path`` of the server; {} if there is none that can be read."""
    return object_of(_text_at(endpoint, path))


def _text_at(endpoint: Endpoint, path: str) -> str:
    """The text at ``path`` of the server; '' if it does not answer, or answers with an error."""
    request = urllib.request.Request(endpoint.root + path, headers=endpoint.headers)  # noqa: S310
    try:
        with opener().open(request, timeout=10) as answer:
            return str(answer.read().decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return ""
