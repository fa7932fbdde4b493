"""Finds differences between the two arms (baseline, speculative) besides speculation; any makes them incomparable.

It needs PyYAML, because engine configurations and container definitions are YAML and are compared by content.
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

# Speculation flags of vLLM (also before 0.8.3), llama.cpp (also before its --spec-* names) and SGLang. A flag that is
# missing here makes comparable arms look different; a flag too many hides a difference.
# `--per-request-spec-decode-metrics` only measures, so it is not a speculation flag.
SPECULATION_FLAG = re.compile(
    r"^(?:--speculative-.+|-sc|--spec-.+|--num-speculative-tokens|--ngram-.+"
    r"|--model-draft|-md|--draft|--draft-.+|--hf-repo-draft|-hfd|-hfrd|--.+-draft|--.+-draft-.+"
    r"|-cd|-ngld|-devd|-td|-tbd|-ctkd|-ctvd|-lcs|-lcd|--lookup-cache-.+)$"
)
# Speculation keys of YAML and JSON configurations (TensorRT-LLM, vLLM --config).
SPECULATION_KEYS = frozenset({"speculative_config", "speculative-config", "speculative_model"})
#: The beginning of a flag on a command line; "-1" is a value.
FLAG = re.compile(r"^--?[A-Za-z]")

#: The beginning of a sentence about a difference.
DIFFER = "the arms differ in more than speculation"
# Keys of a result that must be equal in both arms.
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
# Client settings that must be equal; the number of the first round and the order of the arms may differ.
SETTINGS = ("temperatures", "seed", "ignore_eos", "timeout_s", "warmups", "kinds")
# Keys of a result's `engine` that must be equal; `..._answered` is what the server itself reported.
ENGINE_IDENTITY = ("id", "version", "version_answered", "max_model_len_answered", "runtime")
# Keys that identify a machine. The other readings (clocks, load, temperature) are its state: they change during a
# run, so reports show them and no comparison uses them.
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
# Keys that are skipped with all that they contain: readings after the arm began, and the programs on the GPUs.
MACHINE_STATE = frozenset({"after", "groups", "gpu_processes"})


def is_speculation(flag: str, value_counts: Mapping[str, int] | None = None) -> bool:
    """True if a flag sets speculation: it is a key of ``value_counts``, or without them matches `SPECULATION_FLAG`."""
    return flag in value_counts if value_counts is not None else bool(SPECULATION_FLAG.match(flag.replace("_", "-")))


def strip_speculation_argv(tokens: Sequence[str], value_counts: Mapping[str, int] | None = None) -> list[str]:
    """An argument list without its speculation flags and their values.

    ``value_counts`` has the number of values of each such flag; without it (None) the name decides (`is_speculation`),
    and a flag has at most one value. A value that is attached (``--flag=value``) goes with its flag.
    """
    kept_tokens: list[str] = []
    values_left = 0  # tokens to drop as values of the last speculation flag
    for token in tokens:
        if FLAG.match(token):
            name, _, attached = token.partition("=")
            speculation = is_speculation(name, value_counts)
            values_left = 0
            if not speculation:
                kept_tokens.append(token)
            elif not attached:
                values_left = 1 if value_counts is None else value_counts[name]
        elif values_left and not token.startswith("$"):
            values_left -= 1  # `"$@"` at the end of a start script is no flag's value
        else:
            values_left = 0
            kept_tokens.append(token)
    return kept_tokens


def _strip_speculation_yaml(data: Any, value_counts: Mapping[str, int] | None) -> Any:
    """Parsed YAML without speculation keys, and without speculation flags in its argument lists."""
    if isinstance(data, Mapping):
        kept_data = {}
        for key, value in data.items():
            if str(key) not in SPECULATION_KEYS:
                kept_data[str(key)] = _strip_speculation_yaml(value, value_counts)
        return kept_data
    if not isinstance(data, list):
        return data
    if all(isinstance(item, str) for item in data):
        return strip_speculation_argv(data, value_counts)
    return [_strip_speculation_yaml(item, value_counts) for item in data]


def comparable_lines(path: str, content: str, value_counts: Mapping[str, int] | None = None) -> list[str]:
    """The content of a rendered file without speculation, as lines or words to compare.

    - YAML and JSON: by content. If the text cannot be parsed: its lines with comments and speculation.
    - Shell scripts: by their words, because a flag may stand on any line. If a quote is open: their lines.
    - Other files: their lines.

    Comments are left out. ``value_counts`` is the number of values by speculation flag, None if unknown.
    """
    if path.endswith((".yml", ".yaml", ".json")):
        try:
            data = _strip_speculation_yaml(yaml.safe_load(content), value_counts)
        except yaml.YAMLError:
            return content.splitlines()
        return json.dumps(data, indent=1, sort_keys=True, default=str).splitlines()
    lines = [line for line in content.splitlines() if not line.lstrip().startswith("#")]
    if path.endswith(".sh"):
        try:
            return strip_speculation_argv(shlex.split("\n".join(lines).replace("\\\n", " ")), value_counts)
        except ValueError:  # an open quote: compare the lines as they stand
            return lines
    return lines


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The differing runs of two lists, each as two texts: (in ``before``, in ``after``); "nothing" where it is missing.

    If a flag stands in front of a run, it is part of the text, because it says what the value is.
    """
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for operation, i1, i2, j1, j2 in matcher.get_opcodes():
        if operation != "equal":
            with_flag = 1 if i1 and FLAG.match(before[i1 - 1]) else 0
            removed = before[i1 - with_flag : i2] if i2 > i1 else []
            added = after[j1 - with_flag : j2] if j2 > j1 else []
            yield " ".join(removed) or "nothing", " ".join(added) or "nothing"


