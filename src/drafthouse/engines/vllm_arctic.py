"""vLLM with Snowflake's ArcticInference: the same server, with a method of the plugin's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .vllm import VLLM

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Settings


class VLLMWithArctic(VLLM):
    """It shows and reads all that vLLM does."""

    name = "vllm-arctic"
    like = VLLM.name
    # The plugin over several hosts was run by nobody here.
    spans_hosts_since = ""

    def claims(self, taken: Settings, environment: Mapping[str, str]) -> bool:
        """Tell whether a command switches the plugin on, or drafts with its method."""
        return taken.get("method") == "arctic" or "ARCTIC_INFERENCE_ENABLED" in environment
