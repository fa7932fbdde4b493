"""Read a model's vocabulary, the token ids and their texts, from its files. Standard library only.

A folder's vocabulary is in `tokenizer.json` or `vocab.json`. Other tokenizer files are opaque: only their hash can be
compared. A GGUF file has its vocabulary in its header. The number of rows of the embedding matrix, in `config.json`,
may be larger than the number of tokens, because Qwen, for example, pads its matrices.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.files import object_in
from .gguf_header import read_gguf

# Values of tokenizer.ggml.token_type in a GGUF file: 1 is a normal token, 6 a byte; others are special or unused.
_GGUF_ORDINARY_TYPES = (1, 6)
_OPAQUE_FILES = ("tokenizer.model", "tekken.json")  # the first that exists is hashed


@dataclass
class Vocabulary:
    """Tokens of a model, as far as its files tell."""

    kind: str | None = None  # tokenizer model of a GGUF file (gpt2, llama); None for a folder
    texts: dict[int, str] = field(default_factory=dict)  # by token id; empty if the file is missing or opaque
    special: set[int] = field(default_factory=set)  # ids of special tokens; empty as ``texts``
    ends: dict[str, int] = field(default_factory=dict)  # ids of "bos" and "eos", as far as they are known
    size: int | None = None  # rows of the embedding matrix; None if not known
    opaque: str | None = None  # hex sha256 of a tokenizer file that is not parsed

    @property
    def known(self) -> bool:
        """True if the tokens can be compared, not only the size."""
        return bool(self.texts) or self.opaque is not None


def vocabulary_of(path: Path) -> Vocabulary:
    """Read the vocabulary of a model's folder or GGUF file. Raises ValueError or OSError for unreadable files."""
    if path.is_file():
        return _gguf_vocabulary(path)
    return _folder_vocabulary(path)


def config_of(folder: Path) -> dict[str, Any]:
    """Content of config.json; {} if it is missing or unreadable."""
    return object_in(folder / "config.json")


def _gguf_vocabulary(path: Path) -> Vocabulary:
    """Vocabulary of a GGUF file; empty if its header has none. Without types, all tokens count as ordinary."""
    keys = read_gguf(path).keys
    tokens = keys.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        return Vocabulary()
    kinds = keys.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    return Vocabulary(
        kind=str(keys.get("tokenizer.ggml.model")),
        texts=dict(enumerate(tokens)),
        special={token_id for token_id, kind in enumerate(kinds) if kind not in _GGUF_ORDINARY_TYPES},
        ends=_end_tokens(keys.get("tokenizer.ggml.bos_token_id"), keys.get("tokenizer.ggml.eos_token_id")),
        size=len(tokens),
    )


def _end_tokens(bos: object, eos: object) -> dict[str, int]:
    """Ids of the beginning-of-text and end-of-text tokens, by name, if they are given."""
    return {name: token_id for name, token_id in (("bos", bos), ("eos", eos)) if isinstance(token_id, int)}


def _folder_vocabulary(folder: Path) -> Vocabulary:
    """Vocabulary of a folder: from tokenizer.json, else vocab.json, else only the hash of an opaque file.

    Size and ends come from config.json. Raises ValueError and OSError.
    """
    config = config_of(folder)
    # Models with image or audio input keep the settings of the language model in text_config.
    text_config = config.get("text_config")
    if not isinstance(text_config, dict):
        text_config = {}
    vocabulary = Vocabulary(ends=_end_tokens(config.get("bos_token_id"), config.get("eos_token_id")))
    size = config.get("vocab_size") or text_config.get("vocab_size")
    if isinstance(size, int):
        vocabulary.size = size
    if (folder / "tokenizer.json").is_file():
        _read_tokenizer_json(vocabulary, _json(folder / "tokenizer.json"))
    elif (folder / "vocab.json").is_file():
        _read_vocab_json(vocabulary, folder)
    else:
        for name in _OPAQUE_FILES:
            if (folder / name).is_file():
                vocabulary.opaque = hashlib.sha256((folder / name).read_bytes()).hexdigest()
                break
    return vocabulary


def _json(path: Path) -> dict[str, Any]:
    """JSON object in a file. Raises ValueError, with a text for the user, and OSError."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} that is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path.name} that is not a JSON object")
    return data


def _read_tokenizer_json(vocabulary: Vocabulary, data: Mapping[str, Any]) -> None:
    """Add the tokens of a tokenizer.json to ``vocabulary``; its added tokens count as special. Raises ValueError."""
    model = data.get("model")
    if not isinstance(model, Mapping):
        raise ValueError("tokenizer.json without a model")
    vocab = model.get("vocab")
    if isinstance(vocab, Mapping):
        vocabulary.texts.update({token_id: text for text, token_id in vocab.items()})
    elif isinstance(vocab, list):  # Unigram: pairs of text and score
        vocabulary.texts.update({token_id: str(entry[0]) for token_id, entry in enumerate(vocab)})
    else:
        raise ValueError("tokenizer.json without a vocabulary")
    for entry in data.get("added_tokens") or []:
        vocabulary.texts[int(entry["id"])] = str(entry["content"])
        vocabulary.special.add(int(entry["id"]))


def _read_vocab_json(vocabulary: Vocabulary, folder: Path) -> None:
    """Add the tokens of vocab.json, and the special tokens of two optional files beside it. Raises ValueError."""
    vocabulary.texts.update({token_id: text for text, token_id in _json(folder / "vocab.json").items()})
    if (folder / "added_tokens.json").is_file():
        for text, token_id in _json(folder / "added_tokens.json").items():
            vocabulary.texts[token_id] = text
            vocabulary.special.add(token_id)
    if not (folder / "tokenizer_config.json").is_file():
        return
    decoder = _json(folder / "tokenizer_config.json").get("added_tokens_decoder")
    if isinstance(decoder, dict):
        for token_id, entry in decoder.items():
            vocabulary.texts[int(token_id)] = str(entry["content"])
            vocabulary.special.add(int(token_id))
