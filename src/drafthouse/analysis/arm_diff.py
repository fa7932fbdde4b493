"""Whether two arms may be compared: what differs between them besides speculation.

PyYAML, because engine configurations and container definitions are YAML and must be compared by meaning.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from ..bench.result_types import ArmResult
from ..core.format import count, first_names, listing
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
ENGINE_IDENTITY = ("id", "version", "version_answered", "max_model_len_answered", "runtime")
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
    """Whether a flag sets speculation: one of ``names``, or without them one that is known to."""
    return flag in names if names is not None else bool(SPECULATION_FLAG.match(flag.replace("_", "-")))


def strip_speculation_argv(tokens: Sequence[str], names: Mapping[str, int] | None = None) -> list[str]:
    """An argument list without its speculation flags and their values.

    ``names`` says how many values each such flag has; without it a flag has one, if a value follows.
    """
    kept: list[str] = []
    values = 0
    for token in tokens:
        if FLAG.match(token):
            name, _, attached = token.partition("=")
            speculation = is_speculation(name, names)
            values = 0
            if not speculation:
                kept.append(token)
            elif not attached:
                values = 1 if names is None else names[name]
        elif values and not token.startswith("$"):
            values -= 1
        else:
            values = 0
            kept.append(token)
    return kept


def _strip_speculation_data(data: Any, names: Mapping[str, int] | None) -> Any:
    """Parsed YAML without speculation keys, argument lists in it without speculation flags."""
    if isinstance(data, Mapping):
        found = {}
        for key, value in data.items():
            if str(key) not in SPECULATION_KEYS:
                found[str(key)] = _strip_speculation_data(value, names)
        return found
    if not isinstance(data, list):
        return data
    if all(isinstance(item, str) for item in data):
        return strip_speculation_argv(data, names)
    return [_strip_speculation_data(item, names) for item in data]


def words_of_file(path: str, content: str, names: Mapping[str, int] | None = None) -> list[str]:
    """What a rendered file says without speculation, as a list of words or lines to compare.

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
    """The differing stretches of two lists, each with the word before it, which names the value."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            start = 1 if i1 and FLAG.match(before[i1 - 1]) else 0
            one = before[i1 - start : i2] if i2 > i1 else []
            two = after[j1 - start : j2] if j2 > j1 else []
            yield " ".join(one) or "nothing", " ".join(two) or "nothing"


def _speculation_names(arms: Mapping[str, ResolvedArm]) -> dict[str, int] | None:
    """The flags that the resolved profile itself calls speculation, with how many values each has.

    None where it does not say.
    """
    found: dict[str, int] = {}
    told = False
    for arm in arms.values():
        if "speculation_flags" in arm:
            told = True
            for flag, *values in arm["speculation_flags"]:
                found[str(flag)] = len(values)
    return found if told else None


def _environment(arm: ResolvedArm) -> dict[str, str]:
    # An earlier version called it so.
    older: dict[str, str] = dict(arm).get("env") or {}  # type: ignore[assignment]
    return arm.get("environment") or older


def _in_each(what: str, one: object, two: object) -> str:
    """The sentence about what has two values."""
    return f"{DIFFER}: {what} is {one} in baseline and {two} in speculative"


def file_differences(resolved: ResolvedProfile) -> list[str]:
    """What the rendered files of the two arms differ in besides speculation, a sentence each."""
    arms = resolved.get("arms") or {}
    files = {arm: _by_part(built.get("files") or []) for arm, built in arms.items()}
    one, two = files.get("baseline"), files.get("speculative")
    if not one or not two:
        return ["the rendered files of both arms are needed to compare them, and the profile has none"]
    names = _speculation_names(arms)
    found: list[str] = []
    for path in sorted(one.keys() | two.keys()):
        if path not in one or path not in two:
            only = "baseline" if path in one else "speculative"
            found.append(f"{DIFFER}: only {only} has the file {path}")
            continue
        if one[path].get("mode") != two[path].get("mode"):
            found.append(_in_each(f"the mode of {path}", one[path].get("mode"), two[path].get("mode")))
        before = words_of_file(path, str(one[path].get("content", "")), names)
        after = words_of_file(path, str(two[path].get("content", "")), names)
        for old, new in _changes(before, after):
            found.append(f"{DIFFER}: {path} has {old!r} in baseline and {new!r} in speculative")
    ours, theirs = _environment(arms["baseline"]), _environment(arms["speculative"])
    return found + _unequal("the environment variable ", ours, theirs, sorted({**ours, **theirs}), "not set")


def _by_part(files: Sequence[File]) -> dict[str, File]:
    """Files by what they are; one that has another name in each arm goes by its part, in all of them."""
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
    """The leaves that say which machine it was when its arm began, by path, without its state."""
    found: dict[str, object] = {}
    if isinstance(machine, Mapping):
        for key, value in machine.items():
            if str(key) in STATE:
                continue
            where = f"{path}.{key}".removeprefix(".")
            if where == "before":
                where = ""
            if isinstance(value, Mapping | list):
                found |= machine_identity(value, where)
            elif str(key) in MACHINE_IDENTITY:
                found[where] = value
    elif isinstance(machine, list):
        for position, item in enumerate(machine):
            found |= machine_identity(item, f"{path}[{position}]")
    return found


def _unequal(
    what: str, one: Mapping[str, object], two: Mapping[str, object], names: Iterable[str], missing: object = None
) -> list[str]:
    """A sentence for each of ``names`` that has two values."""
    found = []
    for name in names:
        values = one.get(name, missing), two.get(name, missing)
        if values[0] != values[1]:
            found.append(_in_each(f"{what}{name}", repr(values[0]), repr(values[1])))
    return found


def result_differences(baseline: ArmResult, speculative: ArmResult) -> list[str]:
    """What the two results were measured differently in, a sentence each."""
    engines = baseline.get("engine") or {}, speculative.get("engine") or {}
    own, other = engines[0].get("settings_answered") or {}, engines[1].get("settings_answered") or {}
    one, two = machine_identity(baseline.get("machine")), machine_identity(speculative.get("machine"))
    found = [
        *_unequal("", baseline, speculative, SAME_IN_BOTH),
        *_unequal("engine ", *engines, ENGINE_IDENTITY),
        # What only one server names is no difference: the other one says nothing of it.
        *_unequal("the servers' own answer of ", own, other, [name for name in own if name in other]),
        *_unequal("setting ", baseline.get("settings") or {}, speculative.get("settings") or {}, SETTINGS),
        *_unequal("machine ", one, two, sorted(one.keys() | two.keys())),
    ]
    asked: list[dict[Any, Any]] = [{}, {}]
    tokens: list[dict[Any, Any]] = [{}, {}]
    for side, result in enumerate((baseline, speculative)):
        for r in result.get("requests") or []:
            group, prompt = r.get("group"), r.get("prompt_id")
            asked[side][group, prompt] = r.get("suite"), r.get("kind"), r.get("temperature")
            # Other people's files may not count them.
            if r.get("status") == "ok" and r.get("input_tokens") is not None:
                tokens[side][r.get("round"), group, prompt] = r["input_tokens"]
    if changed := _differing_prompts(*asked):
        found.append(f"{DIFFER}: suite, kind or temperature of {_some(changed)} is not the same in both")
    if moved := _differing_prompts(*tokens):
        same = _some(list(dict.fromkeys(moved)))
        found.append(
            f"{DIFFER}: the servers counted different input tokens for {same}, so they did not see the same text"
        )
    return found


def _differing_prompts(one: Mapping[Any, Any], two: Mapping[Any, Any]) -> list[str]:
    """The names, the last part of a key, under which both have another value."""
    return sorted(str(key[-1]) for key in one.keys() & two.keys() if one[key] != two[key])


def _some(prompts: Sequence[str]) -> str:
    """A count of prompts with its first names: ``4 prompts (a, b, c, …)``."""
    return f"{count(len(prompts), 'prompt')} ({first_names(prompts)})"


def stale(result: ArmResult, resolved: ResolvedProfile, arm: str) -> list[str]:
    """Where a result does not belong to this arm of this resolved profile, a sentence each."""
    found: list[str] = []
    # `drafthouse bench` measures a server that it knows nothing of: whoever makes the report says which arm it was.
    if result.get("arm") not in (arm, "single"):
        found.append(f"the result given as {arm} is from the arm {result.get('arm')!r}")
    profiles, keys = (result.get("profile"), resolved.get("profile")), (result.get("key"), resolved.get("key"))
    for name, (own, asked_for) in (("profile", profiles), ("key", keys)):
        if own and asked_for and own != asked_for:
            found.append(f"{arm} was measured for {name} {own!r}, not for {asked_for!r}")
    experiment = resolved.get("experiment") or {}
    concurrency, most = experiment.get("concurrency"), result.get("max_concurrency")
    if concurrency is not None and most != concurrency:
        found.append(f"{arm} was measured with concurrency {most!r}, but the profile asks for {concurrency!r}")
    wanted, rounds = experiment.get("rounds"), result.get("rounds")
    # More rounds than to begin with are what the evidence asked for.
    if wanted is not None and not (isinstance(rounds, int) and rounds >= wanted):
        found.append(f"{arm} was measured with rounds {rounds!r}, but the profile asks for {wanted!r}")
    missing = sorted(set(experiment.get("suites") or []) - {r.get("suite") for r in result.get("requests") or []})
    if missing:
        found.append(f"{arm} has no request of {listing([f'suite {name}' for name in missing])}")
    return found