def _declared_speculation_flags(arms: Mapping[str, ResolvedArm]) -> dict[str, int] | None:
    """The declared speculation flags, with the number of values of each; None if no arm declares its flags."""
    value_counts: dict[str, int] = {}
    declared = False
    for arm in arms.values():
        if "speculation_flags" in arm:
            declared = True
            for flag, *values in arm["speculation_flags"]:
                value_counts[str(flag)] = len(values)
    return value_counts if declared else None


def _environment_of(arm: ResolvedArm) -> dict[str, str]:
    """The environment variables of an arm's server."""
    # An earlier version used the key `env`.
    old_environment: dict[str, str] = dict(arm).get("env") or {}  # type: ignore[assignment]
    return arm.get("environment") or old_environment


def _two_values_text(name: str, baseline: object, speculative: object) -> str:
    """The sentence that ``name`` has two values."""
    return f"{DIFFER}: {name} is {baseline} in baseline and {speculative} in speculative"


def file_differences(resolved: ResolvedProfile) -> list[str]:
    """The differences between the arms' rendered files and environments besides speculation, a sentence each."""
    arms = resolved.get("arms") or {}
    files = {arm: _files_by_part(built.get("files") or []) for arm, built in arms.items()}
    base, spec = files.get("baseline"), files.get("speculative")
    if not base or not spec:
        return ["the rendered files of both arms are needed to compare them, and the profile has none"]
    value_counts = _declared_speculation_flags(arms)
    texts: list[str] = []
    for path in sorted(base.keys() | spec.keys()):
        if path not in base or path not in spec:
            owner = "baseline" if path in base else "speculative"
            texts.append(f"{DIFFER}: only {owner} has the file {path}")
            continue
        if base[path].get("mode") != spec[path].get("mode"):
            texts.append(_two_values_text(f"the mode of {path}", base[path].get("mode"), spec[path].get("mode")))
        before = comparable_lines(path, str(base[path].get("content", "")), value_counts)
        after = comparable_lines(path, str(spec[path].get("content", "")), value_counts)
        for removed, added in _changes(before, after):
            texts.append(f"{DIFFER}: {path} has {removed!r} in baseline and {added!r} in speculative")
    env_a = _environment_of(arms["baseline"])
    env_b = _environment_of(arms["speculative"])
    names = sorted(env_a.keys() | env_b.keys())
    return texts + _unequal("the environment variable ", env_a, env_b, names, missing="not set")


def _files_by_part(files: Sequence[File]) -> dict[str, File]:
    """Files by name, to compare them between the arms.

    A file with a ``part`` ("config") has another path in each arm. Its name is the part with the extension of the path,
    and the part replaces the path in the contents of all files. The name of any other file is its path.
    """
    parts = {str(file["path"]): str(file["part"]) for file in files if "part" in file}
    files_by_name: dict[str, File] = {}
    for file in files:
        content = str(file.get("content", ""))
        for path, part in parts.items():
            content = content.replace(path, part)
        name = str(file["path"])
        if name in parts:
            extension = name.rpartition(".")[2]
            name = f"{parts[name]}.{extension}"
        files_by_name[name] = {**file, "content": content}
    return files_by_name


def machine_identity(machine: object, path: str = "") -> dict[str, object]:
    """The values of `MACHINE_IDENTITY` by dotted path ("gpus[0].uuid"), as read when the arm began.

    ``machine`` is a reading of a machine, or in the recursion a part of one at ``path``.
    """
    identity: dict[str, object] = {}
    if isinstance(machine, Mapping):
        for key, value in machine.items():
            if str(key) in MACHINE_STATE:
                continue
            leaf_path = f"{path}.{key}".removeprefix(".")
            if leaf_path == "before":
                leaf_path = ""  # the reading when the arm began; `MACHINE_STATE` skips the later ones
            if isinstance(value, Mapping | list):
                identity |= machine_identity(value, leaf_path)
            elif str(key) in MACHINE_IDENTITY:
                identity[leaf_path] = value
    elif isinstance(machine, list):
        for position, item in enumerate(machine):
            identity |= machine_identity(item, f"{path}[{position}]")
    return identity


