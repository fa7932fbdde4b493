"""A second opinion: what other clients are given to send, how they fail, and the table and our client.

The programs are stand-ins with the real tools' names, words and files, which really send; the real ones run in
tests/real_engines/test_second_opinion.py.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench.client import Ask, Endpoint
from drafthouse.bench.external import clients as other_clients
from drafthouse.bench.external.clients import (
    comparison_lines,
    find_program,
    run_tool,
    second_opinion,
    sendable,
    tool_named,
    works_of,
)
from drafthouse.bench.external.formats import TOOLS, Work
from drafthouse.bench.groups import StepOptions, plan_groups
from drafthouse.bench.results import assemble
from drafthouse.bench.step import run_step
from drafthouse.core.errors import DrafthouseError
from tests.fakes.clock_server import clock_server
from tests.support.refusals import refuses

FAKE = Path(__file__).resolve().parents[1] / "fakes" / "other_client.py"
CLOCK = {"ttft_ms": 60, "interval_ms": 10, "tokens": 90, "tokens_per_chunk": 3}
KEY = "sk-very-secret"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An environment with all three tools."""
    programs = tmp_path / "env" / "bin"
    programs.mkdir(parents=True)
    text = FAKE.read_text("utf-8").replace("#!/usr/bin/env python3", f"#!{sys.executable}", 1)
    for tool in TOOLS.values():
        (programs / tool.program).write_text(text)
        (programs / tool.program).chmod(0o755)
    return programs.parent


def prompt(name: str, *more: Mapping[str, str], **lengths: int) -> Any:
    return {"id": name, "messages": [*more, {"role": "user", "content": f"Tell me of {name}"}], **lengths}


SYSTEM = {"role": "system", "content": "Be brief"}
EARLIER = ({"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello?"})


def suite(*prompts: Any, kind: str = "chat") -> Any:
    kinds = {kind: {"output_tokens": 90, "prompts": list(prompts)}}
    return {"name": "s", "description": "s", "kinds": kinds}


PLAIN = suite(*(prompt(f"p{n}") for n in range(6)))


@pytest.mark.parametrize("name", list(TOOLS))
def test_the_same_requests_and_the_numbers_beside_ours(name: str, home: Path, tmp_path: Path) -> None:
    tool, options = tool_named(name), StepOptions(concurrency=3, warmups=0)
    with clock_server(**CLOCK, key=KEY) as server:
        endpoint = Endpoint("single", server.base_url, "clock", KEY)
        first = assemble([run_step([endpoint], [PLAIN], options)], "single")
        server.reset()
        opinion = second_opinion(tool, endpoint, [PLAIN], options, first, home=home, keep=tmp_path)
        asked = [entry["request"] for entry in server.record()]
        assert server.most_running() == 3
    theirs, ours = asked[:6], asked[6:]
    assert len(ours) == 6
    for one, other in zip(sorted(theirs, key=_said), sorted(ours, key=_said), strict=True):
        assert _said(one) == _said(other)
        for field in ("model", "max_tokens", "temperature"):
            assert one[field] == other[field], field
    sides: Any = opinion["groups"]["chat"]
    # Wide, for stand-ins on a busy machine: the real tools are held to 3 % in their own lane.
    for side in sides.values():
        assert side["median_tpot_ms"] == pytest.approx(290 / 89, rel=0.6)
        assert 55 < side["median_ttft_ms"] < side["median_e2el_ms"]
        assert 0 < side["output_throughput"] < 3 * 90 / 0.35
    assert (sides[name]["completed"], sides[name]["total_output_tokens"]) == (6, 540)
    kept = Path(sides[name]["raw_file"])
    assert kept.parent == tmp_path and KEY not in kept.read_text()
    assert KEY not in json.dumps(opinion)
    lines = comparison_lines(opinion)
    row = next(line for line in lines if line.startswith("TPOT ms, median"))
    assert row.endswith(" %")
    assert f"{name} and our client" in lines[0]


def _said(request: Any) -> str:
    parts = []
    for message in request["messages"]:
        content = message["content"]
        parts.append(content if isinstance(content, str) else "".join(part["text"] for part in content))
    return "\n".join(parts)


