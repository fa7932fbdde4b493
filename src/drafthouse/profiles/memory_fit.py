"""The memory that an arm needs, the longest context that fits, and the decoding speed that the memory allows.

The sizes of an arm (`fit_arm`) are bytes on ONE device, which has 1/n of the weights and KV cache of a model that is
split over n devices. The sizes of a model are those of the whole model.
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
    """Bytes of one value in the KV cache: of the type in the options ``serve``, else the engine's default."""
    kv_type = serve.get(engine.get("kv_type_option") or "")
    return engine.get("kv_bytes_by_type", {}).get(str(kv_type), engine["kv_bytes_per_value"])


def kv_bytes_per_token(model: ModelEntry, bytes_per_value: float) -> int:
    """Bytes of one token's keys and values, for all KV heads and all layers whose cache grows with the context."""
    return _kv_bytes_per_layer(model, bytes_per_value) * int(model.get("kv_layers", model["layers"]))


def _kv_bytes_per_layer(model: ModelEntry, bytes_per_value: float) -> int:
    """Bytes of one token's keys and values in one layer."""
    return int(2 * int(model["kv_heads"]) * int(model["head_dim"]) * bytes_per_value)


def cache_parts(model: ModelEntry, devices: int, *, by_layers: bool) -> int:
    """The number of different parts of a model's KV cache on ``devices`` devices.

    A device of a tensor-parallel group holds whole KV heads. If there are fewer heads than devices, several devices
    hold the same ones: the latent of MLA, which counts as one head, is on each of them. ``by_layers``: each device has
    the whole cache of some layers instead.
    """
    if by_layers:
        return devices
    return min(devices, int(model["kv_heads"]))


def cache_on_a_device(
    model: ModelEntry, bytes_per_value: float, drafted: int, devices: int, *, by_layers: bool
) -> tuple[int, int]:
    """Bytes on one of ``devices`` devices: of one token's KV cache, and of a sequence whatever its length.

    The latter are the KV cache of sliding-window layers (in the catalogue for 16 bits) and the recurrent state, of
    which the engine keeps one more copy for each of the ``drafted`` tokens of a step.
    """
    parts = cache_parts(model, devices, by_layers=by_layers)
    window = int(model.get("window_bytes", 0) * bytes_per_value / 2)
    state = int(model.get("state_bytes", 0)) * (1 + drafted)
    return kv_bytes_per_token(model, bytes_per_value) // parts, window // parts + state // devices


def head_weight_bytes(target: ModelEntry) -> int:
    """Bytes of a target's built-in head, which only the speculative arm loads; 0 if unknown, or without a head."""
    head = target.get("builtin_head")
    return int(head.get("weight_bytes", 0)) if head else 0


def read_for_a_token(target: ModelEntry) -> int:
    """Bytes that the target reads per token at batch size one, its built-in head left out."""
    return int(target.get("read_bytes") or target["weight_bytes"] - head_weight_bytes(target))


def read_for_a_draft(target: ModelEntry, builtin: BuiltinHead) -> int:
    """Bytes that the target's built-in head reads per drafted token.

    Without a number in the catalogue: the head's weights, or else its layers' share of the target's weights, plus the
    target's output matrix in 16 bits, which such heads also use.
    """
    if "read_bytes" in builtin:
        return int(builtin["read_bytes"])
    head_bytes = head_weight_bytes(target) or read_for_a_token(target) * builtin["layers"] // int(target["layers"])
    return head_bytes + 2 * int(target["vocab"]) * int(target["hidden"])


def _builtin_cache(
    target: ModelEntry, builtin: BuiltinHead, bytes_per_value: float, devices: int, *, by_layers: bool
) -> int:
    """Bytes of KV cache per token that a built-in head takes on a device; ``by_layers``: see `cache_parts`."""
    parts = cache_parts(target, devices, by_layers=by_layers)
    return _kv_bytes_per_layer(target, bytes_per_value) * builtin["layers"] // parts


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
    by_layers: bool = False,
    cache_share: float = 1.0,
) -> Fit:
    """The memory of an arm on one device.

    ``memory``: bytes of the device. ``utilization``: the fraction of it that the engine may use. ``cache_share``: the
    fraction of the rest that becomes KV cache. ``reserves_share``: the engine takes its whole share at its start.
    ``overhead``: bytes besides weights and KV cache (assumed). ``devices``: number over which the target is split;
    ``draft_devices``: the same of the draft. ``builtin``: the built-in head that drafts in this arm; its layers are
    assumed to be like the target's. ``drafted``: K, 0 without speculation. ``context``: the engine's option in tokens,
    for each of the ``sequences`` or, if ``context_is_shared``, for all together. ``by_layers``: see `cache_parts`.
    """
    head_bytes = head_weight_bytes(target)
    weights = (int(target["weight_bytes"]) - head_bytes) // devices
    draft_weights = int(draft["weight_bytes"]) // draft_devices if draft else 0
    per_token, fixed = cache_on_a_device(target, bytes_per_value, drafted, devices, by_layers=by_layers)
    if draft:
        draft_token, draft_fixed = cache_on_a_device(draft, bytes_per_value, 0, draft_devices, by_layers=by_layers)
        per_token += draft_token
        fixed += draft_fixed
    if builtin:
        draft_weights += head_bytes // draft_devices
        per_token += _builtin_cache(target, builtin, bytes_per_value, draft_devices, by_layers=by_layers)
    tokens = context if context_is_shared else context * sequences
    usable = int(memory * utilization)
    kv_room = int((usable - weights - draft_weights - overhead) * cache_share)
    fixed *= sequences
    kv_needed = tokens * per_token + fixed
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
        "left": kv_room - kv_needed,
        # For a single sequence, and at most the model's limit.
        "longest_context": min(max(0, (kv_room - fixed) // max(1, per_token)), int(target["context"])),
        # An engine that reserves a share takes all of it at its start, whatever it needs.
        "reserved": usable if reserves_share else weights + draft_weights + overhead + kv_needed,
    }


def context_that_fits(fit: Fit, *, shared: bool) -> int:
    """The longest context option, in tokens, with which an arm fits with all its sequences; 0 if there is none.

    ``shared``: True if all sequences share one context.
    """
    sharers = 1 if shared else max(1, fit["sequences"])
    return max(0, (fit["context"] * sharers + fit["left"] // max(1, fit["kv_per_token"])) // sharers)


def decode_limit(bytes_per_token: int, bandwidth: float) -> float:
    """The most tokens/s at batch size one, for a memory ``bandwidth`` in bytes/s.

    The roofline argument: each token reads its weights once, and at batch size one no other cost comes near.
    """
    return bandwidth / bytes_per_token
