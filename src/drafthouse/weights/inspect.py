"""Check that model files can be loaded, and that a draft fits its target: both must use the same tokens.

A hash proves only that a file is the publisher's. These checks find truncated files, an index that names missing
tensors, and a draft of another model family. Headers, JSON and one small table are read, no weights: seconds for 200
files. Standard library only.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import Problem
from ..profiles.resolved_types import PairMethod
from .gguf_header import check_gguf, split_names
from .headers import FETCH_AGAIN, Tensor, read_header
from .tokenizer_files import Vocabulary, config_of, vocabulary_of

INDEX = "model.safetensors.index.json"
CHOOSE = "choose a draft of the target's own family"
# The table d2t of an EAGLE-3 head maps draft tokens to target tokens, 8 bytes each. A larger table is not read.
_MAX_TABLE_BYTES = 8 << 20
_STRUCT_FORMATS = {"I64": "q", "I32": "i"}  # safetensors dtype of a table -> struct format


def check_model(path: Path) -> list[Problem]:
    """Problems of the model at ``path``: a folder of safetensors, one safetensors file, or all files of a GGUF model.

    A missing path is a problem. Weights of another format, such as pickled ones, are not checked.
    """
    if path.is_dir():
        return _SafetensorsFolder(path).problems()
    if not path.is_file():
        return [Problem("no-weights", "nothing", "a model's folder or file", "put it there", str(path))]
    if path.suffix == ".safetensors":
        return read_header(path).problems
    if path.suffix != ".gguf":
        return []
    problems = []
    for part in split_names(path.name):
        problems += check_gguf(path.with_name(part))
    return problems


def remarks(path: Path) -> list[str]:
    """Lines about oddities of a folder of safetensors that do not prevent loading it; [] for a file."""
    if not path.is_dir():
        return []
    return _SafetensorsFolder(path).remarks()


def check_pair(target: Path, draft: Path, method: PairMethod) -> list[Problem]:
    """Problems that prevent the model at ``draft`` from drafting for the one at ``target``.

    A draft model must use the target's id for every ordinary token; its vocabulary size may differ by at most
    ``vocab_difference`` (llama.cpp allows 128, vLLM 0). A draft head must propose only token ids of the target. Nothing
    is checked for other kinds of methods. Files that cannot be read are a problem.
    """
    try:
        if method["kind"] == "head":
            return _check_head(target, draft)
        if method["kind"] == "model":
            return _check_draft(vocabulary_of(target), vocabulary_of(draft), draft, int(method["vocab_difference"]))
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        found = f"a tokenizer or configuration that can't be read: {error}"
        return [Problem("weights-damaged", found, "comparable files", FETCH_AGAIN, f"{draft}, {target}")]
    return []


# --- a folder of safetensors --------------------------------------------------------------------------


class _SafetensorsFolder:
    """A folder of safetensors: the headers of its shards (files), and the index that names the shard of each tensor."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._index = path / INDEX
        # Subfolders (original/, metal/) hold copies of the model in other formats.
        self.headers = {file.name: read_header(file) for file in sorted(path.glob("*.safetensors"))}

    def problems(self) -> list[Problem]:
        """Problems of the headers, and of the index if there is one; a folder without weights is a problem."""
        problems: list[Problem] = []
        for header in self.headers.values():
            problems += header.problems
        if self._index.is_file():
            return problems + self._check_index()
        if not self.headers and not self._has_other_format():
            problems.append(
                Problem(
                    "no-weights", "no *.safetensors", "weights", "correct source.hub.allow, ignore", str(self._path)
                )
            )
        return problems

    def remarks(self) -> list[str]:
        """Line about an index whose ``total_size`` is not the size of the tensors; [] if it is, or without one."""
        metadata = _parse_index(_read_bytes(self._index)).get("metadata")
        if not isinstance(metadata, Mapping):
            return []
        total_size = metadata.get("total_size")
        size = 0  # bytes
        for header in self.headers.values():
            size += sum(tensor.size for tensor in header.tensors.values())
        if not isinstance(total_size, (int, float)) or total_size == size:
            return []
        # Tools that quantize or merge a model do not update total_size; engines ignore it.
        return [f"{self._index}: total_size says {total_size:,.0f} bytes, the tensors have {size:,}"]

    def _has_other_format(self) -> bool:
        """True if the folder has pickled weights or a GGUF file, which are not checked here."""
        return any(any(self._path.glob(f"*.{suffix}")) for suffix in ("bin", "pt", "pth", "gguf"))

    def _check_index(self) -> list[Problem]:
        """Problems of the index: missing shards, and tensors that their shards do not hold."""
        where = str(self._index)
        shard_of = weight_map(_read_bytes(self._index))
        if shard_of is None:
            return [no_weight_map(where)]
        problems = []
        for shard in sorted(set(shard_of.values())):
            header = self.headers.get(shard)
            if header is None:
                problems.append(Problem("weights-damaged", f"no shard {shard}", "every shard", FETCH_AGAIN, where))
                continue
            if header.problems:  # reported by problems()
                continue
            missing = sorted(name for name, file in shard_of.items() if file == shard and name not in header.tensors)
            if missing:
                found = f"{shard} without '{missing[0]}'{and_more(missing)}"
                problems.append(Problem("weights-damaged", found, "what the index says", FETCH_AGAIN, where))
        return problems


