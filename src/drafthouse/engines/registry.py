"""The engines that the house knows. A new one is a class in a file of its own, and its line here."""

from __future__ import annotations

from .base import Engine
from .llamacpp import LlamaCpp
from .sglang import SGLang
from .trtllm import TensorRTLLM
from .vllm import VLLM
from .vllm_arctic import VLLMWithArctic

# Imports and not a search of the folder: Ansible ships to a box what it finds imported.
ENGINES: tuple[Engine, ...] = (VLLM(), VLLMWithArctic(), TensorRTLLM(), LlamaCpp(), SGLang())
_BY_NAME = {engine.name: engine for engine in ENGINES}
#: Those that are not like another: what a catalogue's entry may name as its `metrics.dialect`.
DIALECTS = {engine.name: engine for engine in ENGINES if not engine.like}


def engine_of(name: str) -> Engine:
    """The engine of a catalogue's entry; what is not known of one is as `Engine` says."""
    return _BY_NAME.get(name) or Engine()


def dialect_of(series: str) -> Engine | None:
    """Whose Prometheus series this is, by its name; None where it is nobody's."""
    return next((engine for engine in DIALECTS.values() if series.startswith(engine.prefixes)), None)