@pytest.mark.parametrize("name", list(TOOLS))
def test_a_tool_that_has_one_seed_for_all_says_so(name: str, home: Path) -> None:
    tool = TOOLS[name]
    options = StepOptions(concurrency=1, warmups=0, temperatures=(0.7,))
    with clock_server(**CLOCK) as server:
        endpoint = Endpoint("single", server.base_url, "clock")
        opinion = second_opinion(tool, endpoint, [PLAIN], options, home=home)
        seeds = [entry["request"]["seed"] for entry in server.record()]
    ours, theirs = set(seeds[:6]), set(seeds[6:12])
    assert len(ours) == 6
    assert (len(theirs) == 1) == any("sends the first request's seed" in one for one in opinion["differs"])
    assert theirs <= ours


def test_each_kind_and_all_rounds(home: Path) -> None:
    both = suite(prompt("a"), prompt("b"))
    both["kinds"]["code"] = {"output_tokens": 30, "prompts": [prompt("c", output_tokens=45)]}
    options = StepOptions(concurrency=2, rounds=2, warmups=0)
    with clock_server(**CLOCK) as server:
        opinion = second_opinion(
            tool_named("aiperf"), Endpoint("single", server.base_url, "clock"), [both], options, home=home
        )
        lengths = [entry["request"]["max_tokens"] for entry in server.record()]
    # Ours first, for no result of ours was given: 2 rounds of 3, then theirs kind by kind, then ours again.
    assert lengths == [90, 90, 45, 90, 90, 45, 90, 90, 90, 90, 45, 45, 90, 90, 45, 90, 90, 45]
    assert {group: sides["aiperf"]["completed"] for group, sides in opinion["groups"].items()} == {"chat": 4, "code": 2}


MIXED = suite(prompt("plain"), prompt("ruled", SYSTEM), prompt("talk", *EARLIER))


@pytest.mark.parametrize(
    ("name", "left_out"), [("vllm-bench", {"ruled", "talk"}), ("guidellm", {"talk"}), ("aiperf", set())]
)
def test_what_a_tool_cannot_send_is_left_out_on_both_sides(name: str, left_out: set[str], home: Path) -> None:
    options = StepOptions(concurrency=1, warmups=0)
    with clock_server(**CLOCK) as server:
        endpoint = Endpoint("single", server.base_url, "clock")
        first = assemble([run_step([endpoint], [MIXED], options)], "single")
        server.reset()
        opinion = second_opinion(tool_named(name), endpoint, [MIXED], options, first, home=home)
        sent = len(server.record())
    assert set(opinion["left_out"]) == left_out
    # Where all was sent ours of before is used; otherwise it is measured anew, to be of the same requests.
    assert sent == (3 - len(left_out)) * (3 if left_out else 2)
    assert {side["completed"] for side in opinion["groups"]["chat"].values()} == {3 - len(left_out)}
    said = [line for line in comparison_lines(opinion) if line.startswith("Left out")]
    assert bool(said) == bool(left_out)


def test_a_tool_that_can_send_nothing_says_so() -> None:
    with pytest.raises(DrafthouseError) as caught:
        sendable(tool_named("vllm-bench"), [suite(prompt("talk", *EARLIER))], StepOptions())
    assert "vllm-bench cannot send any of the prompts (talk: it is not a single user message" in str(caught.value)
    assert "--client aiperf" in str(caught.value)


def test_repeated_prompts_and_kinds() -> None:
    made = suite(prompt("plain"), prompt("talk", *EARLIER))
    made["kinds"]["chat"]["repeat"] = 2
    made["kinds"]["other"] = {"output_tokens": 9, "prompts": [prompt("else")]}
    kept, why = sendable(tool_named("vllm-bench"), [made], StepOptions(kinds=("chat",)))
    assert [one["id"] for one in kept[0]["kinds"]["chat"]["prompts"]] == ["plain"]
    assert list(kept[0]["kinds"]) == ["chat"]
    assert set(why) == {"talk#1", "talk#2"}


