"""Which recipes make demo weights of others, and the version of what each makes."""

from __future__ import annotations

# Raise a number when the same inputs would give other bytes: results kept under the old key are redone.
RECIPE_VERSIONS: dict[str, int] = {
    "gguf_dequantize": 1,
    "gguf_pad_blocks": 2,
    "gguf_to_hf": 1,
}
# Those that are made with the libraries of the engine's environment.
NEEDS_ENGINE = {"gguf_to_hf"}
