"""Heads with random weights for a target, in the format that vLLM reads.

The head has the shapes of a real one and predicts nothing: what it drafts is refused, and every step costs what a
real head costs. A fixture for a head that does not pay.

eagle3  one transformer block, three of the target's hidden states merged, a vocabulary of its own (the
        speculators format)
dflash  one transformer block that drafts all tokens at once, with the target's embedding and output matrix
mtp     the target itself with the head inside its checkpoint, as MiMo's have it (one block behind the target's
        own): FOLDER gets the whole model, which answers as the target does

The standard library does the work, so the same target gives the same bytes on every machine and with every
version of everything; for eagle3 and dflash only its config.json is read.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

# EAGLE-3 heads draft from a part of the target's vocabulary; a byte-pair vocabulary's first ids are its most used.
DRAFT_VOCAB = 8192
SPECULATIVE_TOKENS = 3
# DFlash heads draft a block at once: the token that is known and this many but one of those that follow.
BLOCK_SIZE = 8
WEIGHTS = "model.safetensors"
ONE = b"\x80\x3f"  # 1.0 in bfloat16, little-endian
SHAPES_FROM = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
COPIED = ("max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "hidden_act")
SYNTHETIC = {"drafthouse_synthetic": "random weights: predicts nothing"}

# Name -> type, shape, bytes.
Tensors = dict[str, tuple[str, list[int], bytes]]


class CannotMake(Exception):
    """Why no head can be made: one line for a person."""


def read_target(folder: Path, types: tuple[str, ...]) -> dict[str, Any]:
    """The target's config.json. Raises CannotMake for one that no head of this kind fits."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") not in types:
        raise CannotMake(f"model_type {config.get('model_type')!r}: needed is one of {', '.join(types)}")
    if missing := [key for key in (*SHAPES_FROM, "num_hidden_layers") if not isinstance(config.get(key), int)]:
        raise CannotMake(f"config.json without {', '.join(missing)}")
    return config


