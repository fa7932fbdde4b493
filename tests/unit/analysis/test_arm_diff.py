"""What differs between the files of two arms, besides speculation."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.analysis.arm_diff import file_differences, result_differences
from tests.support.builders import SPECULATION, make_pair, serve_script

Data = dict[str, Any]


def arms(path: str, one: str, two: str, flags: list[list[str]] | None = None) -> Any:
    made: Data = {
        arm: {"files": [{"path": path, "mode": "0644", "content": content}], "environment": {}}
        for arm, content in (("baseline", one), ("speculative", two))
    }
    if flags is not None:
        made["speculative"]["speculation_flags"] = flags
    return {"arms": made}


VLLM = 'exec vllm serve /m \\\n  --port 8000 \\\n{}  "$@"\n'


@pytest.mark.parametrize(
    ("path", "one", "two"),
    [
        ("serve.sh", VLLM.format(""), VLLM.format('  --speculative-config \'{"method": "eagle3"}\' \\\n')),
        ("serve.sh", VLLM.format(""), VLLM.format("  --speculative-config='{\"a\": 1}' \\\n")),
        ("serve.sh", VLLM.format(""), VLLM.format("  -md /d.gguf --spec-type draft-simple \\\n")),
        ("serve.sh", VLLM.format(""), "# speculative: an arm's own note\n" + VLLM.format("")),
        ("llm_api.yaml", "a: 1\nb: {c: 2}\n", "b:\n  c: 2\nspeculative_config: {max_draft_len: 3}\na: 1\n"),
        (
            "compose.yaml",
            "services: {s: {command: [--port, '80']}}\n",
            "services: {s: {command: [--port, '80', --speculative-config, '{}']}}\n",
        ),
    ],
)
def test_speculation_is_no_difference(path: str, one: str, two: str) -> None:
    assert file_differences(arms(path, one, two)) == []


@pytest.mark.parametrize(
    ("path", "one", "two", "says"),
    [
        ("serve.sh", VLLM.format(""), VLLM.format("  --max-num-seqs 8 \\\n"), "--max-num-seqs 8"),
        ("serve.sh", VLLM.format(""), VLLM.format("").replace('"$@"', '--x "$@"'), "--x"),
        # A value after a speculation flag's own value is somebody else's.
        ("serve.sh", VLLM.format(""), VLLM.format("  -md /d.gguf extra \\\n"), "extra"),
        ("llm_api.yaml", "a: 1\n", "a: 2\nspeculative_config: {}\n", '"a": 2'),
        ("unit.conf", "numprocs=1\n", "numprocs=2\n", "numprocs=2"),
        ("broken.yml", "a: [1\n", "a: [2\n", "a: [2"),
    ],
)
def test_anything_else_is_a_difference(path: str, one: str, two: str, says: str) -> None:
    found = file_differences(arms(path, one, two))
    assert found
    assert any(says in sentence for sentence in found)


def test_where_the_profile_names_its_speculation_flags_only_those_are_taken_out() -> None:
    one, two = serve_script([["-m", "x"]]), serve_script([["-m", "x"], *SPECULATION, ["--spec-other", "1"]])
    assert file_differences(arms("serve.sh", one, two)) == []
    found = file_differences(arms("serve.sh", one, two, SPECULATION))
    assert len(found) == 1
    assert "--spec-other 1" in found[0]


@pytest.mark.parametrize(
    ("name", "values"),
    [("context", ("8192", "1024")), ("cache_dtype", ("auto", "fp8")), ("prefix_cache", ("True", "False"))],
)
def test_what_the_servers_say_of_themselves_is_compared(name: str, values: tuple[str, str]) -> None:
    base, spec = make_pair({"copy-edit": 2.0})
    for result, value in zip((base, spec), values, strict=True):
        result["engine"]["settings_answered"] = {name: value}
    assert result_differences(base, spec) == [
        "the arms differ in more than speculation: the servers' own answer of "
        f"{name} is '{values[0]}' in baseline and '{values[1]}' in speculative"
    ]
    del spec["engine"]["settings_answered"]
    assert result_differences(base, spec) == []


def test_a_context_that_differs_is_no_comparison() -> None:
    base, spec = make_pair({"copy-edit": 2.0})
    base["engine"]["max_model_len_answered"], spec["engine"]["max_model_len_answered"] = 8192, 1024
    assert any("max_model_len_answered is 8192 in baseline and 1024" in said for said in result_differences(base, spec))
