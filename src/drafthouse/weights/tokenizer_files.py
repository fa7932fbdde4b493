"""The vocabulary that a model's files bring along: which token has which number. Standard library only.

Read from `tokenizer.json` (with the tokens added to it), else `vocab.json`, else the one opaque file of the tokenizer,
of which only the bytes can be compared; of a GGUF file from its head. `config.json` says how many numbers the model
itself knows, which may be more: Qwen pads its matrices.
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

# In a GGUF file: tokenizer.ggml.token_type of ordinary tokens is 1, of bytes 6; all else is special or unused.
_GGUF_ORDINARY = (1, 6)
_OPAQUE = ("tokenizer.model", "tekken.json")


@dataclass
class Vocabulary:
    """What one model's files say of its tokens.

    ``texts`` and ``special`` are empty where the files are ``opaque`` (sha256 of the file that was found) or absent.
    ``kind`` is GGUF's word for the way of splitting (gpt2, llama), ``size`` the rows of the model's matrices.
    ``ends`` are the numbers of the tokens that begin and end a text, by name.
    """

    kind: str | None = None
    texts: dict[int, str] = field(default_factory=dict)
    special: set[int] = field(default_factory=set)
    ends: dict[str, int] = field(default_factory=dict)
    size: int | None = None
    opaque: str | None = None

    @property
    def known(self) -> bool:
        """Tell whether there is something to compare beside the size."""
        return bool(self.texts) or self.opaque is not None


def vocabulary_of(path: Path) -> Vocabulary:
    """Read the vocabulary of a model's folder or GGUF file. ValueError or OSError where a file can't be read."""
    if path.is_file():
        return _of_gguf(path)
    return _of_folder(path)


def config_of(folder: Path) -> dict[str, Any]:
    """Config.json, {} where there is none that can be read."""
    return object_in(folder / "config.json")


def _of_gguf(path: Path) -> Vocabulary:
    keys = read_gguf(path).keys
    tokens = keys.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        return Vocabulary()
    kinds = keys.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    return Vocabulary(
        kind=str(keys.get("tokenizer.ggml.model")),
        texts=dict(enumerate(tokens)),
        special={number for number, kind in enumerate(kinds) if kind not in _GGUF_ORDINARY},
        ends=_ends(keys.get("tokenizer.ggml.bos_token_id"), keys.get("tokenizer.ggml.eos_token_id")),
        size=len(tokens),
    )


def _ends(bos: object, eos: object) -> dict[str, int]:
    """The numbers of the tokens that begin and end a text, by name, as far as a file has them."""
    return {name: number for name, number in (("bos", bos), ("eos", eos)) if isinstance(number, int)}


def _of_folder(folder: Path) -> Vocabulary:
    config = config_of(folder)
    # Models that also see or hear keep the language part apart.
    text = config.get("text_config")
    if not isinstance(text, dict):
        text = {}
    found = Vocabulary(ends=_ends(config.get("bos_token_id"), config.get("eos_token_id")))
    size = config.get("vocab_size") or text.get("vocab_size")
    if isinstance(size, int):
        found.size = size
    if (folder / "tokenizer.json").is_file():
        _read_tokenizer_json(found, _json(folder / "tokenizer.json"))
    elif (folder / "vocab.json").is_file():
        _read_vocab_json(found, folder)
    else:
        for name in _OPAQUE:
            if (folder / name).is_file():
                found.opaque = hashlib.sha256((folder / name).read_bytes()).hexdigest()
                break
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} that is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path.name} that is not a JSON object")
    return data


def _read_tokenizer_json(found: Vocabulary, data: Mapping[str, Any]) -> None:
    model = data.get("model")
    if not isinstance(model, Mapping):
        raise ValueError("tokenizer.json without a model")
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, Mapping):
        found.texts.update({number: text for text, number in vocabulary.items()})
    elif isinstance(vocabulary, list):  # Unigram: pairs of text and score
        found.texts.update({number: str(entry[0]) for number, entry in enumerate(vocabulary)})
    else:
        raise ValueError("tokenizer.json without a vocabulary")
    for entry in data.get("added_tokens") or []:
        found.texts[int(entry["id"])] = str(entry["content"])
        found.special.add(int(entry["id"]))


def _read_vocab_json(found: Vocabulary, folder: Path) -> None:
    found.texts.update({number: text for text, number in _json(folder / "vocab.json").items()})
    if (folder / "added_tokens.json").is_file():
        for text, number in _json(folder / "added_tokens.json").items():
            found.texts[number] = text
            found.special.add(number)
    if not (folder / "tokenizer_config.json").is_file():
        return
    decoder = _json(folder / "tokenizer_config.json").get("added_tokens_decoder")
    if isinstance(decoder, dict):
        for number, entry in decoder.items():
            found.texts[int(number)] = str(entry["content"])
            found.special.add(int(number))
