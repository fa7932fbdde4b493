"""The formats of other tools, told by their content; and files that are none of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import FEW, DrafthouseError, Problem
from drafthouse.prompts.formats import FORMATS
from drafthouse.prompts.loader import load_suite
from drafthouse.prompts.suite_types import Suite
from drafthouse.prompts.suites import expand, pick

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def conversation(*turns: str, first: str = "human") -> dict[str, Any]:
    speakers = (first, "gpt") if first == "human" else (first, "human")
    return {
        "id": "abc_0",
        "conversations": [{"from": speakers[n % 2], "value": text} for n, text in enumerate(turns)],
    }


def question(number: int, category: str, *turns: str) -> dict[str, Any]:
    return {"question_id": number, "category": category, "turns": list(turns), "reference": []}


def jsonl(*entries: object) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


#: A file of two prompts, or of 512, of each format.
MADE: dict[str, Callable[[int], str]] = {
    "messages": lambda n: jsonl(*({"messages": [{"role": "user", "content": f"prompt {i}"}]} for i in range(n))),
    "custom": lambda n: jsonl(*({"prompt": f"prompt {i}"} for i in range(n))),
    "sharegpt": lambda n: json.dumps([conversation(f"prompt {i}", "answer") for i in range(n)]),
    "spec-bench": lambda n: jsonl(*(question(81 + i, "own", f"prompt {i}") for i in range(n))),
    "text": lambda n: "".join(f"prompt {i}\n" for i in range(n)),
}


def load(path: Path, data: str | bytes, form: str | None = None) -> Suite:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return load_suite(str(path), BENCHMARKS, form=form)


def texts(suite: Suite) -> list[str]:
    return [str(prompt.messages[-1]["content"]) for prompts in expand(suite).values() for prompt in prompts]


def problems(path: Path, data: str | bytes, form: str | None = None) -> list[Problem]:
    with pytest.raises(DrafthouseError) as caught:
        load(path, data, form)
    assert all(problem.found and problem.needed and problem.do for problem in caught.value.problems)
    return caught.value.problems


def test_every_format_has_a_file_here() -> None:
    assert {*MADE, "suite"} == set(FORMATS)


# Lines of text are YAML too: in a .yml file they are a broken suite.
@pytest.mark.parametrize(
    ("form", "ending"),
    [*product(MADE, ["prompts", "prompts.data"]), *product(sorted({*MADE} - {"text"}), ["prompts.yml"])],
)
def test_a_format_is_told_by_its_content_whatever_the_file_is_called(tmp_path: Path, form: str, ending: str) -> None:
    suite = load(tmp_path / ending, MADE[form](512))
    assert texts(suite) == [f"prompt {i}" for i in range(512)]
    assert "notes" not in suite
    assert load(tmp_path / ending, MADE[form](512), form) == suite


@pytest.mark.parametrize("form", MADE)
@pytest.mark.parametrize("change", ["bom", "crlf", "no end of line", "empty lines"])
def test_bom_crlf_and_empty_lines_change_nothing(tmp_path: Path, form: str, change: str) -> None:
    text = MADE[form](3)
    changed = {
        "bom": b"\xef\xbb\xbf" + text.encode(),
        "crlf": text.replace("\n", "\r\n").encode(),
        "no end of line": text.rstrip("\n").encode(),
        "empty lines": ("\n" + text + "\n \n").encode(),
    }[change]
    assert texts(load(tmp_path / "prompts", changed)) == [f"prompt {i}" for i in range(3)]


def test_a_suite_is_known_without_its_ending(tmp_path: Path) -> None:
    mixed = (BENCHMARKS / "mixed.yml").read_text()
    shutil.copytree(BENCHMARKS / "prompts", tmp_path / "prompts")
    assert load(tmp_path / "mine", mixed)["kinds"] == load_suite("mixed", BENCHMARKS)["kinds"]
    small = {"name": "s", "description": "d", "kinds": {"k": {"output_tokens": 9, "prompts": [
        {"id": "one", "messages": [{"role": "user", "content": "x"}]}]}}}  # fmt: skip
    for ending in ("s.json", "s.yml", "s"):
        assert load(tmp_path / ending, json.dumps(small)) == small
        assert load(tmp_path / ending, json.dumps(small, indent=1)) == small


def test_a_file_beside_the_suites_may_be_called_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "questions").write_text("one\ntwo\n")
    (tmp_path / "mixed").write_text("three\n")
    assert texts(load_suite("questions", BENCHMARKS)) == ["one", "two"]
    assert next(iter(load_suite("mixed", BENCHMARKS)["kinds"])) == "copy-edit"


def test_custom_has_its_own_output_length(tmp_path: Path) -> None:
    suite = load(tmp_path / "c.jsonl", jsonl({"prompt": "a", "output_tokens": 7}, {"prompt": "b", "extra": 1}))
    assert [(one.id, one.output_tokens) for one in expand(suite)["own"]] == [("own-1", 7), ("own-2", 256)]
    for wrong in (0, -1, "7", True, 1.5):
        (problem,) = problems(tmp_path / "c.jsonl", jsonl({"prompt": "a", "output_tokens": wrong}))
        assert problem.where.endswith("line 1.output_tokens")


def test_of_sharegpt_the_first_question_is_sent_and_the_rest_is_told(tmp_path: Path) -> None:
    data = [
        conversation("one", "answer", "and then?", "answer"),
        conversation("left over from before", "two", first="gpt"),
        {"conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "three"}]},
        {"conversations": []},
        conversation("only an answer", first="gpt"),
        conversation("one", "another answer"),
    ]
    path = tmp_path / "sharegpt.json"
    suite = load(path, json.dumps(data, indent=1))
    assert texts(suite) == ["one", "two", "three"]
    assert [one["role"] for one in expand(suite)["own"][2].messages] == ["system", "user"]
    assert suite["notes"] == [
        f"{path}: 1 conversations have further turns: only the first one is sent",
        f"{path}: 2 conversations left out: nobody asks anything in them",
        f"{path}: 1 left out: the same as an earlier one",
    ]
    assert texts(load(path, jsonl(*data))) == ["one", "two", "three"]


def test_spec_benchs_categories_are_the_kinds(tmp_path: Path) -> None:
    lines = jsonl(question(81, "writing", "a", "rewrite it"), question(82, "qa", "b"), question(83, "writing", "c"))
    suite = load(tmp_path / "question.jsonl", lines)
    assert {kind: [one.id for one in prompts] for kind, prompts in expand(suite).items()} == {
        "writing": ["writing-81", "writing-83"],
        "qa": ["qa-82"],
    }
    assert suite["notes"] == [
        f"{tmp_path / 'question.jsonl'}: 1 questions have further turns: only the first one is sent"
    ]
    assert [one["id"] for one in pick(suite, 3)["kinds"]["question"]["prompts"]] == [
        "writing-81",
        "qa-82",
        "writing-83",
    ]


@pytest.mark.parametrize("category", ["", 7, "a\x1b[2J", "\ud800", "x" * 100])
def test_a_category_must_be_a_name(tmp_path: Path, category: object) -> None:
    (problem,) = problems(tmp_path / "q.jsonl", jsonl({"question_id": 1, "category": category, "turns": ["a"]}))
    assert problem.where.endswith("line 1.category")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\xff\xfep\x00", "can't decode"),
        ("Grüße\n".encode("latin-1"), "can't decode"),
        (b"", "an empty file"),
        (b"\xef\xbb\xbf\r\n \r\n", "an empty file"),
        (b"one\x00two", "a zero byte"),
        (b"[]", "no prompts"),
        (b"{}", "no known format"),
        (b'["a", "b"]', "no known format"),
        (b'{"text": "a"}\n' * 512, "no known format: 'text'"),
        (b'[{"prompt": "a"}, {"prompt": "b"', "no JSON"),
        (b'{"prompt": "a"', "no JSON"),
        (b"[" * 200_000, "no JSON (nested too deeply)"),
        (b'{"prompt": ' + b"[" * 200_000, "no JSON"),
        (b'{"prompt": 1}', "1"),
        (b'{"prompt": "  "}', '"  "'),
        (b'{"turns": []}', "[]"),
        (b'{"turns": "a"}', '"a"'),
        (b'{"turns": [null]}', "null"),
        (b'{"conversations": "a"}', '"a"'),
        (b'{"conversations": [1]}', "[1]"),
        (b'{"conversations": [{"from": "human"}]}', "null"),
        (b'{"prompt": "a"}\n{"prompt": NaN1}', "no JSON"),
        (b'{"prompt": "a"}\n[1]\n', "no key 'prompt'"),
    ],
)
def test_what_is_no_file_of_prompts_is_told_and_never_a_traceback(tmp_path: Path, data: bytes, found: str) -> None:
    assert found in problems(tmp_path / "prompts", data)[0].found


def test_json_that_is_broken_in_the_middle_is_told_with_its_place(tmp_path: Path) -> None:
    lines = MADE["custom"](512).splitlines()
    lines[255] = lines[255][:-3]
    (problem,) = problems(tmp_path / "p", "\n".join(lines))
    assert problem.where.endswith(": line 256")
    (problem,) = problems(tmp_path / "p", MADE["sharegpt"](512).replace('"prompt 256"', '"prompt 256', 1))
    assert "line 1 column" in problem.found
    lines[0] = lines[0][:-1]
    assert [one.where.rpartition(": ")[2] for one in problems(tmp_path / "p", "\n".join(lines))] == [
        "line 1", "line 256",
    ]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), list(permutations(sorted({*MADE} - {"sharegpt"}), 2)))
def test_two_formats_in_a_file_are_refused(tmp_path: Path, one: str, other: str) -> None:
    found = problems(tmp_path / "p", MADE[one](2) + MADE[other](2))
    assert found[0].where.endswith(": line 3")


def test_text_that_looks_like_json_is_text_when_that_is_said(tmp_path: Path) -> None:
    lines = 'Explain this:\n{"prompt": "a"}\n[note] what is it?\n'
    assert texts(load(tmp_path / "p.jsonl", lines, "text")) == lines.splitlines()
    assert "--dataset-format text" in problems(tmp_path / "p", lines)[0].do
    assert "--dataset-format text" in problems(tmp_path / "p.jsonl", "just words\n")[0].do
    assert texts(load(tmp_path / "p", "[note] what is it?\n")) == ["[note] what is it?"]


@pytest.mark.parametrize("form", sorted({*MADE} - {"text"}))
def test_a_format_that_is_forced_and_wrong_is_told(tmp_path: Path, form: str) -> None:
    for other in {*MADE} - {form, "text"}:
        assert problems(tmp_path / "p", MADE[other](600), form)[-1].found == "595 more problems, 600 in all"
    assert "no JSON" in problems(tmp_path / "p", MADE["text"](2), form)[0].found


@pytest.mark.parametrize(
    "line",
    [
        '{"prompt": 1}',
        '{"turns": 1}',
        '{"conversations": 1}',
        '{"messages": [], "x": 1, "y": 2}',
        '{"messages": [{"role": "usr", "content": ""}]}',
    ],
)
def test_512_wrong_lines_are_a_few_problems_and_a_count(tmp_path: Path, line: str) -> None:
    found = problems(tmp_path / "p", f"{line}\n" * 512)
    assert len(found) == FEW + 1
    assert found[-1].found.endswith(" in all")
    assert len(str(DrafthouseError(found)).splitlines()) < 40


def test_a_suite_of_512_wrong_prompts_is_a_few_problems_and_a_count(tmp_path: Path) -> None:
    prompts = "".join(f"      - {{id: p{n}, mesages: []}}\n" for n in range(512))
    text = f"name: s\ndescription: d\nkinds:\n  k:\n    output_tokens: 9\n    prompts:\n{prompts}"
    found = problems(tmp_path / "s.yml", text)
    assert (len(found), found[-1].found) == (FEW + 1, f"{1024 - FEW} more problems, 1024 in all")


@pytest.mark.parametrize("form", MADE)
def test_a_huge_line_is_a_prompt_and_is_never_printed(tmp_path: Path, form: str) -> None:
    huge = "a" * 5_000_000
    text = MADE[form](2).replace("prompt 1", huge)
    assert texts(load(tmp_path / "p", text)) == ["prompt 0", huge]
    if form != "text":
        assert (
            len(str(DrafthouseError(problems(tmp_path / "p", text.replace(f'"{huge}"', f'{{"a": "{huge}"}}'), form))))
            < 2000
        )