def and_more(names: Sequence[str]) -> str:
    """Text that counts the names after the first: `` and 2 more``; '' if there is only one name."""
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def weight_map(text: bytes) -> dict[str, str] | None:
    """Shard of every tensor, by tensor name, from the text of an index; None if it has no valid weight map."""
    shard_of = _parse_index(text).get("weight_map")
    if not isinstance(shard_of, dict) or not all(isinstance(shard, str) for shard in shard_of.values()):
        return None
    return shard_of


def no_weight_map(where: str) -> Problem:
    """Problem for an index without a valid weight map."""
    return Problem("weights-damaged", "no weight_map", "JSON that names the shard of every tensor", FETCH_AGAIN, where)


def _read_bytes(index: Path) -> bytes:
    """Content of an index; empty, which is no valid JSON, if it cannot be read."""
    try:
        return index.read_bytes()
    except OSError:
        return b""


def _parse_index(text: bytes) -> dict[str, Any]:
    """JSON object of an index; {} for any other text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return data


# --- target and draft ---------------------------------------------------------------------------------


def _check_draft(target: Vocabulary, draft: Vocabulary, where: Path, max_difference: int) -> list[Problem]:
    """Problems of a draft model; ``where``: its path. ``max_difference`` as in `_differences`."""
    return [
        Problem("draft-vocabulary-differs", found, needed, CHOOSE, str(where))
        for found, needed in _differences(target, draft, max_difference)
    ]


def _differences(target: Vocabulary, draft: Vocabulary, max_difference: int) -> Iterator[tuple[str, str]]:
    """Yield (found, needed) for each difference that prevents drafting.

    Sizes may differ by ``max_difference`` tokens. Then follow opaque tokenizer files; and, if the texts of both are
    known, the kinds of tokenizers, the texts of ordinary tokens, and the beginning-of-text tokens.
    """
    if target.size is not None and draft.size is not None and abs(target.size - draft.size) > max_difference:
        yield f"{draft.size} rows for tokens", f"the target's {target.size}, give or take {max_difference}"
    if target.opaque and draft.opaque and target.opaque != draft.opaque:
        yield "a tokenizer file other than the target's", "the same bytes"
    if not target.texts or not draft.texts:
        return  # some publishers leave out the draft's tokenizer, which engines never read
    if target.kind and draft.kind and target.kind != draft.kind:
        yield f"a tokenizer of the kind {draft.kind}", f"the target's: {target.kind}"
    yield from _token_differences(target, draft, max_difference)
    if "bos" in target.ends and "bos" in draft.ends and target.ends["bos"] != draft.ends["bos"]:
        draft_bos = draft.texts.get(draft.ends["bos"])
        target_bos = target.texts.get(target.ends["bos"])
        if draft_bos != target_bos:
            yield f"{draft_bos!r} as the beginning-of-text token", f"the target's {target_bos!r}"


def _token_differences(target: Vocabulary, draft: Vocabulary, max_difference: int) -> Iterator[tuple[str, str]]:
    """Yield (found, needed) for ordinary tokens with other texts, and for too many that only one vocabulary has.

    ``max_difference``: the number of ordinary tokens that only one of the two may have.
    """
    # Special tokens have other names in a chat model than in its base model, and no prompt or answer contains them.
    special = target.special | draft.special
    common = (target.texts.keys() & draft.texts.keys()) - special
    different = sorted(token_id for token_id in common if target.texts[token_id] != draft.texts[token_id])
    if different:
        token_id = different[0]
        found = f"token {token_id} is {draft.texts[token_id]!r}"
        if len(different) > 1:
            found += f", and {len(different) - 1} more tokens differ"
        yield found, f"the target's {target.texts[token_id]!r}: a token id must mean the same in both"
    extra = (target.texts.keys() ^ draft.texts.keys()) - special
    if len(extra) > max_difference:
        yield f"{len(extra)} ordinary tokens that only one of the two has, such as {min(extra)}", "the same tokens"


def _check_head(target: Path, draft: Path) -> list[Problem]:
    """Problem of a draft head that proposes token ids that the target does not have.

    Its table d2t has precedence over the vocabulary size in its config. [] too if what is needed is not known: one of
    the two is a single file, the target's size or the head's is missing, or the table cannot be read.
    """
    if not (target.is_dir() and draft.is_dir()):
        return []
    size = vocabulary_of(target).size
    if size is None:
        return []
    table: tuple[Path, Tensor] | None = None
    for file in sorted(draft.glob("*.safetensors")):
        tensor = read_header(file).tensors.get("d2t")
        if tensor is not None:
            table = (file, tensor)
    if table is not None:
        highest = _highest_token(*table)
        if highest is None or highest < size:
            return []
        found = f"a head whose table d2t maps to token {highest}"
        needed = f"numbers below {size}, the target's"
    else:
        draft_size = config_of(draft).get("vocab_size")
        if not isinstance(draft_size, int) or draft_size <= size:
            return []
        found = f"a head that proposes {draft_size} tokens"
        needed = f"{size} or fewer: the target has no more"
    return [Problem("draft-vocabulary-differs", found, needed, "choose a head trained for this target", str(draft))]


def _highest_token(file: Path, tensor: Tensor) -> int | None:
    """Highest target token id in a table d2t (draft token i is target token i + d2t[i]).

    None for a table of another dtype, of no values, or of more bytes than are read.
    """
    form = _STRUCT_FORMATS.get(tensor.dtype)
    if form is None or not 0 < tensor.size <= _MAX_TABLE_BYTES:
        return None
    with file.open("rb") as stream:
        stream.seek(tensor.begin)
        values = struct.unpack(f"<{tensor.size // struct.calcsize(form)}{form}", stream.read(tensor.size))
    return max(draft_token + int(offset) for draft_token, offset in enumerate(values))
