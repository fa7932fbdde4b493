"""Commands that others wrote, from the documentation of engines and of what runs on them; their sources stand beside.

`corpus/expected.yml` says what must come of each, and was written by hand before any was translated.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.engines.read_flags import long_name
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT
from drafthouse.translate.flags import load_flags
from drafthouse.translate.text import command_text, profile_text
from drafthouse.translate.translator import Translation, translate

HOUSE, FLAGS = load_catalog(ROOT), load_flags(ROOT)
FOLDER = Path(__file__).parent / "corpus"
SOURCES: dict[str, Any] = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}
TEXTS: dict[str, str] = {name: row["text"] for source in SOURCES.values() for name, row in source["commands"].items()}
LLAMA = set(SOURCES["llamacpp"]["commands"])
EXPECTED: Any = yaml.safe_load((FOLDER / "expected.yml").read_text("utf-8"))
_SERVES = re.compile(r"vllm serve|llama-server|llama-cli|vllm\.entrypoints\.openai\.api_server")
#: Settings whose values are looked for by an eye of the test's own.
_VALUES = (
    "tensor-parallel-size",
    "max-model-len",
    "max-num-seqs",
    "gpu-memory-utilization",
    "kv-cache-dtype",
    "ctx-size",
)


@cache
def translated(name: str) -> list[Translation] | str:
    """The translations of a snippet, or the code with which it is refused."""
    try:
        return translate(TEXTS[name], HOUSE, FLAGS, lambda _: None)[0]
    except DrafthouseError as error:
        return error.problems[0].code


def faults(name: str) -> list[str]:
    """What is wrong with what came of a snippet."""
    found, wanted = translated(name), EXPECTED["commands"][name]
    if isinstance(wanted, str) or isinstance(found, str):
        return [] if found == wanted else [f"{wanted} wanted, {found if isinstance(found, str) else 'translated'}"]
    if len(found) != len(wanted):
        return [f"{len(wanted)} commands wanted, {len(found)} found"]
    wrong = []
    for one, (target, *spec) in zip(found, wanted, strict=True):
        engine = EXPECTED["engines"].get(name, "llamacpp" if name in LLAMA else "vllm")
        said = [one.engine, target_of(one), *speculation_of(one)]
        if said != [engine, target, *[*spec, None, None, None][:3]]:
            wrong.append(f"{[engine, target, *spec]} wanted, {said} found")
    return wrong + lost(name, found)


def target_of(one: Translation) -> str:
    words = [word for flag in one.command for word in flag]
    for flag in ("--model", "--hf-repo"):
        if flag in words:
            return words[words.index(flag) + 1]
    return one.command[0][-1]


def speculation_of(one: Translation) -> list[Any]:
    """Method, K and draft as the command of today says them, by a reader of the test's own."""
    words = [word for flag in one.command for word in flag]
    if "--speculative-config" in words:
        spec = json.loads(words[words.index("--speculative-config") + 1])
        method = "mtp" if spec["method"].endswith("_mtp") else spec["method"]
        return [method, spec["num_speculative_tokens"], spec.get("model")]
    if "--spec-type" in words:
        said = {flag: words[words.index(flag) + 1] for flag in words if flag.startswith("--spec-")}
        tokens = said.get("--spec-draft-n-max")
        return [said["--spec-type"], int(tokens) if tokens else None, said.get("--spec-draft-model")]
    return [None, None, None]


def lost(name: str, found: list[Translation]) -> list[str]:
    """The flags of a snippet of which nothing is said, and the values that changed."""
    table = FLAGS.of(found[0].engine, HOUSE.flags[found[0].engine].get(found[0].version))
    said = "\n".join(
        part for one in found for part in (command_text(one), profile_text(one), *(c.what for c in one.changes))
    )
    told = set(re.findall(r"(?<![\w.-])--?([A-Za-z][\w-]*)", said))
    wrong = []
    for region in regions(TEXTS[name]):
        for spelled in re.findall(r"(?<=\s)(--?[A-Za-z][\w-]*)", re.sub(r"'[^']*'|\"[^\"\n]*\"", "''", region)):
            full = long_name(spelled, table).lstrip("-")
            if full not in told and spelled.lstrip("-") not in told and full.removeprefix("no-") not in told:
                wrong.append(f"{spelled}: not a word of it")
        for setting in _VALUES:
            pattern = rf"--(?:{setting}|{setting.replace('-', '_')})[ =]+(\S+)"
            for value in re.findall(pattern, region):
                if not re.search(rf"--{setting}(?: |=){re.escape(value)}(?!\w)", said):
                    wrong.append(f"--{setting} {value}: another value")
    return wrong


def regions(text: str) -> list[str]:
    """The commands in a snippet, from program to end: a newline without a backslash, outside of quotes."""
    found = []
    for match in _SERVES.finditer(text):
        if "\n" in text[: match.start()] and re.search(r":\s*[|>]", text[: match.start()]):
            found.append(text[match.start() :])  # a script inside of YAML, folded or not
            continue
        place = match.start()
        while True:
            end = text.find("\n", place)
            line = text[match.start() : end if end >= 0 else len(text)]
            if end < 0 or not (line.rstrip().endswith("\\") or line.count("'") % 2):
                break
            place = end + 1
        found.append(line)
    return found


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_is_named_with_its_licence(source: str) -> None:
    assert SOURCES[source]["licence"] in ("Apache-2.0", "MIT")
    assert SOURCES[source]["source"]
    assert all(row["file"] and row["line"] and row["text"] for row in SOURCES[source]["commands"].values())


def test_there_are_150_commands_each_with_an_expectation() -> None:
    assert set(TEXTS) == set(EXPECTED["commands"])
    assert len(TEXTS) >= 150


def test_nearly_all_are_faultless() -> None:
    wrong = {name: found for name in TEXTS if (found := faults(name))}
    assert len(wrong) <= 0.03 * len(TEXTS), "\n".join(f"{name}: {found}" for name, found in wrong.items())
