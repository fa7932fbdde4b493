"""What is inside the models' files: do they hold what they say, and do target and draft speak of the same tokens.

A hash proves that a file is the publisher's. This proves that it can be loaded (a file that was cut short, an index
that names what is not there) and that the draft is one for this target. Headers, JSON and one small table are read,
no weights: seconds for 200 files. Standard library only.
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
from .headers import AGAIN, Tensor, read_header
from .tokenizer_files import Vocabulary, config_of, vocabulary_of

INDEX = "model.safetensors.index.json"
CHOOSE = "choose a draft of the target's own family"
# The table draft -> target of an EAGLE-3 head has 8 bytes a token of the draft's vocabulary; no larger one is read.
_TABLE_LIMIT = 8 << 20
_TABLE_FORMS = {"I64": "q", "I32": "i"}


def check_model(path: Path) -> list[Problem]:
    """What is wrong with the model at ``path``: a folder of safetensors, one such file, or a GGUF file.

    A folder whose weights have another format (pickled) has none that can be checked, and is left alone.
    """
    if path.is_dir():
        return _Folder(path).problems()
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
    """What is odd about a folder of safetensors and keeps nobody from loading it, a line each."""
    if not path.is_dir():
        return []
    return _Folder(path).remarks()


def check_pair(target: Path, draft: Path, method: PairMethod) -> list[Problem]:
    """What keeps the files at ``draft`` from drafting for those at ``target``.

    A draft model must give every ordinary token the
    target's number, and its matrices may have ``vocab_difference`` rows more or less (llama.cpp allows 128, vLLM
    none). A head has no tokenizer of its own: it must not propose numbers that the target doesn't have.
    """
    try:
        if method["kind"] == "head":
            return _check_head(target, draft)
        if method["kind"] == "model":
            return _check_draft(vocabulary_of(target), vocabulary_of(draft), draft, int(method["vocab_difference"]))
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        found = f"a tokenizer or configuration that can't be read: {error}"
        return [Problem("weights-damaged", found, "comparable files", AGAIN, f"{draft}, {target}")]
    return []


# --- a folder of safetensors --------------------------------------------------------------------------


class _Folder:
    """A folder of safetensors: its shards' headers, held against its index."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._index = path / INDEX
        # Not below: a subfolder (original/, metal/) is another copy in another format.
        self.headers = {file.name: read_header(file) for file in sorted(path.glob("*.safetensors"))}

    def problems(self) -> list[Problem]:
        found: list[Problem] = []
        for header in self.headers.values():
            found += header.problems
        if self._index.is_file():
            return found + self._check_index()
        if not self.headers and not self._other_weights():
            found.append(
                Problem(
                    "no-weights", "no *.safetensors", "weights", "correct source.hub.allow, ignore", str(self._path)
                )
            )
        return found

    def remarks(self) -> list[str]:
        metadata = _read_index(_bytes_of(self._index)).get("metadata")
        if not isinstance(metadata, Mapping):
            return []
        total_size, size = metadata.get("total_size"), 0
        for header in self.headers.values():
            size += sum(tensor.size for tensor in header.tensors.values())
        if not isinstance(total_size, (int, float)) or total_size == size:
            return []
        # Tools that quantize or merge leave the old number behind, and no engine reads it.
        return [f"{self._index}: total_size says {total_size:,.0f} bytes, the tensors have {size:,}"]

    def _other_weights(self) -> bool:
        return any(any(self._path.glob(f"*.{suffix}")) for suffix in ("bin", "pt", "pth", "gguf"))

    def _check_index(self) -> list[Problem]:
        where = str(self._index)
        names = weight_map(_bytes_of(self._index))
        if names is None:
            return [no_weight_map(where)]
        problems = []
        for shard in sorted(set(names.values())):
            header = self.headers.get(shard)
            if header is None:
                problems.append(Problem("weights-damaged", f"no shard {shard}", "every shard", AGAIN, where))
                continue
            if header.problems:  # its own faults have been told of
                continue
            lost = sorted(name for name, file in names.items() if file == shard and name not in header.tensors)
            if lost:
                found = f"{shard} without '{lost[0]}'{and_more(lost)}"
                problems.append(Problem("weights-damaged", found, "what the index says", AGAIN, where))
        return problems


