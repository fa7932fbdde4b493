"""Check TensorRT-LLM's YAML (`trtllm-serve --extra_llm_api_options`, or `--config`) against the schema `trtllm_schema`.

TensorRT-LLM checks the file too, but only on a machine with a GPU, after it has loaded its CUDA libraries: a misspelt
key is found minutes after the start. This check refuses unknown keys, as the PyTorch backend does, and also numbers
written as text, a key written twice, and two keys of which the engine would ignore one without a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import Problem, did_you_mean, nearest
from ..core.format import listing
from ..core.schema import Anything, Findings, Table, Value, check
from ..core.versions import as_version, is_version, supports
from .trtllm_keys import Key, Keys, Words
from .trtllm_schema import CHECKED, NEWEST_LINE, OLDEST, OTHER_NAMES, TOP
from .trtllm_speculation import DECODING_TYPES, MODEL, NO_OVERLAP, SPECULATION, DecodingType

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Settings

WHERE = "the YAML of trtllm-serve"


def check_config(data: object, version: str, where: str = WHERE) -> list[Problem]:
    """The problems for which TensorRT-LLM ``version`` (or a stricter rule here) refuses ``data``, the parsed YAML.

    ``where`` is the file's name in the problems. `warnings_of` returns what the engine accepts with a warning. Limits
    of certain GPUs are in the catalogue (`refused_on` of an option).
    """
    findings = Findings(where)
    if not is_version(version) or not _in_range(version):
        newest = ".".join(map(str, NEWEST_LINE))
        findings.add(
            "unknown-engine-version",
            "",
            f"TensorRT-LLM {version}",
            f"a version that this schema knows: {OLDEST} to {newest} (its facts are of {CHECKED})",
            "choose one of them, or add what that version accepts",
        )
        return findings.problems
    if not isinstance(data, dict):
        check(data, Table(Anything()), findings)
        return findings.problems
    _check_keys(data, TOP, version, "", findings)
    _check_cuda_graph(data, findings)
    return findings.problems


def warnings_of(data: Settings) -> list[str]:
    """Sentences about settings that the engine accepts and does not follow; ``data`` has passed `check_config`.

    N-gram lookup cannot run with the overlap scheduler. The engine then disables the scheduler with only a log line
    (`tensorrt_llm/_torch/pyexecutor/py_executor_creator.py`). A baseline that keeps it would differ in more than the
    speculation. Eagle runs with the overlap scheduler.
    """
    speculation = data.get("speculative_config") or {}
    kind = speculation.get("decoding_type")
    warnings = []
    if kind in NO_OVERLAP and not data.get("disable_overlap_scheduler"):
        warnings.append(
            f"decoding_type {kind} cannot run with the overlap scheduler: the engine switches it off by itself; "
            "write 'disable_overlap_scheduler: true' into both arms, or they differ in that as well"
        )
    if kind in ("Eagle", "Eagle3") and not speculation.get("allow_advanced_sampling"):
        warnings.append(
            "up to early 1.3, Eagle in one model samples greedily whatever a request asks for, unless the version "
            "has 'allow_advanced_sampling' and it is true: compare the arms at temperature 0"
        )
    return warnings


# --- keys -----------------------------------------------------------------------------------------


def _in_range(version: str) -> bool:
    """True if the schema covers a version."""
    parsed = as_version(version)
    return parsed >= as_version(OLDEST) and parsed.release[:2] <= NEWEST_LINE


def _check_keys(data: object, keys: Mapping[str, Key], version: str, path: str, findings: Findings) -> None:
    """Check that ``data``, the value at ``path`` ('' for the file), is a mapping with ``keys`` of this version only.

    The value of each key is checked against its shape; that of `speculative_config` by its own rules.
    """
    if not isinstance(data, dict):
        check(data, Table(Anything()), findings, path)
        return
    for name, value in data.items():
        here = f"{path}.{name}" if path else str(name)
        key = keys.get(name) if isinstance(name, str) else None
        if key is None:
            findings.add("unknown-key", here, f"the unknown key '{name}'", *_advice(name, keys, version, path))
        elif not supports(version, key.span):
            findings.add(
                "option-not-in-version",
                here,
                f"the key '{name}'",
                f"TensorRT-LLM {_spoken(key.span)}; this is {version}",
                key.instead or "remove it, or choose a version that has it",
            )
        elif value is None:
            if not key.null:
                findings.add(
                    "empty-value", here, "nothing", "a value other than null", "give it a value, or remove the key"
                )
        elif here == "speculative_config":
            _check_speculation(value, version, findings)
        elif isinstance(key.shape, Keys):
            _check_keys(value, key.shape.keys, version, here, findings)
        elif isinstance(key.shape, Words):
            _check_word(value, key.shape, version, here, findings)
        else:
            check(value, key.shape, findings, here)


def _check_word(value: object, words: Words, version: str, path: str, findings: Findings) -> None:
    """Check that ``value`` is one of the words of this version; a word of another version has a problem of its own."""
    valid = tuple(word for word, span in words.spans.items() if supports(version, span))
    if isinstance(value, str) and value in words.spans and value not in valid:
        findings.add(
            "option-not-in-version",
            path,
            f"{value!r}",
            f"TensorRT-LLM {_spoken(words.spans[value])}; this is {version}",
            f"use one of: {', '.join(sorted(valid))}",
        )
    else:
        check(value, Value(str, choices=valid), findings, path)


def _spoken(span: Mapping[str, str | None]) -> str:
    """The versions of a span as text: ``1.2.0 or later``, ``1.2 or earlier``."""
    since = span.get("since")
    until = span.get("until")
    parts = []
    if since:
        parts.append(f"{since} or later")
    if until:
        parts.append(f"{until.removesuffix('.99').removesuffix('.0rc99')} or earlier")
    return " and ".join(parts)


def _advice(name: object, keys: Mapping[str, Key], version: str, path: str) -> tuple[str, str]:
    """For the unknown key ``name`` below ``path``: what is needed instead, and what to do.

    In this order: another block has the key; it is a known name of old versions or other engines; a known key is
    similar, or there are so few that the message lists them; nothing is known.
    """
    valid = sorted(key for key, entry in keys.items() if supports(version, entry.span))
    paths = [other_path for other_path, block in _BLOCKS.items() if other_path != path and name in block]
    if paths:
        place = " or ".join(f"below '{other_path}'" if other_path else "to the top level" for other_path in paths)
        return f"that key {place.replace('to the', 'at the')}", f"move it {place}"
    few = len(valid) <= _MOST_NAMED  # few enough to list them
    needed = f"one of the {len(valid)} keys of TensorRT-LLM {version}"
    if few:
        needed = f"one of: {', '.join(valid)}"
    if name in OTHER_NAMES:
        return needed, OTHER_NAMES[str(name)]
    if few or nearest(name, valid):
        return needed, did_you_mean(name, valid)
    return needed, "remove it, or look it up: nvidia.github.io/TensorRT-LLM, API reference, TorchLlmArgs"


# A message lists at most so many keys.
_MOST_NAMED = 40
# The keys of each block, by its path; "" is the top level.
_BLOCKS: Mapping[str, frozenset[str]] = {
    # The keys of all decoding types: `_check_speculation` finds keys of another type.
    "speculative_config": frozenset(SPECULATION).union(*(kind.keys for kind in DECODING_TYPES.values())),
    **{
        name: frozenset(key.shape.keys)
        for name, key in TOP.items()
        if isinstance(key.shape, Keys) and name != "speculative_config"
    },
    "": frozenset(TOP),
}


# --- rules over several keys ----------------------------------------------------------------------


def _check_speculation(data: object, version: str, findings: Findings) -> None:
    """Check `speculative_config`, whose keys depend on its decoding type."""
    path = "speculative_config"
    if not isinstance(data, dict):
        check(data, Table(Anything()), findings, path)
        return
    kind = _checked_type(data, version, findings)
    if kind is None or kind.refused:
        # Without a valid type, the keys of all types are accepted.
        keys: dict[str, Key] = {}
        for any_kind in DECODING_TYPES.values():
            keys |= any_kind.keys
        _check_keys(data, {**keys, **SPECULATION}, version, path, findings)
        return
    foreign = _check_foreign(data, kind, version, findings)
    rest = {key: value for key, value in data.items() if key not in foreign}
    _check_keys(rest, {**SPECULATION, **kind.keys}, version, path, findings)
    _check_needs(data, str(data["decoding_type"]), kind, findings)
    _check_schedule(data, version, findings)


def _checked_type(data: Settings, version: str, findings: Findings) -> DecodingType | None:
    """Check and return the decoding type of `speculative_config`; None if it is missing or unknown.

    A type that a file can never have (`refused`), or that another version has, is a problem and is returned.
    """
    path = "speculative_config.decoding_type"
    usable = sorted(word for word, kind in DECODING_TYPES.items() if not kind.refused and supports(version, kind.span))
    needed = f"one of: {', '.join(usable)}"
    if "decoding_type" not in data:
        findings.add("missing-key", path, "nothing", needed, "add 'decoding_type:' here")
        return None
    name = data["decoding_type"]
    kind = DECODING_TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        found = "nothing" if name is None else f"{name!r}"
        findings.add("unknown-value", path, found, needed, did_you_mean(name, usable))
    elif kind.refused:
        findings.add("unknown-value", path, f"{name!r}: {kind.refused}", needed, "choose another type")
    elif not supports(version, kind.span):
        findings.add(
            "option-not-in-version",
            path,
            f"{name!r}",
            f"TensorRT-LLM {_spoken(kind.span)}; this is {version}",
            kind.instead or f"use {needed}",
        )
    return kind


def _check_foreign(data: Settings, kind: DecodingType, version: str, findings: Findings) -> set[str]:
    """Add a finding for each key that only other decoding types have; return these keys."""
    foreign = set()
    for key in data:
        if not isinstance(key, str) or key in SPECULATION or key in kind.keys:
            continue
        owners = [word for word, other in DECODING_TYPES.items() if key in other.keys and supports(version, other.span)]
        if owners:
            foreign.add(key)
            findings.add(
                "conflicting-keys",
                f"speculative_config.{key}",
                f"the key '{key}', which belongs to decoding_type {listing(owners)}",
                f"a key of {data['decoding_type']}: {', '.join(sorted({*SPECULATION, *kind.keys}))}",
                "remove it, or change the decoding_type",
            )
    return foreign


def _check_needs(data: Settings, name: str, kind: DecodingType, findings: Findings) -> None:
    """Check that a decoding type, called ``name``, has the keys that it needs, and one name of its draft."""
    path = "speculative_config"
    models = [key for key in ("speculative_model_dir", "speculative_model") if data.get(key) is not None]
    for key in kind.needs:
        if key == MODEL and not models:
            findings.add(
                "missing-key",
                f"{path}.{key}",
                "nothing",
                f"the draft that {name} runs",
                f"add '{key}:' with its folder",
            )
        elif key != MODEL and key not in data:
            findings.add(
                "missing-key",
                f"{path}.{key}",
                "nothing",
                f"the key '{key}': {name} has no default for it",
                f"add '{key}:' here",
            )
    if len(models) == 2:
        findings.add(
            "conflicting-keys",
            path,
            "speculative_model and speculative_model_dir",
            "one of them: they are two names of one key",
            "keep one",
        )
    if data.get("use_dynamic_tree") is True:
        _check_dynamic_tree(data, path, findings)


def _check_dynamic_tree(data: Settings, path: str, findings: Findings) -> None:
    """Check the settings of a dynamic tree, which has its size and no fixed choices."""
    if data.get("eagle_choices") is not None:
        findings.add(
            "conflicting-keys", path, "use_dynamic_tree and eagle_choices", "one way to build the tree", "keep one"
        )
    if data.get("dynamic_tree_max_topK") is None:
        findings.add(
            "missing-key",
            f"{path}.dynamic_tree_max_topK",
            "nothing",
            "the number of nodes that a dynamic tree expands",
            "add 'dynamic_tree_max_topK:' here",
        )


def _check_schedule(data: Settings, version: str, findings: Findings) -> None:
    """Check `draft_len_schedule`, which maps a batch size to a draft length.

    Up to 1.2 an entry is valid from its batch size on, and there must be one for batch size 1. Since 1.3 (PR 10860) it
    is valid up to its batch size, and the entry with the smallest size must have the full length, `max_draft_len`.
    """
    schedule = data.get("draft_len_schedule")
    most = data.get("max_draft_len")
    path = "speculative_config.draft_len_schedule"
    if schedule is None or not supports(version, SPECULATION["draft_len_schedule"].span):
        return
    if not isinstance(schedule, Mapping) or not schedule:
        findings.add(
            "wrong-type",
            path,
            f"{schedule!r}",
            "batch sizes with the draft length for each",
            "write it as {1: 3, 4: 2}",
        )
        return
    if _entries_are_valid(schedule, most, path, findings):
        _check_smallest_batch(schedule, most, version, path, findings)
        _check_highest_batch(data, version, findings)


def _check_smallest_batch(schedule: Mapping[int, int], most: Any, version: str, path: str, findings: Findings) -> None:
    """Check the entry with the smallest batch size: 1 in version 1.2; with the full length ``most`` in all versions."""
    first = min(schedule)
    if first != 1 and version_line(version) == (1, 2):
        findings.add(
            "missing-key",
            path,
            f"no entry for batch size 1 (the smallest is {first})",
            "the key 1: every server reaches it",
            f"add '1: {most}'",
        )
    elif _is_whole(most) and schedule[first] != most:
        findings.add(
            "out-of-range",
            f"{path}.{first}",
            f"{schedule[first]}",
            f"{most}, the max_draft_len, for the smallest batch",
            f"write {most}, or change max_draft_len",
        )


def _check_highest_batch(data: Settings, version: str, findings: Findings) -> None:
    """Check that only one setting ends speculation above a batch size."""
    if version_line(version) >= (1, 3) and data.get("max_concurrency") is not None:
        findings.add(
            "conflicting-keys",
            "speculative_config",
            "max_concurrency and draft_len_schedule",
            "one of them: since 1.3 a schedule ends speculation above its last batch size",
            "keep one",
        )


def _entries_are_valid(schedule: Mapping[Any, Any], most: Any, path: str, findings: Findings) -> bool:
    """Check that each entry has a batch size and a draft length of at most ``most``; False if there is a finding."""
    valid = True
    for size, length in schedule.items():
        if not (_is_whole(size) and _is_whole(length)) or size < 1 or length < 0:
            valid = False
            findings.add(
                "wrong-type",
                f"{path}.{size}",
                f"{size!r}: {length!r}",
                "a batch size of 1 or more with a draft length of 0 or more, both whole numbers",
                "correct the entry",
            )
        elif _is_whole(most) and length > most:
            valid = False
            findings.add(
                "out-of-range", f"{path}.{size}", f"{length}", f"{most} or less, the max_draft_len", "correct the value"
            )
    return valid


def version_line(version: str) -> tuple[int, int]:
    """The line (major, minor) of a version: ``(1, 2)`` for 1.2.0rc1 and for 1.2.1."""
    major, minor, *_ = (*as_version(version).release, 0)  # 0: the minor number of a version such as "2"
    return major, minor


def _is_whole(value: object) -> bool:
    """True if a value of the YAML is a whole number; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _check_cuda_graph(data: Settings, findings: Findings) -> None:
    """Refuse `batch_sizes` together with `max_batch_size`.

    The engine accepts both only if they agree (in 1.2: if the list is the one that it would create itself), and stops
    otherwise: "Please don't set both".
    """
    block = data.get("cuda_graph_config")
    if isinstance(block, Mapping) and block.get("batch_sizes") and block.get("max_batch_size"):
        findings.add(
            "conflicting-keys",
            "cuda_graph_config",
            "max_batch_size and batch_sizes",
            "one of them: the list already sets the largest",
            "keep one",
        )
