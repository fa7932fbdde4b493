"""Suites: what they may hold, what is said when they do not, and the ones that ship."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT
from drafthouse.prompts.formats import MESSAGES, read_prompts
from drafthouse.prompts.loader import load_suite
from drafthouse.prompts.suites import check_suite, expand, only_kinds, pick, with_output_tokens
from tests.support.refusals import refuses

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def small() -> Any:
    return {
        "name": "small",
        "description": "two kinds",
        "kinds": {
            "chat": {
                "output_tokens": 20,
                "prompts": [{"id": f"c{n}", "messages": user(f"chat {n}")} for n in (1, 2, 3)],
            },
            "code": {"output_tokens": 30, "repeat": 2, "prompts": [{"id": "k1", "messages": user("code")}]},
        },
    }


def problems_of(data: object) -> list[Problem]:
    with pytest.raises(DrafthouseError) as caught:
        check_suite(data, "s.yml")
    return caught.value.problems


def test_repeat_is_written_out() -> None:
    prompts = expand(check_suite(small(), "s.yml"))
    assert [(prompt.id, prompt.output_tokens) for prompt in prompts["code"]] == [("k1#1", 30), ("k1#2", 30)]
    assert [prompt.id for prompt in prompts["chat"]] == ["c1", "c2", "c3"]
    assert prompts["chat"][0].messages == user("chat 1")


def test_a_prompt_may_have_its_own_output_length() -> None:
    data = small()
    data["kinds"]["chat"]["prompts"][1]["output_tokens"] = 5
    assert [prompt.output_tokens for prompt in expand(check_suite(data, "s"))["chat"]] == [20, 5, 20]


def test_all_problems_at_once_each_with_its_path() -> None:
    data = small()
    data["descripton"] = data.pop("description")
    data["kinds"]["chat"]["output_tokens"] = 0
    data["kinds"]["chat"]["prompts"][1]["messages"][0]["role"] = "usr"
    del data["kinds"]["code"]["prompts"][0]["id"]
    found = {problem.where: problem for problem in problems_of(data)}
    assert set(found) == {
        "s.yml: descripton",
        "s.yml: description",
        "s.yml: kinds.chat.output_tokens",
        "s.yml: kinds.chat.prompts[1].messages[0].role",
        "s.yml: kinds.code.prompts[0].id",
    }
    assert found["s.yml: descripton"].do == "write 'description'"
    assert found["s.yml: kinds.chat.prompts[1].messages[0].role"].do == "write 'user'"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda kinds: kinds.clear(), "kinds"),
        (lambda kinds: kinds["chat"].update(prompts=[]), "kinds.chat.prompts"),
        (lambda kinds: kinds["chat"]["prompts"][0].update(messages=[]), "kinds.chat.prompts[0].messages"),
        (
            lambda kinds: kinds["chat"]["prompts"][0].update(messages=user("")),
            "kinds.chat.prompts[0].messages[0].content",
        ),
        (lambda kinds: kinds["chat"]["prompts"][2].update(id="c1"), "kinds.chat.prompts[2].id"),
        (
            lambda kinds: kinds["chat"]["prompts"][2].update(messages=user("code")),
            "kinds.code.prompts[0].messages",
        ),
        (lambda kinds: kinds["code"].update(repeat=0), "kinds.code.repeat"),
    ],
)
def test_one_problem(change: Any, where: str) -> None:
    data = small()
    change(data["kinds"])
    assert [problem.where for problem in problems_of(data)] == [f"s.yml: {where}"]


@pytest.mark.parametrize("data", [None, [], "text", {}])
def test_something_else_than_a_suite(data: object) -> None:
    assert problems_of(data)


def test_a_users_own_lines() -> None:
    lines = [
        {"messages": user("one")},
        {"messages": user("two"), "id": "mine", "kind": "mail", "output_tokens": 40},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "three"}]}]},
    ]
    text = "\n".join(json.dumps(line) for line in lines) + "\n\n"
    prompts = expand(read_prompts(text, "own-file", "own-file.jsonl", MESSAGES))
    assert [(p.kind, p.id, p.output_tokens) for kind in prompts.values() for p in kind] == [
        ("own", "own-1", 256),
        ("own", "own-3", 256),
        ("mail", "mine", 40),
    ]


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85"])
def test_a_line_ends_at_a_line_feed_alone(sign: str) -> None:
    lines = [{"messages": user(f"one{sign}two")}, {"messages": user("three")}]
    text = "\r\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    assert sign in text
    prompts = expand(read_prompts(text, "x", "x.jsonl", MESSAGES))["own"]
    assert [(prompt.id, prompt.messages) for prompt in prompts] == [
        ("own-1", user(f"one{sign}two")),
        ("own-2", user("three")),
    ]


def test_a_form_feed_between_tokens_is_told_with_its_own_line() -> None:
    text = json.dumps({"messages": user("one")}) + "\n\f\n{\f}"
    with pytest.raises(DrafthouseError) as caught:
        read_prompts(text, "x", "x.jsonl", MESSAGES)
    assert [problem.where for problem in caught.value.problems] == ["x.jsonl: line 3"]


def test_an_id_has_no_sign_of_a_repeat() -> None:
    data = small()
    data["kinds"]["chat"]["prompts"][1]["id"] = "issue#0"
    (problem,) = problems_of(data)
    assert problem.where == "s.yml: kinds.chat.prompts[1].id"
    assert (problem.found, problem.do) == ("'issue#0'", "write 'issue-0'")
    assert problem.needed == "an id without '#', which marks repeats"
    lines = [{"messages": user(f"{n}"), "id": f"issue#{n}"} for n in range(2)]
    with pytest.raises(DrafthouseError) as caught:
        read_prompts("\n".join(map(json.dumps, lines)), "x", "x.jsonl", MESSAGES)
    assert [problem.where for problem in caught.value.problems] == ["x.jsonl: line 1.id", "x.jsonl: line 2.id"]


def test_a_kind_may_have_that_sign_and_the_ids_made_for_it_have_not() -> None:
    own = {"messages": user("one"), "kind": "c#"}
    assert [p.id for p in expand(read_prompts(json.dumps(own), "x", "x.jsonl", MESSAGES))["c#"]] == ["c--1"]
    data = small()
    data["kinds"]["c#"] = {"output_tokens": 9, "made": {"form": "code", "number": 2}}
    assert [p.id for p in expand(check_suite(data, "s"))["c#"]] == ["c--001", "c--002"]


def test_wrong_lines_are_all_named() -> None:
    text = '{"message": []}\nno json\n{"messages": []}\n' + json.dumps({"messages": user("x"), "output_tokens": "9"})
    with pytest.raises(DrafthouseError) as caught:
        read_prompts(text, "x", "x.jsonl", MESSAGES)
    assert [problem.where for problem in caught.value.problems] == [
        "x.jsonl: line 1.message",
        "x.jsonl: line 1.messages",
        "x.jsonl: line 2",
        "x.jsonl: line 3.messages",
        "x.jsonl: line 4.output_tokens",
    ]
    with refuses("no-prompts"):
        read_prompts("[]", "x", "x.jsonl", MESSAGES)


def test_a_mixture_is_taken_evenly() -> None:
    prompts = expand(pick(small(), 4))["small"]
    assert [(prompt.id, prompt.output_tokens) for prompt in prompts] == [
        ("c1", 20),
        ("k1#1", 30),
        ("c2", 20),
        ("k1#2", 30),
    ]
    with pytest.raises(DrafthouseError, match="5 or fewer"):
        pick(small(), 6)


def test_one_output_length_for_all() -> None:
    data = small()
    data["kinds"]["chat"]["prompts"][1]["output_tokens"] = 5
    changed = expand(with_output_tokens(data, 7))
    assert {prompt.output_tokens for prompts in changed.values() for prompt in prompts} == {7}


def test_chosen_kinds() -> None:
    assert list(only_kinds(small(), ["code"])["kinds"]) == ["code"]
    assert only_kinds(small(), []) == small()
    with pytest.raises(DrafthouseError, match="write 'code'"):
        only_kinds(small(), ["cod"])


def test_from_files(tmp_path: Path) -> None:
    (tmp_path / "small.yml").write_text(yaml.safe_dump(small()))
    (tmp_path / "own.jsonl").write_text(json.dumps({"messages": user("one")}))
    assert load_suite("small", tmp_path) == small()
    assert load_suite(str(tmp_path / "small.yml"), BENCHMARKS) == small()
    assert load_suite(str(tmp_path / "own.jsonl"), BENCHMARKS)["name"] == "own"
    for name in ("small.yml", "own.jsonl"):
        marked = tmp_path / f"marked-{name}"
        marked.write_bytes(b"\xef\xbb\xbf" + (tmp_path / name).read_bytes())
        assert load_suite(str(marked), BENCHMARKS)["kinds"] == load_suite(str(tmp_path / name), BENCHMARKS)["kinds"]


def test_files_that_are_no_suite(tmp_path: Path) -> None:
    (tmp_path / "broken.yml").write_text("name: [")
    (tmp_path / "bytes.yml").write_bytes(b"\xff\xfe")
    for name, text in (
        ("mixd", "write 'mixed'"),
        (str(tmp_path / "none.yml"), "no such file"),
        (str(tmp_path / "none.jsonl"), "no such file"),
        (str(tmp_path / "broken.yml"), "not YAML"),
        (str(tmp_path / "bytes.yml"), "UTF-8"),
    ):
        with pytest.raises(DrafthouseError, match=text):
            load_suite(name, BENCHMARKS)


def test_the_mixed_suite_that_ships() -> None:
    kinds = expand(load_suite("mixed", BENCHMARKS))
    assert list(kinds) == ["copy-edit", "code", "chat", "summarise", "creative"]
    assert {kind: len(prompts) for kind, prompts in kinds.items()} == dict.fromkeys(kinds, 60)
    for prompt in kinds["copy-edit"][:8]:
        passage = str(prompt.messages[-1]["content"]).split("\n\n")[1]
        assert 75 <= len(passage.split()) <= 100


def test_the_articles_suite_that_ships() -> None:
    prompts = expand(load_suite("articles", BENCHMARKS))["vacation"]
    assert [prompt.id for prompt in prompts] == [f"vacation#{number}" for number in range(1, 11)]
    text = str(prompts[0].messages[0]["content"])
    assert text.startswith("Imagine you are planning a week-long vacation to a place you've never visited before. ")
    assert text.endswith("Finally, discuss how you would balance relaxation and adventure during your vacation.")
    assert "  " not in text
    assert "\n" not in text


def test_the_published_suite_has_the_data_sets_of_the_published_figures_and_their_licences() -> None:
    suite = load_suite("published", BENCHMARKS)
    datasets = {name for row in load_catalog(ROOT).published["figures"] for name in row.get("lengths", {})}
    assert set(suite["kinds"]) <= datasets
    assert all(8 <= len(kind["prompts"]) <= 10 for kind in suite["kinds"].values())
    licences = (BENCHMARKS / "published-licenses.md").read_text("utf-8")
    for source in ("openai/human-eval", "openai/grade-school-math", "lm-sys/FastChat"):
        assert source in (BENCHMARKS / "published.yml").read_text("utf-8")
        assert source in licences
    assert licences.count("Permission is hereby granted, free of charge") == 2
    assert "Apache License" in licences


@pytest.mark.parametrize("kind", ["chat", "code", "copy-edit", "creative", "math", "summarise"])
def test_every_prompt_of_a_file_names_its_source(kind: str) -> None:
    sources = re.findall(r"\| `([a-z0-9]+)-", (BENCHMARKS / "prompts" / "README.md").read_text("utf-8"))
    lines = (BENCHMARKS / "prompts" / f"{kind}.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 52
    assert {json.loads(line)["id"].partition("-")[0] for line in lines} <= set(sources)


def test_a_kind_takes_more_prompts_from_its_file(tmp_path: Path) -> None:
    line = {"id": "two", "messages": [{"role": "user", "content": "second"}]}
    (tmp_path / "more.jsonl").write_text(json.dumps(line) + "\n")
    kind = {"output_tokens": 9, "file": "more.jsonl", "prompts": [
        {"id": "one", "messages": [{"role": "user", "content": "first"}]}]}  # fmt: skip
    (tmp_path / "s.yml").write_text(json.dumps({"name": "s", "description": "d", "kinds": {"k": kind}}))
    assert [prompt.id for prompt in expand(load_suite("s", tmp_path))["k"]] == ["one", "two"]
    (tmp_path / "more.jsonl").write_text(json.dumps({**line, "id": "one"}) + "\n")
    with pytest.raises(DrafthouseError, match="'one' again"):
        load_suite(str(tmp_path / "s.yml"), tmp_path)
    (tmp_path / "s.yml").write_text(
        json.dumps({"name": "s", "description": "d", "kinds": {"k": {**kind, "file": "no.jsonl"}}})
    )
    with pytest.raises(DrafthouseError, match="no such file"):
        load_suite("s", tmp_path)
