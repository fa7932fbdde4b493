"""What a server says of itself: its version, its context, its cache, how much it takes at once.

Each engine says it elsewhere: `/v1/models` (all), `/props` (llama.cpp), `/server_info` (SGLang), and the labels of
`vllm:cache_config_info` among the metrics (vLLM). The names here are one for all of them.
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

# What an engine says of itself while it starts, where the two arms may differ beside speculation.
_IN_LOG: dict[Literal["model_runner", "async_scheduling"], re.Pattern[str]] = {
    "model_runner": re.compile(r"[Uu]sing (?:the )?(V[12]) [Mm]odel [Rr]unner"),
    "async_scheduling": re.compile(r"[Aa]sync(?:hronous)? scheduling (?:is|.{0,90}will be) (enabled|disabled)"),
}
JsonObject = dict[str, Any]
_CACHE_INFO = re.compile(r"^\w+:cache_config_info\{(.*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def engine_seen(endpoint: Endpoint, log: str) -> EngineSeen:
    """What the engine itself says it is: its version, its context, its settings, what it switched on its own."""
    seen = from_log(log)
    version = _object_at(endpoint, "/version").get("version")
    if version is not None:
        seen["version_answered"] = version
    entry: JsonObject = next(iter(_object_at(endpoint, "/v1/models").get("data") or []), {})
    length = entry.get("max_model_len") or (entry.get("meta") or {}).get("n_ctx")
    if length is not None:
        seen["max_model_len_answered"] = length
    settings = server_settings(
        _object_at(endpoint, "/props"), _object_at(endpoint, "/server_info"), _text_at(endpoint, endpoint.metrics_path)
    )
    if settings:
        seen["settings_answered"] = settings
    return seen


def from_log(text: str) -> EngineSeen:
    """What the engine's log says of how it runs; the last start is the one that was measured."""
    seen: EngineSeen = {}
    for name, pattern in _IN_LOG.items():
        if words := pattern.findall(text):
            seen[name] = words[-1]
    return seen


def server_settings(props: JsonObject, server_info: JsonObject, metrics: str) -> ServerSettings:
    """The settings that a server answers with; only those that it names."""
    found: JsonObject = {}
    if props:
        found["context"] = (props.get("default_generation_settings") or {}).get("n_ctx")
        found["max_sequences"] = props.get("total_slots")
    if server_info:
        # SGLang limits its requests by itself where it drafts: that is speculation's own doing, and not here.
        found["context"] = server_info.get("context_length")
        found["cache_dtype"] = server_info.get("kv_cache_dtype")
        disabled = server_info.get("disable_radix_cache")
        found["prefix_cache"] = None if disabled is None else not disabled
    if match := _CACHE_INFO.search(metrics):
        labels = dict(_LABEL.findall(match[1]))
        found["cache_dtype"] = labels.get("cache_dtype")
        found["block_size"] = labels.get("block_size")
        found["prefix_cache"] = labels.get("enable_prefix_caching")
    settings: ServerSettings = {}
    for name in ("context", "cache_dtype", "block_size", "prefix_cache", "max_sequences"):
        if found.get(name) is not None:
            settings[name] = str(found[name])
    return settings


def _object_at(endpoint: Endpoint, path: str) -> JsonObject:
    """The JSON object that a server answers with at ``path``; {} where it answers nothing that can be read."""
    return object_of(_text_at(endpoint, path))


def _text_at(endpoint: Endpoint, path: str) -> str:
    """What a server answers with at ``path``, '' where it does not."""
    request = urllib.request.Request(endpoint.root + path, headers=endpoint.headers)  # noqa: S310
    try:
        with opener().open(request, timeout=10) as answer:
            return str(answer.read().decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return ""
