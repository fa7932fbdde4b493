"""Read the facts about a model from its repository on the Hugging Face Hub or a local folder, without its weights.

Reads config.json, generation_config.json, tokenizer_config.json and the header of each weight file: 2 MB of 65 GB.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.bounded import READ_S, Deadline
from ..core.documents import BadDocument, json_of, text_of
from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.forms import FILE, REPO, REVISION
from ..core.retry import Patience
from ..weights.download import Limits
from ..weights.gguf_header import gguf_head, split_names, tensor_bytes, type_name
from ..weights.headers import header_of
from ..weights.hub_client import UNRESOLVED, about, look_up
from ..weights.live_head import Files, files_at_hub
from .entry import Facts
from .gguf import config_of_gguf
from .tensor_totals import TensorKind

if TYPE_CHECKING:
    from drafthouse.models.shape import Config
    from drafthouse.weights.gguf_header import GgufHead

#: Most bytes of headers to read in all; a model of 700 GB in 160 files has 20 MB of them.
HEADERS_MOST = 32 << 20
#: Most bytes of a JSON file; config.json usually has some KB.
_SMALL_MOST = 8 << 20
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json")

#: Tries of a download that the user asked for.
USUAL = Patience(tries=5)

Tell = Callable[[str], None]


@dataclass(frozen=True)
class ModelName:
    """``org/name``, ``org/name@revision``, ``org/name:file.gguf``, or a folder: its path is ``repo``, revision ""."""

    repo: str
    revision: str
    file: str

    @classmethod
    def of(cls, word: str) -> ModelName:
        """Parse a name. Raises DrafthouseError if it is neither a repository's name nor a path."""
        if word.startswith(("/", "./", "../", "~")):
            path = Path(os.path.expanduser(word)).resolve()  # noqa: PTH111 (expanduser() of Path raises for an unknown user)
            if path.suffix == ".gguf":
                return cls(str(path.parent), "", path.name)
            return cls(str(path), "", "")
        rest, _, file = word.partition(":")
        repo, _, revision = rest.partition("@")
        is_valid = "/" in repo and REPO.fits(repo) and REVISION.fits(revision or UNRESOLVED)
        if not is_valid or not (file == "" or FILE.fits(file)):
            found, needed = f"'{word}'", "org/name, org/name@revision, org/name:file.gguf, or the path of a folder"
            raise one_problem("wrong-format", found, needed, "write it as the Hub spells it", "model")
        return cls(repo, revision or UNRESOLVED, file)

    @property
    def is_path(self) -> bool:
        """True for a folder of this machine."""
        return not self.revision


def read_model(
    name: ModelName,
    *,
    token: str | None,
    endpoint: str | None = None,
    tell: Tell = lambda line: None,
    patience: Patience = USUAL,
) -> Facts:
    """The facts about a model; ``tell`` gets a line per header. Raises DrafthouseError if files cannot be read."""
    if not name.is_path:
        return _read_from_hub(name, token, endpoint, tell, patience)
    try:
        return _read_from_folder(name, tell)
    except OSError as error:
        raise DrafthouseError(_unreadable_problem(str(error), name.repo)) from error


def _read_from_hub(name: ModelName, token: str | None, endpoint: str | None, tell: Tell, patience: Patience) -> Facts:
    deadline = Deadline(READ_S)
    try:
        snapshot = look_up(
            name.repo, name.revision, token=token, endpoint=endpoint, patience=patience, deadline=deadline
        )
    except DrafthouseError as error:
        raise DrafthouseError(list(map(_without_source, error.problems))) from error
    info = about(name.repo, token, endpoint, patience, deadline)
    limits = Limits(stall_s=READ_S, token=token, patience=patience, deadline=deadline)
    files = files_at_hub(snapshot.files, f"{name.repo} at {snapshot.commit}", limits, HEADERS_MOST)
    hashes = {file.path: file.key for file in snapshot.files}
    facts = _read_safetensors_or_gguf(name, files, tell)
    return replace(
        facts,
        repo=name.repo,
        commit=snapshot.commit,
        branch="" if name.revision in (UNRESOLVED, snapshot.commit) else name.revision,
        license=info.license,
        gated=info.gated,
        tokenizer_hash=facts.tokenizer_hash or hashes.get(_tokenizer_among(hashes)),
    )


def _without_source(problem: Problem) -> Problem:
    """The problem with advice about the name: there is no catalogue entry yet whose `source.hub` could be corrected."""
    do = re.sub(r"source\.hub(?:\.repo)?(?!\.)", "the name", problem.do)
    return replace(problem, do=do.replace("source.hub.", "the "))


def _tokenizer_among(names: Collection[str]) -> str:
    """The name of the tokenizer's file among a model's files; "" without one."""
    return next((name for name in _TOKENIZERS if name in names), "")


