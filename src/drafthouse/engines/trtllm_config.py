"""A schema of our own for TensorRT-LLM's YAML (`trtllm-serve --extra_llm_api_options`, or `--config`).

TensorRT-LLM checks the file itself, but only after it has loaded its CUDA libraries and only where there is a
GPU; a misspelt key is then found minutes after the start. So what its PyTorch backend accepts stands in
`trtllm_schema`, with its sources, and a file is checked against it here. It is strict in the same places (its
models forbid unknown keys) and in a few more: numbers written as text, a key written twice, and a pair of keys of
which the engine would silently take one are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import Problem, did_you_mean, nearest
from ..core.format import listing
from ..core.schema import Anything, Findings, Table, Value, check
from ..core.versions import is_version, known, number
from .trtllm_keys import Key, Keys, Words
from .trtllm_schema import CHECKED, NEWEST_LINE, OLDEST, OTHER_NAMES, TOP
from .trtllm_speculation import DECODING_TYPES, MODEL, NO_OVERLAP, SPECULATION, DecodingType

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Settings

WHERE = "the YAML of trtllm-serve"


def check_config(data: object, version: str, where: str = WHERE) -> list[Problem]:
    """All that TensorRT-LLM ``version`` would refuse in ``data`` (read from YAML), and our own rules.

    ``where`` is the file that the problems name. Nothing is returned for what the engine accepts with a warning:
    see `warnings_of`. What depends on the GPU stands in the catalogue (`refused_on` of an option).
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
    """What the engine accepts but does not do as written, a sentence each; ``data`` has passed the checks.

    Eagle runs with the overlap scheduler, in one model and in two; n-gram lookup does not, and the engine then
    switches it off by itself and only says so in its log (`tensorrt_llm/_torch/pyexecutor/py_executor_creator.py`).
    A baseline without that key would keep it, and differ in more than speculation.
    """
    speculation = data.get("speculative_config") or {}
    kind = speculation.get("decoding_type")
    found = []
    if kind in NO_OVERLAP and not data.get("disable_overlap_scheduler"):
        found.append(
            f"decoding_type {kind} cannot run with the overlap scheduler: the engine switches it off by itself; "
            "write 'disable_overlap_scheduler: true' into both arms, or they differ in that as well"
        )
    if kind in ("Eagle", "Eagle3") and not speculation.get("allow_advanced_sampling"):
        found.append(
            "up to early 1.3, Eagle in one model samples greedily whatever a request asks for, unless the version "
            "has 'allow_advanced_sampling' and it is true: compare the arms at temperature 0"
        )
    return found


# --- keys -----------------------------------------------------------------------------------------


def _in_range(version: str) -> bool:
    found = number(version)
    return found >= number(OLDEST) and found.release[:2] <= NEWEST_LINE


def _check_keys(data: object, keys: Mapping[str, Key], version: str, path: str, findings: Findings) -> None:
    """Check one mapping of known keys, and what is below them."""
    if not isinstance(data, dict):
        check(data, Table(Anything()), findings, path)
        return
    for name, value in data.items():
        here = f"{path}.{name}" if path else str(name)
        key = keys.get(name) if isinstance(name, str) else None
        if key is None:
            findings.add("unknown-key", here, f"the unknown key '{name}'", *_advice(name, keys, version, path))
        elif not known(version, key.span):
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
    valid = tuple(word for word, span in words.spans.items() if known(version, span))
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
    """The versions of a span in words: ``1.2.0 or later``, ``1.2 or earlier``."""
    since, until = span.get("since"), span.get("until")
    parts = []
    if since:
        parts.append(f"{since} or later")
    if until:
        parts.append(f"{until.removesuffix('.99').removesuffix('.0rc99')} or earlier")
    return " and ".join(parts)


def _advice(name: object, keys: Mapping[str, Key], version: str, path: str) -> tuple[str, str]:
    """What was needed instead of an unknown key, and what to do about it."""
    valid = sorted(key for key, entry in keys.items() if known(version, entry.span))
    homes = [home for home, block in _BLOCKS.items() if home != path and name in block]
    if homes:
        place = " or ".join(f"below '{home}'" if home else "to the top level" for home in homes)
        return f"that key {place.replace('to the', 'at the')}", f"move it {place}"
    few = len(valid) <= _MOST_NAMED
    needed = f"one of the {len(valid)} keys of TensorRT-LLM {version}"
    if few:
        needed = f"one of: {', '.join(valid)}"
    if name in OTHER_NAMES:
        return needed, OTHER_NAMES[str(name)]
    if few or nearest(name, valid):
        return needed, did_you_mean(name, valid)
    return needed, "remove it, or look it up: nvidia.github.io/TensorRT-LLM, API reference, TorchLlmArgs"


