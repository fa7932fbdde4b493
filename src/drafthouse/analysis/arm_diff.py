"""Whether two arms may be compared: what differs between them besides speculation.

PyYAML, because engine configurations and container definitions are YAML and must be compared by meaning.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from ..bench.result_types import ArmResult
from ..core.format import count, listing
from ..profiles.resolved_types import File, ResolvedArm, ResolvedProfile

# The spellings by which an engine is told to speculate: vLLM (also before 0.8.3), llama.cpp (also before its
# --spec-* names), SGLang. A flag that is missing here makes good arms look different; one too many hides a
# difference. `--per-request-spec-decode-metrics` only measures, so it is not one of them.
SPECULATION_FLAG = re.compile(
    r"^(?:--speculative-.+|-sc|--spec-.+|--num-speculative-tokens|--ngram-.+"
    r"|--model-draft|-md|--draft|--draft-.+|--hf-repo-draft|-hfd|-hfrd|--.+-draft|--.+-draft-.+"
    r"|-cd|-ngld|-devd|-td|-tbd|-ctkd|-ctvd|-lcs|-lcd|--lookup-cache-.+)$"
)
# The keys by which a YAML or JSON configuration does (TensorRT-LLM, vLLM --config).
SPECULATION_KEYS = frozenset({"speculative_config", "speculative-config", "speculative_model"})
FLAG = re.compile(r"^--?[A-Za-z]")

DIFFER = "the arms differ in more than speculation"
# What of a result must be equal in both arms, as the benchmark client records it.
SAME_IN_BOTH = (
    "key",
    "backend",
    "model_id",
    "request_rate",
    "max_concurrency",
    "rounds",
    "num_prompts",
    "suites",
)
# What of the client's settings may not differ; the first round's number and the order of the arms may.
SETTINGS = ("temperatures", "seed", "ignore_eos", "timeout_s", "warmups", "kinds")
ENGINE_IDENTITY = ("id", "version", "version_answered", "runtime")
# The leaves that name a machine. The rest of what is read of it (clocks, load, temperature) is its state:
# it moves, and is shown instead.
MACHINE_IDENTITY = frozenset(
    {
        "host",
        "kernel",
        "model",
        "cores",
        "cores_usable",
        "total_bytes",
        "name",
        "uuid",
        "driver_version",
        "memory_total_bytes",
    }
)
STATE = frozenset({"after", "groups", "gpu_processes"})


def is_speculation(flag: str, names: Mapping[str, int] | None = None) -> bool:
    """Tell whether a flag sets speculation: one of ``names``, or without them one that is known to."""
    return flag in names if names is not None else bool(SPECULATION_FLAG.match(flag.replace("_", "-")))


def strip_speculation_argv(tokens: Sequence[str], names: Mapping[str, int] | None = None) -> list[str]:
    """Return an argument list without its speculation flags and their values.

    ``names`` says how many values each such flag has; without it a flag has one, if a value follows.
    """
    kept: list[str] = []
    values = 0
    for token in tokens:
        if FLAG.match(token):
            name, _, attached = token.partition("=")
            speculation = is_speculation(name, names)
            values = 0 if attached or not speculation else names[name] if names is not None else 1
            if not speculation:
                kept.append(token)
        elif values and not token.startswith("$"):
            values -= 1
        else:
            values = 0
            kept.append(token)
    return kept


def _strip_speculation_data(data: Any, names: Mapping[str, int] | None) -> Any:
    """Return parsed YAML without speculation keys, argument lists in it without speculation flags."""
    if isinstance(data, Mapping):
        return {
            str(key): _strip_speculation_data(value, names)
            for key, value in data.items()
            if str(key) not in SPECULATION_KEYS
        }
    if isinstance(data, list):
        if all(isinstance(item, str) for item in data):
            return strip_speculation_argv(data, names)
        return [_strip_speculation_data(item, names) for item in data]
    return data


def words_of_file(path: str, content: str, names: Mapping[str, int] | None = None) -> list[str]:
    """Return what a rendered file says without speculation, as a list of words or lines to compare.

    YAML and JSON are compared by meaning, shell scripts by their words (so a flag may stand on any line),
    anything else line by line. Comments do not count. ``names`` are the speculation flags, where
    they are known.
    """
    if path.endswith((".yml", ".yaml", ".json")):
        try:
            data = _strip_speculation_data(yaml.safe_load(content), names)
        except yaml.YAMLError:
            return content.splitlines()
        return json.dumps(data, indent=1, sort_keys=True, default=str).splitlines()
    lines = [line for line in content.splitlines() if not line.lstrip().startswith("#")]
    if path.endswith(".sh"):
        try:
            return strip_speculation_argv(shlex.split("\n".join(lines).replace("\\\n", " ")), names)
        except ValueError:  # an open quote: compare the lines as they stand
            return lines
    return lines


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the differing stretches of two lists, each with the word before it, which names the value."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            lead = [before[i1 - 1]] if i1 and FLAG.match(before[i1 - 1]) else []
            yield (
                " ".join([*(lead if i2 > i1 else []), *before[i1:i2]]) or "nothing",
                " ".join([*(lead if j2 > j1 else []), *after[j1:j2]]) or "nothing",
            )


def _speculation_names(arms: Mapping[str, ResolvedArm]) -> dict[str, int] | None:
    """Return the flags that the resolved profile itself calls speculation, with how many values each has.

    None where it does not say.
    """
    lists = [arm["speculation_flags"] for arm in arms.values() if "speculation_flags" in arm]
    return {str(words[0]): len(words) - 1 for flags in lists for words in flags} if lists else None


def _environment(arm: ResolvedArm) -> dict[str, str]:
    # An earlier version called it so.
    older: dict[str, str] = dict(arm).get("env") or {}  # type: ignore[assignment]
    return arm.get("environment") or older


def file_differences(resolved: ResolvedProfile) -> list[str]:
    """Return what the rendered files of the two arms differ in besides speculation, a sentence each."""
    arms = resolved.get("arms") or {}
    names = _speculation_names(arms)
    files = {arm: _by_part(built.get("files") or []) for arm, built in arms.items()}
    one, two = files.get("baseline") or {}, files.get("speculative") or {}
    if not one or not two:
        return ["the rendered files of both arms are needed to compare them, and the profile has none"]
    found: list[str] = []
    for path in sorted(one.keys() | two.keys()):
        if path not in one or path not in two:
            only = "baseline" if path in one else "speculative"
            found.append(f"{DIFFER}: only {only} has the file {path}")
            continue
        if one[path].get("mode") != two[path].get("mode"):
            found.append(
                f"{DIFFER}: the mode of {path} is {one[path].get('mode')} "
                f"in baseline and {two[path].get('mode')} in speculative"
            )
        texts = [words_of_file(path, str(side[path].get("content", "")), names) for side in (one, two)]
        found += [
            f"{DIFFER}: {path} has {before!r} in baseline and {after!r} in speculative"
            for before, after in _changes(*texts)
        ]
    env_one, env_two = (_environment(arms[arm]) for arm in ("baseline", "speculative"))
    found += [
        f"{DIFFER}: the environment variable {name} is "
        f"{env_one.get(name, 'not set')!r} in baseline and {env_two.get(name, 'not set')!r} in speculative"
        for name in sorted(env_one.keys() | env_two.keys())
        if env_one.get(name) != env_two.get(name)
    ]
    return found


def _by_part(files: Sequence[File]) -> dict[str, File]:
    """Return files by what they are; one that has another name in each arm goes by its part, in all of them."""
    parts = {str(file["path"]): str(file["part"]) for file in files if "part" in file}
    found: dict[str, File] = {}
    for file in files:
        content = str(file.get("content", ""))
        for path, part in parts.items():
            content = content.replace(path, part)
        name = str(file["path"])
        suffix = f".{name.rpartition('.')[2]}"
        found[parts[name] + suffix if name in parts else name] = {**file, "content": content}
    return found


def machine_identity(machine: object, path: str = "") -> dict[str, object]:
    """Return the leaves that say which machine it was when its arm began, by path, without its state."""
    found: dict[str, object] = {}
    if isinstance(machine, Mapping):
        for key, value in machine.items():
            if str(key) in STATE:
                continue
            where = f"{path}.{key}" if path else "" if key == "before" else str(key)
            if isinstance(value, Mapping | list):
                found |= machine_identity(value, where)
            elif str(key) in MACHINE_IDENTITY:
                found[where] = value
    elif isinstance(machine, list):
        for position, item in enumerate(machine):
            found |= machine_identity(item, f"{path}[{position}]")
    return found


def _unequal(what: str, one: Mapping[str, object], two: Mapping[str, object], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if one.get(name) != two.get(name):
            yield (f"{DIFFER}: {what}{name} is {one.get(name)!r} in baseline and {two.get(name)!r} in speculative")


def _sampling(result: ArmResult) -> dict[tuple[Any, Any], tuple[Any, ...]]:
    return {
        (r.get("group"), r.get("prompt_id")): (r.get("suite"), r.get("kind"), r.get("temperature"))
        for r in result.get("requests") or []
    }


def result_differences(baseline: ArmResult, speculative: ArmResult) -> list[str]:
    """Return what the two results were measured differently in, a sentence each."""
    found = list(_unequal("", baseline, speculative, SAME_IN_BOTH))
    engines = baseline.get("engine") or {}, speculative.get("engine") or {}
    found += _unequal("engine ", *engines, ENGINE_IDENTITY)
    settings = baseline.get("settings") or {}, speculative.get("settings") or {}
    found += _unequal("setting ", *settings, SETTINGS)
    one, two = (machine_identity(result.get("machine")) for result in (baseline, speculative))
    found += _unequal("machine ", one, two, sorted(one.keys() | two.keys()))
    sampled, resampled = _sampling(baseline), _sampling(speculative)
    both = sampled.keys() & resampled.keys()
    changed = sorted(str(key[1]) for key in both if sampled[key] != resampled[key])
    if changed:
        found.append(f"{DIFFER}: suite, kind or temperature of {_some(changed, 'prompt')} is not the same in both")
    tokens: list[dict[Any, Any]] = [
        {
            (r.get("round"), r.get("group"), r.get("prompt_id")): r.get("input_tokens")
            for r in result.get("requests") or []
            if r.get("status") == "ok"
        }
        for result in (baseline, speculative)
    ]
    moved = sorted({str(key[2]) for key in tokens[0].keys() & tokens[1].keys() if tokens[0][key] != tokens[1][key]})
    if moved:
        found.append(
            f"{DIFFER}: the servers counted different input tokens for "
            f"{_some(moved, 'prompt')}, so they did not see the same text"
        )
    return found


def _some(names: Sequence[str], noun: str, most: int = 3) -> str:
    """Return a count with its first names: ``4 prompts (a, b, c, …)``."""
    shown = ", ".join(names[:most]) + (", …" if len(names) > most else "")
    return f"{count(len(names), noun)} ({shown})"


def stale(result: ArmResult, resolved: ResolvedProfile, arm: str) -> list[str]:
    """Return where a result does not belong to this arm of this resolved profile, a sentence each."""
    found: list[str] = []
    # `drafthouse bench` measures a server that it knows nothing of: whoever makes the report says which arm it was.
    if result.get("arm") not in (arm, "single"):
        found.append(f"the result given as {arm} is from the arm {result.get('arm')!r}")
    for name, own, asked_for in (
        ("profile", result.get("profile"), resolved.get("profile")),
        ("key", result.get("key"), resolved.get("key")),
    ):
        if own and asked_for and own != asked_for:
            found.append(f"{arm} was measured for {name} {own!r}, not for {asked_for!r}")
    experiment = resolved.get("experiment") or {}
    for name, wanted, has in (
        ("concurrency", experiment.get("concurrency"), result.get("max_concurrency")),
        ("rounds", experiment.get("rounds"), result.get("rounds")),
    ):
        # More rounds than to begin with are what the evidence asked for.
        enough = name == "rounds" and isinstance(has, int) and wanted is not None and has >= wanted
        if wanted is not None and has != wanted and not enough:
            found.append(f"{arm} was measured with {name} {has!r}, but the profile asks for {wanted!r}")
    missing = sorted(set(experiment.get("suites") or []) - {r.get("suite") for r in result.get("requests") or []})
    if missing:
        found.append(f"{arm} has no request of {listing([f'suite {name}' for name in missing])}")
    return found
