"""What a repository of the Hub, or a folder of this machine, says of its model: small files and headers, no weights.

Of 65 GB some 2 MB are read: config.json, generation_config.json, the index, and the header of each weight file.
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
from .entry import Found
from .gguf import config_of_gguf
from .tensor_totals import TensorKind

if TYPE_CHECKING:
    from drafthouse.models.shape import Config
    from drafthouse.weights.gguf_header import GgufHead

#: Bytes of headers that are read at most: those of a model of 700 GB in 160 files have 20 MB.
HEADERS_MOST = 32 << 20
#: config.json and its like have some KB.
_SMALL_MOST = 8 << 20
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json")

#: For somebody who asked for just this.
USUAL = Patience(tries=5)

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Name:
    """What was asked for: ``org/name``, ``org/name@revision``, ``org/name:file.gguf``, or a folder (``/…``)."""

    repo: str
    revision: str
    file: str

    @classmethod
    def of(cls, word: str) -> Name:
        """Take a word apart. Raises DrafthouseError where it is neither a repository's name nor a path."""
        if word.startswith(("/", "./", "../", "~")):
            path = Path(os.path.expanduser(word)).resolve()  # noqa: PTH111 (Path's own raises where nobody is called so)
            if path.suffix == ".gguf":
                return cls(str(path.parent), "", path.name)
            return cls(str(path), "", "")
        rest, _, file = word.partition(":")
        repo, _, revision = rest.partition("@")
        right = "/" in repo and REPO.fits(repo) and REVISION.fits(revision or UNRESOLVED)
        if not right or not (file == "" or FILE.fits(file)):
            found, needed = f"'{word}'", "org/name, org/name@revision, org/name:file.gguf, or the path of a folder"
            raise one_problem("wrong-format", found, needed, "write it as the Hub spells it", "model")
        return cls(repo, revision or UNRESOLVED, file)

    @property
    def is_path(self) -> bool:
        """Tell whether it is a folder of this machine."""
        return not self.revision


def read_model(
    name: Name,
    *,
    token: str | None,
    endpoint: str | None = None,
    tell: Tell = lambda line: None,
    patience: Patience = USUAL,
) -> Found:
    """Read what there is to know. Raises DrafthouseError: no such repository, gated, no network, broken files."""
    if not name.is_path:
        return _of_hub(name, token, endpoint, tell, patience)
    try:
        return _of_folder(name, tell)
    except OSError as error:
        raise DrafthouseError(_unreadable(str(error), name.repo)) from error


def _of_hub(name: Name, token: str | None, endpoint: str | None, tell: Tell, patience: Patience) -> Found:
    deadline = Deadline(READ_S)
    try:
        snapshot = look_up(
            name.repo, name.revision, token=token, endpoint=endpoint, patience=patience, deadline=deadline
        )
    except DrafthouseError as error:  # nobody wrote a source yet
        raise DrafthouseError(list(map(_without_source, error.problems))) from error
    info = about(name.repo, token, endpoint, patience, deadline)
    limits = Limits(stall_s=READ_S, token=token, patience=patience, deadline=deadline)
    files = files_at_hub(snapshot.files, f"{name.repo} at {snapshot.commit}", limits, HEADERS_MOST)
    hashes = {file.path: file.key for file in snapshot.files}
    found = _read(name, files, tell)
    return replace(
        found,
        repo=name.repo,
        commit=snapshot.commit,
        branch="" if name.revision in (UNRESOLVED, snapshot.commit) else name.revision,
        license=info.license,
        gated=info.gated,
        tokenizer_hash=found.tokenizer_hash or hashes.get(_tokenizer_among(hashes)),
    )


def _without_source(problem: Problem) -> Problem:
    """A problem of a repository that no catalogue entry names yet: there is no `source.hub` to correct."""
    do = re.sub(r"source\.hub(?:\.repo)?(?!\.)", "the name", problem.do)
    return replace(problem, do=do.replace("source.hub.", "the "))


def _tokenizer_among(names: Collection[str]) -> str:
    """The file of the vocabulary among a model's files; '' where there is none."""
    return next((name for name in _TOKENIZERS if name in names), "")


