"""The list of all engines. A new engine is a class in a file of its own, and an instance of it here."""

from __future__ import annotations

from .base import Engine
from .llamacpp import LlamaCpp
from .sglang import SGLang
from .trtllm import TensorRTLLM
from .vllm import VLLM
from .vllm_arctic import VLLMWithArctic

# The classes are imported explicitly because Ansible ships only imported files to a box.
ENGINES: tuple[Engine, ...] = (VLLM(), VLLMWithArctic(), TensorRTLLM(), LlamaCpp(), SGLang())
_BY_NAME = {engine.name: engine for engine in ENGINES}
#: The engines with counters of their own, not shared with the engine `Engine.like`: the values of `metrics.dialect`.
DIALECTS = {engine.name: engine for engine in ENGINES if not engine.like}


def engine_of(name: str) -> Engine:
    """The engine named ``name`` in the catalogue; an `Engine` with all defaults if it has no class."""
    return _BY_NAME.get(name) or Engine()


def dialect_of(series: str) -> Engine | None:
    """The engine with the Prometheus series named ``series``, by its prefix; None if no engine has it."""
    return next((engine for engine in DIALECTS.values() if series.startswith(engine.prefixes)), None)