def _read_from_folder(name: ModelName, tell: Tell) -> Facts:
    folder = Path(name.repo)
    if not folder.is_dir():
        raise one_problem(
            "no-weights", "no such folder", "a model's folder, or one GGUF file", "correct the path", name.repo
        )
    try:
        sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
    except OSError as error:
        raise DrafthouseError(_unreadable_problem(str(error), name.repo)) from error
    facts = _read_safetensors_or_gguf(name, Files(name.repo, sizes, lambda one: (folder / one).open("rb")), tell)
    tokenizer = _tokenizer_among(sizes)
    if tokenizer and not facts.tokenizer_hash:
        facts = replace(facts, tokenizer_hash=hashlib.sha256((folder / tokenizer).read_bytes()).hexdigest())
    return replace(facts, repo=str(folder / name.file), path=str(folder / name.file))


def _read_safetensors_or_gguf(name: ModelName, files: Files, tell: Tell) -> Facts:
    try:
        if name.file:
            return _read_gguf(name, files)
        config = _read_json(files, "config.json", needed=True)
        generation = _read_json(files, "generation_config.json")
        in_its_file = "chat_template.jinja" in files.sizes or "chat_template.json" in files.sizes
        chats = in_its_file or bool(_read_json(files, "tokenizer_config.json").get("chat_template"))
        tensors: dict[str, TensorKind] = {}
        shards = sorted(file for file in files.sizes if file.endswith(".safetensors") and "/" not in file)
        for number, shard in enumerate(shards, 1):
            tell(f"header {number} of {len(shards)}: {shard}")
            with files.opened(shard) as stream:
                header = header_of(stream, files.sizes[shard], f"{files.where}: {shard}")
            if header.problems:
                raise DrafthouseError(header.problems)
            tensors |= {key: TensorKind(head.dtype, head.shape, head.size) for key, head in header.tensors.items()}
    except (OSError, ValueError, struct.error) as error:
        raise DrafthouseError(_unreadable_problem(str(error), files.where)) from error
    return Facts(name.repo, "", config, files.sizes, tensors, generation, chats=chats)


def _read_gguf(name: ModelName, files: Files) -> Facts:
    if "/" in name.file:
        do = "download it, and add it by its path: drafthouse model add /folder/file.gguf"
        needed = "a file at the top level of its repository: the weights folder is flat"
        raise one_problem("no-weights", f"{name.file}, in a folder", needed, do, files.where)
    if name.file not in files.sizes:
        gguf_names = ", ".join(sorted(one for one in files.sizes if one.endswith(".gguf"))[:8]) or "none"
        raise one_problem(
            "no-weights", f"no file {name.file}", f"one of its GGUF files: {gguf_names}", "correct it", files.where
        )
    parts = split_names(name.file)
    missing = [part for part in parts if part not in files.sizes]
    if name.file != parts[0] or missing:
        found = f"no {', '.join(missing[:3])}"
        if name.file != parts[0]:
            found = f"a part of {len(parts)}"
        needed = "the first part of a split model, with all others next to it"
        do = f"name {parts[0]}, once they are there"
        raise one_problem("no-weights", found, needed, do, files.where)
    heads = [_read_gguf_head(part, files) for part in parts]
    if (count := heads[0].keys.get("split.count", 1)) not in (0, len(parts)):
        raise DrafthouseError(_unreadable_problem(f"one of the {count} parts of a split model, renamed", files.where))
    config, tokenizer = config_of_gguf(heads[0])
    tensors: dict[str, TensorKind] = {}
    for head in heads:
        for key, (kind, shape, _) in head.tensors.items():
            tensors[key] = TensorKind(type_name(kind), shape, tensor_bytes(kind, shape))
    return Facts(
        name.repo,
        "",
        config,
        {part: files.sizes[part] for part in parts},
        tensors,
        tokenizer_hash=tokenizer,
        file=name.file,
        chats=bool(heads[0].keys.get("tokenizer.chat_template")),
    )


def _read_gguf_head(name: str, files: Files) -> GgufHead:
    with files.opened(name) as stream:
        return gguf_head(stream, files.sizes[name])


def _read_json(files: Files, name: str, needed: bool = False) -> Config:
    if name not in files.sizes:
        if needed:
            raise DrafthouseError(_unreadable_problem(f"no {name}", files.where))
        return {}
    if files.sizes[name] > _SMALL_MOST:
        raise ValueError(f"{name} of {files.sizes[name]} bytes")
    with files.opened(name) as stream:
        text = stream.read(files.sizes[name])
    try:
        data = json_of(text_of(text))
    except BadDocument as error:
        raise ValueError(f"{name}: {error}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{name} that is not a JSON object")
    return data


def _unreadable_problem(found: str, where: str) -> Problem:
    needed = "config.json and weight files whose headers can be read, or one GGUF file (org/name:file.gguf)"
    return Problem(
        "model-shape-unknown", found, needed, "choose another repository, or write the entry manually", where
    )