def and_more(names: Sequence[str]) -> str:
    """What follows the first of several names: `` and 2 more``; '' after the only one."""
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def weight_map(text: bytes) -> dict[str, str] | None:
    """The shard of every tensor, as the index ``text`` names them; None where it is no index."""
    names = _read_index(text).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(shard, str) for shard in names.values()):
        return None
    return names


def no_weight_map(where: str) -> Problem:
    """What is said of an index that is none."""
    return Problem("weights-damaged", "no weight_map", "JSON that names the shard of every tensor", AGAIN, where)


def _bytes_of(index: Path) -> bytes:
    try:
        return index.read_bytes()
    except OSError:
        return b""


def _read_index(text: bytes) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return data


# --- target and draft ---------------------------------------------------------------------------------


def _check_draft(target: Vocabulary, draft: Vocabulary, where: Path, difference: int) -> list[Problem]:
    return [
        Problem("draft-vocabulary-differs", found, needed, CHOOSE, str(where))
        for found, needed in _unlike(target, draft, difference)
    ]


def _unlike(target: Vocabulary, draft: Vocabulary, difference: int) -> Iterator[tuple[str, str]]:
    """Yield (found, needed) for all that differs between two vocabularies and matters."""
    if target.size is not None and draft.size is not None and abs(target.size - draft.size) > difference:
        yield f"{draft.size} rows for tokens", f"the target's {target.size}, give or take {difference}"
    if target.opaque and draft.opaque and target.opaque != draft.opaque:
        yield "a tokenizer file other than the target's", "the same bytes"
    if not target.texts or not draft.texts:
        return  # an engine never reads the draft's tokenizer, and some publishers leave it out
    if target.kind and draft.kind and target.kind != draft.kind:
        yield f"a tokenizer of the kind {draft.kind}", f"the target's: {target.kind}"
    yield from _unlike_tokens(target, draft, difference)
    if "bos" in target.ends and "bos" in draft.ends and target.ends["bos"] != draft.ends["bos"]:
        mine, theirs = draft.texts.get(draft.ends["bos"]), target.texts.get(target.ends["bos"])
        if mine != theirs:
            yield f"{mine!r} as the beginning-of-text token", f"the target's {theirs!r}"


def _unlike_tokens(target: Vocabulary, draft: Vocabulary, difference: int) -> Iterator[tuple[str, str]]:
    """Yield (found, needed) for ordinary tokens that differ; ``difference`` of them may be in one vocabulary alone."""
    # Names of special tokens differ between a base model and its chat variant, and nobody types them.
    special = target.special | draft.special
    common = (target.texts.keys() & draft.texts.keys()) - special
    other = sorted(number for number in common if target.texts[number] != draft.texts[number])
    if other:
        number = other[0]
        found = f"token {number} is {draft.texts[number]!r}"
        if len(other) > 1:
            found += f", and {len(other) - 1} more tokens differ"
        yield found, f"the target's {target.texts[number]!r}: a token id must mean the same in both"
    alone = (target.texts.keys() ^ draft.texts.keys()) - special
    if len(alone) > difference:
        yield f"{len(alone)} ordinary tokens that only one of the two has, such as {min(alone)}", "the same tokens"


def _check_head(target: Path, draft: Path) -> list[Problem]:
    """Check that a head proposes only what the target has, and reads states of the target's width."""
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
        highest = _highest(*table)
        if highest is None or highest < size:
            return []
        found, needed = f"a head whose table d2t maps to token {highest}", f"numbers below {size}, the target's"
    else:
        own = config_of(draft).get("vocab_size")
        if not isinstance(own, int) or own <= size:
            return []
        found, needed = f"a head that proposes {own} tokens", f"{size} or fewer: the target has no more"
    return [Problem("draft-vocabulary-differs", found, needed, "choose a head trained for this target", str(draft))]


def _highest(file: Path, tensor: Tensor) -> int | None:
    """The highest token that an EAGLE-3 head's table leads to: draft token i is the target's i + d2t[i]."""
    form = _TABLE_FORMS.get(tensor.dtype)
    if form is None or not 0 < tensor.size <= _TABLE_LIMIT:
        return None
    with file.open("rb") as stream:
        stream.seek(tensor.begin)
        values = struct.unpack(f"<{tensor.size // struct.calcsize(form)}{form}", stream.read(tensor.size))
    return max(number + int(offset) for number, offset in enumerate(values))
