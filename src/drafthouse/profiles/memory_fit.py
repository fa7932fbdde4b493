"""How much memory an arm needs, which context fits, and how fast the memory lets it decode.

All sizes are bytes for ONE device; weights and KV cache of a model that is split over n devices count 1/n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, Options
    from drafthouse.profiles.catalog_types import BuiltinHead, ModelEntry
    from drafthouse.profiles.resolved_types import Fit

MIB = 1024 * 1024
GB = 1_000_000_000


def kv_value_bytes(engine: EngineEntry, serve: Options) -> float:
    """The bytes of one value in the KV cache, of the type that the options ask for where they do."""
    asked = serve.get(engine.get("kv_type_option") or "")
    return engine.get("kv_bytes_by_type", {}).get(str(asked), engine["kv_bytes_per_value"])


def kv_bytes_per_token(model: ModelEntry, bytes_per_value: float) -> int:
    """The KV cache of one token over all layers in which it grows: keys and values, every KV head."""
    return _kv_per_layer(model, bytes_per_value) * int(model.get("kv_layers", model["layers"]))


def _kv_per_layer(model: ModelEntry, bytes_per_value: float) -> int:
    return int(2 * int(model["kv_heads"]) * int(model["head_dim"]) * bytes_per_value)


def bytes_per_sequence(model: ModelEntry, bytes_per_value: float, tokens: int) -> int:
    """What a sequence takes however long it is, while ``tokens`` are drafted for it.

    The KV cache of layers that look back a window, which the catalogue gives for 16 bits, and the recurrent state, of
    which there is one more for each drafted token.
    """
    window = int(model.get("window_bytes", 0) * bytes_per_value / 2)
    return window + int(model.get("state_bytes", 0)) * (1 + tokens)


def head_weight_bytes(target: ModelEntry) -> int:
    """Which part of a target's weights is a head that no arm without speculation loads; 0 where not known."""
    head = target.get("builtin_head")
    return int(head.get("weight_bytes", 0)) if head else 0


def read_for_a_token(target: ModelEntry) -> int:
    """The bytes that the target reads for a token at batch one: the head inside it is none of them."""
    return int(target.get("read_bytes") or target["weight_bytes"] - head_weight_bytes(target))


def read_for_a_draft(target: ModelEntry, builtin: BuiltinHead) -> int:
    """The bytes that a drafted token reads of a head inside the target.

    Where the catalogue does not say: the head's own weights, else its layers' share of the target's, and the target's
    output matrix in 16 bits, which such heads share.
    """
    if "read_bytes" in builtin:
        return int(builtin["read_bytes"])
    own = head_weight_bytes(target) or read_for_a_token(target) * builtin["layers"] // int(target["layers"])
    return own + 2 * int(target["vocab"]) * int(target["hidden"])


def fit_arm(
    *,
    memory: int,
    utilization: float,
    devices: int,
    draft_devices: int,
    target: ModelEntry,
    draft: ModelEntry | None,
    builtin: BuiltinHead | None,
    overhead: int,
    bytes_per_value: float,
    context: int,
    sequences: int,
    drafted: int,
    context_is_shared: bool,
    reserves_share: bool,
    cache_share: float = 1.0,
) -> Fit:
    """Work out one arm on one device.

    ``context`` is the engine's setting in tokens: for each sequence, or for all together where the
    engine shares it. ``overhead`` is what the engine takes beside weights and KV cache (assumed).
    ``drafted``: how many tokens are drafted at once for each sequence, 0 without speculation.
    ``builtin``: the head inside the target that drafts in this arm; its layers are taken to be like the target's.
    ``cache_share``: how much of what the weights leave the engine gives to the KV cache (TensorRT-LLM).
    """
    head_bytes = head_weight_bytes(target)
    weights = (int(target["weight_bytes"]) - head_bytes) // devices
    draft_weights = int(draft["weight_bytes"]) // draft_devices if draft else 0
    per_token = kv_bytes_per_token(target, bytes_per_value) // devices
    if draft:
        per_token += kv_bytes_per_token(draft, bytes_per_value) // draft_devices
    if builtin:
        draft_weights += head_bytes // draft_devices
        per_token += _kv_per_layer(target, bytes_per_value) * builtin["layers"] // draft_devices
    tokens = context if context_is_shared else context * sequences
    usable = int(memory * utilization)
    room = int((usable - weights - draft_weights - overhead) * cache_share)
    fixed = sequences * bytes_per_sequence(target, bytes_per_value, drafted) // devices
    if draft:
        fixed += sequences * bytes_per_sequence(draft, bytes_per_value, 0) // draft_devices
    kv_needed = tokens * per_token + fixed
    longest = max(0, (room - fixed) // max(1, per_token))
    return {
        "memory": memory,
        "utilization": utilization,
        "weights": weights,
        "draft": draft_weights,
        "overhead": overhead,
        "kv_per_token": per_token,
        "context": context,
        "sequences": sequences,
        "kv_needed": kv_needed,
        "left": room - kv_needed,
        # One sequence's context, never beyond what the model was made for.
        "longest_context": min(longest, int(target["context"])),
        "reserved": usable if reserves_share else weights + draft_weights + overhead + kv_needed,
    }


def context_that_fits(fit: Fit, *, shared: bool) -> int:
    """The setting of the context with which an arm that does not fit would, with all its sequences; else 0."""
    among = 1 if shared else max(1, fit["sequences"])
    return max(0, (fit["context"] * among + fit["left"] // max(1, fit["kv_per_token"])) // among)


def decode_limit(bytes_per_token: int, bandwidth: float) -> float:
    """The tokens per second that reading the weights once a token allows (batch of one).

    ``bandwidth`` in bytes per second. The roofline argument: every weight is read for every token, and
    at batch one nothing else comes near the cost.
    """
    return bandwidth / bytes_per_token
