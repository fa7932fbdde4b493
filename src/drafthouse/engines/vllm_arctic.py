"""vLLM with Snowflake's plugin ArcticInference, which adds a speculation method to the same server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .vllm import VLLM

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Settings


class VLLMWithArctic(VLLM):
    """The engine vLLM with the plugin; counters and flags are vLLM's."""

    name = "vllm-arctic"
    like = VLLM.name
    # The plugin has not been tried on several hosts.
    spans_hosts_since = ""

    def claims(self, taken: Settings, environment: Mapping[str, str]) -> bool:
        """True if a vLLM command enables the plugin or uses its method."""
        return taken.get("method") == "arctic" or "ARCTIC_INFERENCE_ENABLED" in environment