def head_dim(target: dict[str, Any]) -> int:
    """The width of an attention head."""
    return int(target.get("head_dim") or target["hidden_size"] // target["num_attention_heads"])


def draft_vocab(target: dict[str, Any]) -> int:
    """The number of tokens that an EAGLE-3 head chooses from."""
    return min(DRAFT_VOCAB, int(target["vocab_size"]))


def read_layers(target: dict[str, Any]) -> list[int]:
    """The target's blocks whose hidden states a DFlash head reads: an early, a middle and a late one."""
    blocks = int(target["num_hidden_layers"])
    return sorted({min(1, blocks - 1), blocks // 2, max(blocks - 3, 0)})


def block_config(target: dict[str, Any], model_type: str) -> dict[str, Any]:
    """The configuration of one transformer block as wide as the target's."""
    return {key: target[key] for key in (*SHAPES_FROM, *COPIED) if target.get(key) is not None} | {
        "model_type": model_type,
        "head_dim": head_dim(target),
        "num_hidden_layers": 1,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
    }


def eagle3_config(target: dict[str, Any]) -> dict[str, Any]:
    """An EAGLE-3 head's config.json."""
    method = {"proposal_type": "greedy", "speculative_tokens": SPECULATIVE_TOKENS}
    return {
        "architectures": ["Eagle3Speculator"],
        **SYNTHETIC,
        "draft_vocab_size": draft_vocab(target),
        "norm_before_residual": True,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [method],
            # No name: a repository named here is what vLLM fetches when it is given the head alone.
            "verifier": {"architectures": target.get("architectures"), "name_or_path": None},
        },
        "speculators_model_type": "eagle3",
        "torch_dtype": "bfloat16",
        "transformer_layer_config": block_config(target, "llama"),
    }


def dflash_config(target: dict[str, Any]) -> dict[str, Any]:
    """A DFlash head's config.json, with the fields of z-lab's heads."""
    return block_config(target, "qwen3") | {
        "architectures": ["DFlashDraftModel"],
        **SYNTHETIC,
        "block_size": BLOCK_SIZE,
        # What stands for a token that is still to be drafted: the last id, which the target's text seldom has.
        "dflash_config": {"mask_token_id": target["vocab_size"] - 1, "target_layer_ids": read_layers(target)},
        "num_target_layers": target["num_hidden_layers"],
        "dtype": "bfloat16",
    }


def mtp_config(target: dict[str, Any]) -> dict[str, Any]:
    """The config.json of the target with one block for multi-token prediction inside.

    A MiMo is a Qwen2 with such blocks, and a Qwen2 whose biases are zero is a Llama.
    """
    own = {key: value for key, value in target.items() if key not in ("attention_bias", "mlp_bias", "pretraining_tp")}
    return own | {
        "architectures": ["MiMoForCausalLM"],
        **SYNTHETIC,
        "model_type": "qwen2",
        "num_nextn_predict_layers": 1,
    }


def matrix(seed: str, rows: int, columns: int) -> bytes:
    """A random bfloat16 matrix, scaled so that its product is as large as its input.

    Signs and mantissas are random and the exponent is the same for all: magnitudes are even between 2^e and
    2^(e+1), 1.53 * 2^e in the mean square. Python's generator gives the same bytes for the same seed.
    """
    exponent = 127 + round(math.log2(1 / (1.53 * math.sqrt(columns))))
    source = random.Random(seed)
    bits = bytearray(2 * rows * columns)
    bits[0::2] = source.randbytes(rows * columns).translate(bytes((exponent & 1) << 7 | b & 0x7F for b in range(256)))
    bits[1::2] = source.randbytes(rows * columns).translate(bytes(b & 0x80 | exponent >> 1 for b in range(256)))
    return bytes(bits)


def weights(kind: str, matrices: dict[str, tuple[int, int]], vectors: dict[str, tuple[int, bytes]]) -> Tensors:
    """Random matrices of these shapes, and vectors of one value (in bfloat16) throughout."""
    made: Tensors = {
        f"{name}.weight": ("BF16", list(shape), matrix(f"drafthouse {kind} random head 1 {name}", *shape))
        for name, shape in matrices.items()
    }
    return made | {name: ("BF16", [size], value * size) for name, (size, value) in vectors.items()}


def block_matrices(target: dict[str, Any], prefix: str, inputs: int) -> dict[str, tuple[int, int]]:
    """The matrices of a transformer block whose attention reads ``inputs`` values."""
    hidden, inner = target["hidden_size"], target["intermediate_size"]
    queries = target["num_attention_heads"] * head_dim(target)
    keys = target["num_key_value_heads"] * head_dim(target)
    return {
        f"{prefix}.self_attn.q_proj": (queries, inputs),
        f"{prefix}.self_attn.k_proj": (keys, inputs),
        f"{prefix}.self_attn.v_proj": (keys, inputs),
        f"{prefix}.self_attn.o_proj": (hidden, queries),
        f"{prefix}.mlp.gate_proj": (inner, hidden),
        f"{prefix}.mlp.up_proj": (inner, hidden),
        f"{prefix}.mlp.down_proj": (hidden, inner),
    }


def norms(*names: str, size: int) -> dict[str, tuple[int, bytes]]:
    """Norms that change nothing but the scale."""
    return {f"{name}.weight": (size, ONE) for name in names}


def eagle3_tensors(target: dict[str, Any]) -> Tensors:
    """The tensors of an EAGLE-3 head, with the names that the speculators library writes."""
    hidden, vocab, known = target["hidden_size"], target["vocab_size"], draft_vocab(target)
    # The block's input is the token's embedding beside the merged hidden states.
    block = block_matrices(target, "layers.0", 2 * hidden)
    matrices = {"fc": (hidden, 3 * hidden), **block, "lm_head": (known, hidden)}
    own = ("norm", *(f"layers.0.{name}" for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")))
    made = weights("eagle3", matrices, norms(*own, size=hidden))
    # Draft id -> distance to the target's id, and which of the target's ids the head knows.
    made["d2t"] = ("I64", [known], bytes(8 * known))
    made["t2d"] = ("BOOL", [vocab], b"\x01" * known + bytes(vocab - known))
    return made


def dflash_tensors(target: dict[str, Any]) -> Tensors:
    """The tensors of a DFlash head; its embedding and output matrix are the target's."""
    hidden = target["hidden_size"]
    matrices = {"fc": (hidden, len(read_layers(target)) * hidden), **block_matrices(target, "layers.0", hidden)}
    own = norms("hidden_norm", "norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm", size=hidden)
    own |= norms("layers.0.self_attn.q_norm", "layers.0.self_attn.k_norm", size=head_dim(target))
    return weights("dflash", matrices, own)


def mtp_tensors(target: dict[str, Any]) -> Tensors:
    """What a MiMo has beyond a Llama: a block that predicts the token after the next, and biases (zero)."""
    hidden, first = target["hidden_size"], "model.mtp_layers.0"
    matrices = {f"{first}.input_proj": (hidden, 2 * hidden), **block_matrices(target, first, hidden)}
    own = ("token_layernorm", "hidden_layernorm", "input_layernorm", "post_attention_layernorm", "final_layernorm")
    vectors = norms(*(f"{first}.{name}" for name in own), size=hidden)
    sizes = {"q": target["num_attention_heads"], "k": target["num_key_value_heads"], "v": target["num_key_value_heads"]}
    for block in (*(f"model.layers.{index}" for index in range(target["num_hidden_layers"])), first):
        for name, heads in sizes.items():
            vectors[f"{block}.self_attn.{name}_proj.bias"] = (heads * head_dim(target), bytes(2))
    return weights("mtp", matrices, vectors)


def safetensors(content: Tensors, before: bytes = b"") -> list[bytes]:
    """The parts of a safetensors file: the length of the header, the header, then the tensors.

    Those of the file ``before`` come first.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    if before:
        start = 8 + struct.unpack("<Q", before[:8])[0]
        header, before = json.loads(before[8:start]), before[start:]
    offset = len(before)
    for name, (kind, shape, data) in content.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)), text, before, *(data for _, _, data in content.values())]


# Kind -> the types of targets it is made for, what its config.json and its weights are.
# eagle3 and dflash: the targets of which vLLM 0.32.0 hands out hidden states in the middle, of those made like a Llama.
TYPES = ("llama", "qwen2", "qwen3")
KINDS: dict[str, tuple[tuple[str, ...], Callable[..., dict[str, Any]], Callable[..., Tensors]]] = {
    "eagle3": (TYPES, eagle3_config, eagle3_tensors),
    "dflash": (TYPES, dflash_config, dflash_tensors),
    "mtp": (("llama",), mtp_config, mtp_tensors),
}


def make(kind: str, source: Path, folder: Path) -> None:
    """Write configuration and weights of a head for the target in ``source`` into ``folder``. Raises CannotMake."""
    types, config, tensors = KINDS[kind]
    target = read_target(source, types)
    folder.mkdir(parents=True, exist_ok=True)
    own = b""
    if kind == "mtp":
        own = (source / WEIGHTS).read_bytes()
        for file in source.iterdir():
            if file.name not in ("config.json", WEIGHTS):
                shutil.copyfile(file, folder / file.name)
    with (folder / WEIGHTS).open("wb") as out:
        out.writelines(safetensors(tensors(target), own))
    (folder / "config.json").write_text(json.dumps(config(target), indent=2) + "\n", encoding="utf-8")
