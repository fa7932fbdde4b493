"""The recipes that make demo weights from other weights, and the version of each recipe's output."""

from __future__ import annotations

# Raise a version when the same inputs give other bytes: weights kept under the old version are made again.
RECIPE_VERSIONS: dict[str, int] = {
    "gguf_dequantize": 1,
    "gguf_pad_blocks": 2,
    "gguf_to_hf": 1,
}
# Recipes that need the libraries of the engine's environment.
NEEDS_ENGINE = {"gguf_to_hf"}