def test_a_request_with_more_than_words_goes_to_aiperf_alone() -> None:
    class Tooled(Ask):
        def body(self, model: str) -> Any:
            return {**super().body(model), "tools": []}

    ask = Tooled("s", "k", "k", "p", [{"role": "user", "content": "x"}], 8)
    found = {name: tool.cannot_send(ask) for name, tool in TOOLS.items()}
    assert found == {"vllm-bench": "it asks for tools", "guidellm": "it asks for tools", "aiperf": None}


# --- what goes wrong --------------------------------------------------------------------------------------


def one_work(concurrency: int = 2) -> Work:
    options = StepOptions(concurrency=concurrency, warmups=0, timeout_s=60)
    return works_of(plan_groups([PLAIN], options), options)[0]


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("fail", "guidellm ended with status 3; its last lines:\nstarting\ncannot go on with the key (key)"),
        ("silent", "guidellm exited with 0 but wrote no readable result.json"),
        ("none", "guidellm completed none of 6 requests"),
    ],
)
def test_a_tool_that_fails(home: Path, monkeypatch: pytest.MonkeyPatch, how: str, found: str) -> None:
    monkeypatch.setenv("FAKE_CLIENT", how)
    tool = tool_named("guidellm")
    with clock_server(**CLOCK, key=KEY) as server, pytest.raises(DrafthouseError) as caught:
        run_tool(tool, find_program(tool, home), one_work(), Endpoint("single", server.base_url, "clock", KEY))
    assert caught.value.problems[0].found.startswith(found)
    assert KEY not in str(caught.value)


def test_a_tool_that_hangs_is_ended(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CLIENT", "hang")
    monkeypatch.setattr(other_clients, "START_S", 0.5)
    tool, began = tool_named("aiperf"), time.monotonic()
    work = replace(one_work(), timeout_s=0.1)
    with clock_server(**CLOCK) as server, pytest.raises(DrafthouseError, match="did not end in time"):
        run_tool(tool, find_program(tool, home), work, Endpoint("single", server.base_url, "clock"))
    assert time.monotonic() - began < 60


def test_a_result_of_another_form_is_not_taken_for_numbers() -> None:
    documents: list[Any] = [{}, {"benchmarks": []}]
    for document in documents:
        with refuses("client-failed"):
            TOOLS["guidellm"].read(document)
    strange = {"benchmarks": [{"metrics": {"request_totals": {"successful": "many"}, "request_latency": None}}]}
    assert TOOLS["guidellm"].read(strange)["completed"] is None
    assert TOOLS["vllm-bench"].read({"completed": float("nan")})["completed"] is None
    assert TOOLS["aiperf"].read({})["completed"] is None


def test_a_tool_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for home, where in ((None, "in PATH"), (tmp_path, f"in {tmp_path}/bin")):
        with pytest.raises(DrafthouseError) as caught:
            find_program(tool_named("aiperf"), home)
        assert f"no program 'aiperf' {where}" in str(caught.value)
        assert "pip install 'aiperf==" in str(caught.value)
    with pytest.raises(DrafthouseError, match="write 'guidellm'"):
        tool_named("guidelm")


def test_the_key_is_in_no_word_of_a_command() -> None:
    endpoint = Endpoint("single", "http://127.0.0.1:1", "clock", KEY)
    for tool in TOOLS.values():
        call = tool.call(one_work(), endpoint, None)
        assert not any(KEY in word for word in call.words)
        assert call.environment["OPENAI_API_KEY"] == KEY
        assert KEY not in repr(call)
    # A key of another server, which stands in the environment, is not handed to this one.
    assert tool.call(one_work(), replace(endpoint, api_key=None), None).environment["OPENAI_API_KEY"] == "none"


def test_the_folder_with_the_key_is_gone(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "here"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "here").mkdir()
    tool = tool_named("guidellm")
    with clock_server(**CLOCK, key=KEY) as server:
        endpoint = Endpoint("single", server.base_url, "clock", KEY)
        assert run_tool(tool, find_program(tool, home), one_work(), endpoint)["completed"] == 6
    assert list((tmp_path / "here").glob("drafthouse-client-*")) == []
    shutil.rmtree(tmp_path / "here")
