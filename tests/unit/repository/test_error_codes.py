"""Every problem has a code, written out where it is made; `core/error_codes.py` explains each, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
import yaml

from drafthouse.core.error_codes import MEANINGS
from drafthouse.core.errors import Problem
from drafthouse.profiles.workspace import ROOT

PYTHON = ("src/drafthouse", "collections/ansible_collections/drafthouse/core/plugins", "scripts")
YAML = ("roles", "playbooks")
#: The functions that take a code for another's problem.
PASSES_ON = ("def add(self, code: str, path: str", "def one_problem(code: str, ")


def made(tree: ast.AST) -> Iterator[tuple[int, ast.expr | None]]:
    """Yield line and code of each problem: `Problem(...)`, `one_problem(...)`, `Findings.add(...)`, or plain data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            named = [word.value for word in node.keywords if word.arg == "code"]
            first = named[0] if named else node.args[0] if node.args else None
            is_problem = isinstance(node.func, ast.Name) and node.func.id in ("Problem", "one_problem")
            # What a check refuses with stands in the list of checks.
            is_check = isinstance(node.func, ast.Name) and node.func.id == "Check" and bool(named)
            # A set's add takes one argument.
            adds = isinstance(node.func, ast.Attribute) and node.func.attr == "add" and len(node.args) >= 4
            if is_problem or is_check or adds:
                yield node.lineno, first
        elif isinstance(node, ast.Dict):
            keys = {
                key.value: value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
            }
            if {"found", "needed", "do"} <= keys.keys():
                yield node.lineno, keys.get("code")


def written_out(code: ast.expr | None) -> list[str] | None:
    """The codes that an expression may be; none for another problem's code, None where they can't be read."""
    match code:
        case ast.Constant(value=str(word)):
            return [word]
        case ast.IfExp(body=one, orelse=other):
            both = written_out(one), written_out(other)
            return [*both[0], *both[1]] if both[0] and both[1] else None
        case ast.Attribute(attr="code"):
            return []
    return None


def codes_of(source: str) -> tuple[set[str], list[int]]:
    """The codes of a file's problems, and the lines of those whose code is not written out."""
    codes, faults = set(), []
    for line, code in made(ast.parse(source)):
        words = written_out(code)
        if words is None:
            faults.append(line)
        codes.update(words or [])
    return codes, faults


def texts(data: object) -> Iterator[str]:
    """Yield every text of a YAML document."""
    if isinstance(data, dict):
        for value in data.values():
            yield from texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from texts(value)
    elif isinstance(data, str):
        yield data


def codes_of_yaml(text: str) -> tuple[set[str], list[str]]:
    """The codes of a file's problems, and the problems that do not end with one."""
    told = [
        one.strip().splitlines() for one in texts(yaml.safe_load(text)) if re.search("^needed: ", one, re.MULTILINE)
    ]
    ends = [re.fullmatch(r"code: (\S+)", lines[-1]) for lines in told]
    codes = {found[1] for found in ends if found}
    return codes, [lines[0] for lines, found in zip(told, ends, strict=True) if not found]


def test_every_code_is_written_out_and_explained() -> None:
    used, faults = set(), []
    for path in sorted(path for folder in PYTHON for path in (ROOT / folder).rglob("*.py")):
        if "module_utils" in path.parts:
            continue  # a link to the library
        source = path.read_text("utf-8")
        codes, lines = codes_of(source)
        if any(one in source for one in PASSES_ON):
            assert len(lines) == 1  # and that one is given with the call
            lines = []
        used |= codes
        faults += [f"{path.relative_to(ROOT)}:{line}" for line in lines]
    for path in [ROOT / "site.yml", *sorted(path for folder in YAML for path in (ROOT / folder).rglob("*.yml"))]:
        codes, untold = codes_of_yaml(path.read_text("utf-8"))
        used |= codes
        faults += [f"{path.relative_to(ROOT)}: {first}" for first in untold]
    assert faults == []
    assert sorted(used - MEANINGS.keys()) == [], "explain them in core/error_codes.py"
    assert sorted(MEANINGS.keys() - used) == [], "no problem has these any more: remove them"


@pytest.mark.parametrize(
    "source",
    [
        'Problem(code, "found", "needed", "do")',
        'Problem(f"no-such-{what}", "found", "needed", "do")',
        'Problem("a" if full else kind, "found", "needed", "do")',
        "Problem(*words)",
        "Problem()",
        'findings.add(path, "a.b", "found", "needed", "do")',
        'problem = {"found": "this", "needed": "that", "do": "something"}',
    ],
)
def test_a_code_that_is_not_written_out_is_found(source: str) -> None:
    assert codes_of(source) == (set(), [1])


def test_what_is_written_out_is_read() -> None:
    source = """
Problem("disk-full" if full else "file-unwritable", "found", "needed", "do")
Problem(found="x", code="port-taken", needed="y", do="z")
self.findings.add("unknown-key", "a.b", "found", *advice)
Problem(first.code, "found", "needed", "do")
"""
    assert codes_of(source) == ({"disk-full", "file-unwritable", "port-taken", "unknown-key"}, [])


def test_a_problem_in_yaml_without_a_code_is_found() -> None:
    text = (ROOT / "playbooks/tasks/monitoring.yml").read_text("utf-8")
    assert codes_of_yaml(text)[1] == []
    _, (first,) = codes_of_yaml(text.replace("code: root-required", ""))
    assert first.startswith("found: ")


def test_codes_are_words_and_meanings_are_sentences() -> None:
    assert list(MEANINGS) == sorted(MEANINGS)
    for code, meaning in MEANINGS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code) and len(code) <= 32, code
        assert meaning[0].isupper() or meaning.startswith(("iptables", "apt ", "uv ", "vast.ai", "supervisord")), (
            meaning
        )
        assert meaning.endswith(".") and len(meaning) <= 100, meaning


def test_the_code_is_the_last_line_and_travels() -> None:
    problem = Problem("port-taken", "port 8000 is taken", "a free port", "choose another one", "drafthouse_port")
    assert problem.lines()[0] == "where: drafthouse_port"
    assert problem.lines()[-1] == "code: port-taken"
    assert Problem.of(problem.as_dict()) == problem


def test_what_an_older_version_kept_has_no_code_and_is_read() -> None:
    kept = Problem.of({"found": "this", "needed": "that", "do": "something"})
    assert kept.lines() == ["found: this", "needed: that", "do: something"]