def _unequal(
    prefix: str, base: Mapping[str, object], spec: Mapping[str, object], names: Iterable[str], missing: object = None
) -> list[str]:
    """A sentence for each of ``names`` whose values differ; ``prefix`` precedes it, ``missing`` is an absent value."""
    texts = []
    for name in names:
        base_value = base.get(name, missing)
        spec_value = spec.get(name, missing)
        if base_value != spec_value:
            texts.append(_two_values_text(f"{prefix}{name}", repr(base_value), repr(spec_value)))
    return texts


def result_differences(baseline: ArmResult, speculative: ArmResult) -> list[str]:
    """The differences in how the two results were measured, a sentence each."""
    engine_a = baseline.get("engine") or {}
    engine_b = speculative.get("engine") or {}
    server_a = engine_a.get("settings_answered") or {}
    server_b = engine_b.get("settings_answered") or {}
    machine_a = machine_identity(baseline.get("machine"))
    machine_b = machine_identity(speculative.get("machine"))
    texts = [
        *_unequal("", baseline, speculative, SAME_IN_BOTH),
        *_unequal("engine ", engine_a, engine_b, ENGINE_IDENTITY),
        # A setting that only one server reports is no known difference.
        *_unequal("the servers' own answer of ", server_a, server_b, [name for name in server_a if name in server_b]),
        *_unequal("setting ", baseline.get("settings") or {}, speculative.get("settings") or {}, SETTINGS),
        *_unequal("machine ", machine_a, machine_b, sorted(machine_a.keys() | machine_b.keys())),
    ]
    return texts + _request_differences(baseline, speculative)


def _request_differences(baseline: ArmResult, speculative: ArmResult) -> list[str]:
    """The differences between the requests that both arms sent, a sentence for each kind of difference."""
    # One dict per arm: (group, prompt id) -> labels, and (round, group, prompt id) -> input tokens.
    labels: list[dict[Any, Any]] = [{}, {}]
    tokens_in: list[dict[Any, Any]] = [{}, {}]
    for index, result in enumerate((baseline, speculative)):
        for r in result.get("requests") or []:
            group = r.get("group")
            prompt = r.get("prompt_id")
            labels[index][group, prompt] = r.get("suite"), r.get("kind"), r.get("temperature")
            # Imported files may lack token counts.
            if r.get("status") == "ok" and r.get("input_tokens") is not None:
                tokens_in[index][r.get("round"), group, prompt] = r["input_tokens"]
    texts = []
    if changed := _differing_prompts(*labels):
        texts.append(f"{DIFFER}: suite, kind or temperature of {_prompts_text(changed)} is not the same in both")
    if miscounted := _differing_prompts(*tokens_in):
        prompts = _prompts_text(list(dict.fromkeys(miscounted)))  # a prompt may be miscounted in several rounds
        texts.append(
            f"{DIFFER}: the servers counted different input tokens for {prompts}, so they did not see the same text"
        )
    return texts


def _differing_prompts(baseline: Mapping[Any, Any], speculative: Mapping[Any, Any]) -> list[str]:
    """The prompt ids (the last member of a key) whose values differ, where both arms have the key."""
    return sorted(str(key[-1]) for key in baseline.keys() & speculative.keys() if baseline[key] != speculative[key])


def _prompts_text(prompts: Sequence[str]) -> str:
    """A count of prompts with the first names: ``4 prompts (a, b, c, …)``."""
    return f"{count(len(prompts), 'prompt')} ({first_names(prompts)})"


def profile_mismatches(result: ArmResult, resolved: ResolvedProfile, arm: str) -> list[str]:
    """The ways in which a result is not what the profile asks of ``arm``, a sentence each."""
    texts: list[str] = []
    # `drafthouse bench` does not know to which arm a server belongs ("single"): the user assigns the arm in the report.
    if result.get("arm") not in (arm, "single"):
        texts.append(f"the result given as {arm} is from the arm {result.get('arm')!r}")
    identities = (
        ("profile", result.get("profile"), resolved.get("profile")),
        ("key", result.get("key"), resolved.get("key")),
    )
    for name, measured_for, requested in identities:
        if measured_for and requested and measured_for != requested:
            texts.append(f"{arm} was measured for {name} {measured_for!r}, not for {requested!r}")
    experiment = resolved.get("experiment") or {}
    concurrency = experiment.get("concurrency")
    measured_at = result.get("max_concurrency")
    if concurrency is not None and measured_at != concurrency:
        texts.append(f"{arm} was measured with concurrency {measured_at!r}, but the profile asks for {concurrency!r}")
    planned = experiment.get("rounds")
    rounds = result.get("rounds")
    # The experiment may have added rounds until the verdict stood, so more are fine.
    if planned is not None and not (isinstance(rounds, int) and rounds >= planned):
        texts.append(f"{arm} was measured with rounds {rounds!r}, but the profile asks for {planned!r}")
    missing = sorted(set(experiment.get("suites") or []) - {r.get("suite") for r in result.get("requests") or []})
    if missing:
        texts.append(f"{arm} has no request of {listing([f'suite {name}' for name in missing])}")
    return texts