def _of_folder(name: Name, tell: Tell) -> Found:
    folder = Path(name.repo)
    if not folder.is_dir():
        raise one_problem(
            "no-weights", "no such folder", "a model's folder, or one GGUF file", "correct the path", name.repo
        )
    try:
        sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
    except OSError as error:
        raise DrafthouseError(_unreadable(str(error), name.repo)) from error
    found = _read(name, Files(name.repo, sizes, lambda one: (folder / one).open("rb")), tell)
    tokenizer = _tokenizer_among(sizes)
    if tokenizer and not found.tokenizer_hash:
        found = replace(found, tokenizer_hash=hashlib.sha256((folder / tokenizer).read_bytes()).hexdigest())
    return replace(found, repo=str(folder / name.file), path=str(folder / name.file))


def _read(name: Name, files: Files, tell: Tell) -> Found:
    try:
        if name.file:
            return _gguf(name, files)
        config = _json(files, "config.json", needed=True)
        generation = _json(files, "generation_config.json")
        in_its_file = "chat_template.jinja" in files.sizes or "chat_template.json" in files.sizes
        chats = in_its_file or bool(_json(files, "tokenizer_config.json").get("chat_template"))
        tensors: dict[str, TensorKind] = {}
        shards = sorted(one for one in files.sizes if one.endswith(".safetensors") and "/" not in one)
        for number, shard in enumerate(shards, 1):
            tell(f"header {number} of {len(shards)}: {shard}")
            with files.opened(shard) as stream:
                header = header_of(stream, files.sizes[shard], f"{files.where}: {shard}")
            if header.problems:
                raise DrafthouseError(header.problems)
            tensors |= {key: TensorKind(one.dtype, one.shape, one.size) for key, one in header.tensors.items()}
    except (OSError, ValueError, struct.error) as error:
        raise DrafthouseError(_unreadable(str(error), files.where)) from error
    return Found(name.repo, "", config, files.sizes, tensors, generation, chats=chats)


def _gguf(name: Name, files: Files) -> Found:
    if "/" in name.file:
        do = "download it, and add it by its path: drafthouse model add /folder/file.gguf"
        needed = "a file at the top level of its repository: the weights folder is flat"
        raise one_problem("no-weights", f"{name.file}, in a folder", needed, do, files.where)
    if name.file not in files.sizes:
        there = ", ".join(sorted(one for one in files.sizes if one.endswith(".gguf"))[:8]) or "none"
        raise one_problem(
            "no-weights", f"no file {name.file}", f"one of its GGUF files: {there}", "correct it", files.where
        )
    parts = split_names(name.file)
    lacking = [part for part in parts if part not in files.sizes]
    if name.file != parts[0] or lacking:
        found = f"no {', '.join(lacking[:3])}"
        if name.file != parts[0]:
            found = f"a part of {len(parts)}"
        needed = "the first part of a split model, with all others next to it"
        do = f"name {parts[0]}, once they are there"
        raise one_problem("no-weights", found, needed, do, files.where)
    heads = [_gguf_head(part, files) for part in parts]
    if (count := heads[0].keys.get("split.count", 1)) not in (0, len(parts)):
        raise DrafthouseError(_unreadable(f"one of the {count} parts of a split model, renamed", files.where))
    config, tokenizer = config_of_gguf(heads[0])
    tensors: dict[str, TensorKind] = {}
    for head in heads:
        for key, (kind, shape, _) in head.tensors.items():
            tensors[key] = TensorKind(type_name(kind), shape, tensor_bytes(kind, shape))
    return Found(
        name.repo,
        "",
        config,
        {part: files.sizes[part] for part in parts},
        tensors,
        tokenizer_hash=tokenizer,
        file=name.file,
        chats=bool(heads[0].keys.get("tokenizer.chat_template")),
    )


def _gguf_head(name: str, files: Files) -> GgufHead:
    with files.opened(name) as stream:
        return gguf_head(stream, files.sizes[name])


def _json(files: Files, name: str, needed: bool = False) -> Config:
    if name not in files.sizes:
        if needed:
            raise DrafthouseError(_unreadable(f"no {name}", files.where))
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


def _unreadable(found: str, where: str) -> Problem:
    needed = "config.json and weight files whose headers can be read, or one GGUF file (org/name:file.gguf)"
    return Problem(
        "model-shape-unknown", found, needed, "choose another repository, or write the entry manually", where
    )