# A longer list of keys helps nobody.
_MOST_NAMED = 40
_BLOCKS: Mapping[str, frozenset[str]] = {
    # Its own types' keys are told apart by _check_speculation.
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
        # Which keys belong is not known then; those of all types are let through.
        keys: dict[str, Key] = {}
        for other in DECODING_TYPES.values():
            keys |= other.keys
        _check_keys(data, {**keys, **SPECULATION}, version, path, findings)
        return
    foreign = _check_foreign(data, kind, version, findings)
    own = {key: value for key, value in data.items() if key not in foreign}
    _check_keys(own, {**SPECULATION, **kind.keys}, version, path, findings)
    _check_needs(data, str(data["decoding_type"]), kind, findings)
    _check_schedule(data, version, findings)


def _checked_type(data: Settings, version: str, findings: Findings) -> DecodingType | None:
    """The decoding type of `speculative_config`; None where it is missing or unknown."""
    path = "speculative_config.decoding_type"
    usable = sorted(word for word, kind in DECODING_TYPES.items() if not kind.refused and known(version, kind.span))
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
    elif not known(version, kind.span):
        findings.add(
            "option-not-in-version",
            path,
            f"{name!r}",
            f"TensorRT-LLM {_spoken(kind.span)}; this is {version}",
            kind.instead or f"use {needed}",
        )
    return kind


def _check_foreign(data: Settings, kind: DecodingType, version: str, findings: Findings) -> set[str]:
    """The keys of `speculative_config` that belong to other decoding types alone; each is a finding."""
    foreign = set()
    for key in data:
        if not isinstance(key, str) or key in SPECULATION or key in kind.keys:
            continue
        owners = [word for word, other in DECODING_TYPES.items() if key in other.keys and known(version, other.span)]
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
    """Check `draft_len_schedule`: draft length by batch size.

    Up to 1.2 an entry holds from its batch size on, and there must be one for 1. In 1.3 (PR 10860) it holds up
    to its batch size, and the smallest one, whatever it is, must have the full length.
    """
    schedule, most = data.get("draft_len_schedule"), data.get("max_draft_len")
    path = "speculative_config.draft_len_schedule"
    if schedule is None or not known(version, SPECULATION["draft_len_schedule"].span):
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
    if not _entries_are_right(schedule, most, path, findings):
        return
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
    if version_line(version) >= (1, 3) and data.get("max_concurrency") is not None:
        findings.add(
            "conflicting-keys",
            "speculative_config",
            "max_concurrency and draft_len_schedule",
            "one of them: since 1.3 a schedule ends speculation above its last batch size",
            "keep one",
        )


def _entries_are_right(schedule: Mapping[Any, Any], most: Any, path: str, findings: Findings) -> bool:
    """Tell whether each entry of a schedule has a batch size and a draft length of ``most`` at most."""
    right = True
    for size, length in schedule.items():
        if not (_is_whole(size) and _is_whole(length)) or size < 1 or length < 0:
            right = False
            findings.add(
                "wrong-type",
                f"{path}.{size}",
                f"{size!r}: {length!r}",
                "a batch size of 1 or more with a draft length of 0 or more, both whole numbers",
                "correct the entry",
            )
        elif _is_whole(most) and length > most:
            right = False
            findings.add(
                "out-of-range", f"{path}.{size}", f"{length}", f"{most} or less, the max_draft_len", "correct the value"
            )
    return right


def version_line(version: str) -> tuple[int, int]:
    """The line a version belongs to: ``(1, 2)`` for 1.2.0rc1 and for 1.2.1."""
    major, minor, *_ = (*number(version).release, 0)
    return major, minor


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_cuda_graph(data: Settings, findings: Findings) -> None:
    """Refuse both ways to say for which batch sizes graphs are made.

    The engine takes both where they agree (1.2: where the list is the one it would make itself), and stops
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
