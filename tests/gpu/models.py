"""Models of random weights, made on the box: a draft, and from it a target that is the same and many times dearer.

The text is meaningless. The target is the draft with identity blocks behind its own (`weights/demo/recipes`), so what
is drafted is accepted: an acceptance that is made. What is real are the bytes that are read, the kernels, the clocks
and the memory. Its tokenizer has a token for each byte and many that nothing is ever read as.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from drafthouse.weights.demo.gguf_files import Written
from drafthouse.weights.demo.recipes import pad_blocks

SYNTHETIC = (
    "random weights: the text is meaningless. The target is its draft with identity blocks, which compute nothing, so"
    " nearly all that is drafted is accepted, by making. Memory, kernels, clocks and energy are real."
)
_TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant: "
_ENDS = "<|endoftext|>"
#: The tokens that it answers with: visible ASCII, by the numbers of the bytes. The logit of all others is 0.
_SAID = (33, 126)


@dataclass(frozen=True)
class Shape:
    """A dense model: ``blocks`` of the draft, ``dear`` of the target."""

    hidden: int = 2048
    feed: int = 8192
    heads: int = 16
    kv_heads: int = 4
    blocks: int = 4
    dear: int = 48
    vocabulary: int = 8192
    context: int = 8192

    @property
    def head(self) -> int:
        """Values of one head."""
        return self.hidden // self.heads

    def parameters(self, blocks: int) -> int:
        """How many values a model of so many blocks has."""
        attention = 2 * self.hidden**2 + 2 * self.hidden * self.kv_heads * self.head
        block = attention + 3 * self.hidden * self.feed + 2 * self.hidden
        return blocks * block + 2 * self.vocabulary * self.hidden + self.hidden


#: For a test on a CPU.
SMALL = Shape(hidden=128, feed=256, heads=4, kv_heads=2, blocks=2, dear=16, vocabulary=1024)


def draft(path: Path, shape: Shape, kind: str, seed: int = 26) -> Path:
    """Write a model of random weights; ``kind`` is the type of its matrices: F16 or Q4_0."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.blocks)
    writer.add_feed_forward_length(shape.feed)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type({"F16": 1, "Q4_0": 2}[kind])
    writer.add_string("drafthouse.synthetic", "random weights")
    _add_tokenizer(writer, shape.vocabulary)
    random = np.random.default_rng(seed)
    wanted = gguf.GGMLQuantizationType[kind]

    def add(name: str, rows: int, columns: int) -> None:
        values = random.standard_normal((rows, columns), dtype=np.float32) / np.float32(columns**0.5)
        if name == "output.weight":
            # Only letters that are read again as the one token that they were: the client counts an answer's tokens.
            values[[token for token in range(shape.vocabulary) if not _SAID[0] <= token <= _SAID[1]]] = 0
        # As llama.cpp's own converter leaves them: embeddings and the output stay finer.
        matrix = gguf.GGMLQuantizationType.F16 if name in ("token_embd.weight", "output.weight") else wanted
        writer.add_tensor(name, gguf.quants.quantize(values, matrix), raw_dtype=matrix)

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(shape.hidden, dtype=np.float32))

    add("token_embd.weight", shape.vocabulary, shape.hidden)
    for block in range(shape.blocks):
        name = f"blk.{block}"
        narrow = shape.kv_heads * shape.head
        ones(f"{name}.attn_norm.weight")
        add(f"{name}.attn_q.weight", shape.hidden, shape.hidden)
        add(f"{name}.attn_k.weight", narrow, shape.hidden)
        add(f"{name}.attn_v.weight", narrow, shape.hidden)
        add(f"{name}.attn_output.weight", shape.hidden, shape.hidden)
        ones(f"{name}.ffn_norm.weight")
        add(f"{name}.ffn_gate.weight", shape.feed, shape.hidden)
        add(f"{name}.ffn_up.weight", shape.feed, shape.hidden)
        add(f"{name}.ffn_down.weight", shape.hidden, shape.feed)
    ones("output_norm.weight")
    add("output.weight", shape.vocabulary, shape.hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def target(path: Path, of: Path, shape: Shape) -> Written:
    """Write the draft ``of`` with identity blocks."""
    return pad_blocks(str(of), str(path), shape.dear)


def _add_tokenizer(writer: Any, vocabulary: int) -> None:
    """Add a tokenizer of GPT-2's kind: a token a byte, one merge, and as many unread ones as it takes."""
    import gguf

    read = [*_letters(), "Ġt"]
    tokens = [*read, *(f"<unread{number}>" for number in range(vocabulary - len(read) - 1)), _ENDS]
    kinds = [int(gguf.TokenType.NORMAL)] * (vocabulary - 1) + [int(gguf.TokenType.CONTROL)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["Ġ t"])
    writer.add_bos_token_id(vocabulary - 1)
    writer.add_eos_token_id(vocabulary - 1)
    writer.add_chat_template(_TEMPLATE)


def _letters() -> list[str]:
    """GPT-2's letter for each byte: what can be seen stands for itself, the rest from U+0100 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in seen else next(others)) for byte in range(256)]


def make(folder: Path, shape: Shape, kind: str, say: Callable[[str], object] = print) -> dict[str, Path]:
    """Write draft and target of one type of weights, unless they are there; return their files by role."""
    folder.mkdir(parents=True, exist_ok=True)
    small, dear = folder / f"lane-{kind.lower()}.gguf", folder / f"lane-{kind.lower()}-x{shape.dear}.gguf"
    if not dear.is_file():
        say(f"making {dear.name}: {shape.parameters(shape.dear) / 1e9:.2f} B parameters")
        draft(small, shape, kind)
        target(dear, small, shape)
    return {"draft": small, "target": dear}


def entries(files: dict[str, Path], shape: Shape) -> str:
    """Both models as entries of the catalogue, the text of a file in a profile folder's `catalog/local/`."""
    found = {}
    for role, path in files.items():
        blocks = shape.blocks if role == "draft" else shape.dear
        found[path.stem] = {
            "name": f"random weights, {blocks} blocks ({path.stem})",
            "served_name": path.stem,
            "kind": "model",
            "format": "gguf",
            "folder": "gpu-lane",
            "file": path.name,
            "license": "none: random numbers",
            "synthetic": SYNTHETIC,
            "source": {"path": str(path)},
            "weight_bytes": path.stat().st_size,
            "parameters": shape.parameters(blocks),
            "layers": blocks,
            "hidden": shape.hidden,
            "heads": shape.heads,
            "kv_heads": shape.kv_heads,
            "head_dim": shape.head,
            "vocab": shape.vocabulary,
            "context": shape.context,
            "tokenizer": "gpu-lane",
        }
    return "---\n" + yaml.safe_dump(found, sort_keys=False, allow_unicode=True)
