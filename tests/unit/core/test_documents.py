"""Text, JSON and YAML as people and other programs leave them: read, or refused with the place."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from drafthouse.core.documents import BadDocument, checked_text, json_of, read_json, text_of
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.yaml_documents import read_yaml, yaml_of
from tests.support.pace import in_cpu_time


@pytest.mark.parametrize(
    ("data", "found", "place"),
    [
        (b"one\ntwo \xe9", "0xe9", "line 2, column 5"),
        (b"\xef\xbb\xbfone\n\xff", "0xff", "line 2, column 1"),
        ("one".encode("utf-16"), "UTF-16", "line 1, column 1"),
        (b"one\n\0", "a zero byte", "line 2, column 1"),
    ],
)
def test_bytes_that_are_no_text_are_told_with_their_place(data: bytes, found: str, place: str) -> None:
    with pytest.raises(BadDocument) as caught:
        text_of(data)
    assert found in caught.value.found
    assert caught.value.place == place


def test_text_in_utf8_is_read_with_or_without_the_mark_in_front() -> None:
    assert text_of(b"\xef\xbb\xbfgr\xc3\xbcn") == text_of("grün".encode()) == "grün"


def test_half_a_character_of_a_command_line_is_no_text() -> None:
    with pytest.raises(BadDocument, match="not UTF-8"):
        checked_text("caf\udce9")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' twice"),
        ("[NaN]", "NaN"),
        ("[-Infinity]", "Infinity"),
        ("[1e999]", "too large"),
        (f"[{'9' * 5000}]", "too large"),
        (f"[{2**63}]", "too large"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 101 + "1" + "}" * 101, "nested too deeply"),
        ("[1", "does not parse"),
        ("", "does not parse"),
    ],
)
def test_json_that_is_refused(text: str, found: str) -> None:
    with pytest.raises(BadDocument, match=found):
        json_of(text)


def test_json_is_read_as_the_standard_library_reads_it() -> None:
    whole = {"deep": [[[[{"a": [1, 2.5, -(2**62), True, None, '[[[{\\"' * 99]}]]]], "half": "\ud83d", "big": 1e300}
    assert json_of(json.dumps(whole)) == whole
    assert json_of("[" * 100 + "]" * 100) == json.loads("[" * 100 + "]" * 100)


@pytest.mark.parametrize(
    ("text", "found", "place"),
    [
        ("a: 1\nb: 2\na: 3\n", "the key 'a' is written twice", "line 3, column 1"),
        ("a: [1\n", "did not find expected", "line 2, column 1"),
        ("a: !!python/object/apply:os.system ['id']", "the tag !!python/object", "line 1, column 4"),
        ("a: !!binary aGk=", "!!binary", "line 1, column 4"),
        ("a: &a [*a]", "an alias of what it is a part of", "line 1, column 4"),
        ("[" * 100_000, "nested too deeply", "line 1, column 100"),
        ("a: .nan", "no finite number", "line 1, column 4"),
        (f"a: {'9' * 5000}", "which is no int", "line 1, column 4"),
        ("a: !!bool maybe", "which is no bool", "line 1, column 4"),
        ("a: !!int ''", "which is no int", "line 1, column 4"),
        ('a: "\\0"', "a zero byte", "line 1, column 4"),
        ("? [a]\n: 1", "a key that is no plain value", "line 1, column 3"),
        ("ä: \x01", "control characters", "line 1, column 4"),
        ("a: 1\n---\nb: 2", "another document", "line 2, column 1"),
        ("<<: 3", "merging", "line 1, column 5"),
    ],
)
def test_yaml_that_is_refused(text: str, found: str, place: str) -> None:
    with pytest.raises(BadDocument) as caught:
        yaml_of(text)
    assert found in caught.value.found
    assert caught.value.place == place


@pytest.mark.parametrize("use", ["zz: *z{}", "<<: *z{}"])
def test_a_bomb_of_aliases_is_refused_at_once(use: str) -> None:
    lines = [
        "z0: &z0 {a: b}",
        *(f"z{n}: &z{n} [{', '.join([f'*z{n - 1}'] * 40)}]" for n in range(1, 30)),
        use.format(29),
    ]
    begun = time.process_time()
    with pytest.raises(BadDocument, match="aliases that stand for more than"):
        yaml_of("\n".join(lines))
    assert in_cpu_time(time.process_time() - begun, 1)


def test_a_long_chain_of_aliases_is_too_deep_however_flat_it_is_written() -> None:
    lines = ["z0: &z0 [x]", *(f"z{n}: &z{n} [*z{n - 1}]" for n in range(1, 5_000))]
    with pytest.raises(BadDocument, match="nested too deeply"):
        yaml_of("\n".join(lines))


def test_yaml_is_plain_data() -> None:
    text = "when: 2026-11-23\nsign: =\nbase: &b {x: 1}\nmore: {<<: *b, y: 2}\ntime: 1:30\nnone:\n"
    assert yaml_of(text) == {
        "when": "2026-11-23", "sign": "=", "base": {"x": 1}, "more": {"x": 1, "y": 2}, "time": 90, "none": None,
    }  # fmt: skip
    assert yaml_of("") is None


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_a_file_beyond_all_size_is_not_read(read: object, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as stream:
        stream.truncate(10**12)  # without a byte on the disk
    with pytest.raises(DrafthouseError) as caught:
        read(path, "a smaller file", "make it smaller")  # type: ignore[operator]
    assert "more than" in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_is_refused_by_its_name_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(DrafthouseError) as caught:
        read_yaml(path, "a mapping", "correct it", where="a.yml")
    assert str(caught.value) == (
        "where: a.yml: line 2, column 4\nfound: the byte 0xff, which UTF-8 can't decode\n"
        "needed: a mapping\ndo: correct it\ncode: file-malformed"
    )
