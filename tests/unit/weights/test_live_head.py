"""The head inside a checkpoint, in small real files: there, left out, quantized, in one file or many, in GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest

from drafthouse.weights.gguf_header import type_name
from drafthouse.weights.inspect import INDEX
from drafthouse.weights.live_head import ExpectedHead, check_head_on_disk, compare
from tests.support.head_checkpoints import BODY, HEAD, MTP, NEXTN, safetensors, write_gguf

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import BuiltinHead


def shards(folder: Path, *of: dict[str, str]) -> Path:
    """Write a folder of shards with their index."""
    names = {}
    for number, tensors in enumerate(of, 1):
        shard = f"model-{number:05}-of-{len(of):05}.safetensors"
        (folder / shard).write_bytes(safetensors(tensors))
        names.update(dict.fromkeys(tensors, shard))
    (folder / INDEX).write_text(json.dumps({"weight_map": names}))
    return folder


def said(path: Path, head: BuiltinHead = MTP) -> list[str]:
    """Code and words of what is wrong with the head at a path."""
    return [f"{problem.code}: {problem.found}" for problem in check_head_on_disk(ExpectedHead.of(head, path), path)]


# --- the comparison -------------------------------------------------------------------------------------


def test_nothing_is_wrong_with_a_head_that_is_there() -> None:
    assert compare(MTP, {**BODY, **HEAD}, "m") == []
    assert compare(MTP, {**HEAD, "mtp.layers.0.mlp.up_proj.weight": "F8_E4M3"}, "m") == []


def test_a_head_that_was_left_out_and_the_export_that_has_it() -> None:
    [problem] = compare(MTP, BODY, "org/model at abc")
    assert problem.code == "builtin-head-not-exported"
    assert problem.found == "no tensor mtp.fc.weight, mtp.layers.0.*"
    assert "mtp.fc.weight, mtp.layers.0.*" in problem.needed
    assert problem.do == "use org/whole, which has it, or a method without it"
    assert problem.where == "org/model at abc"
    [problem] = compare(NEXTN, BODY, "m.gguf")
    assert problem.do == "use an export that has it, or a method without it"


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ({"mtp.fc.weight": "U8", "mtp.fc.weight_scale": "F8_E4M3"}, "mtp.fc.weight in U8"),
        (
            {"mtp.fc.qweight": "I32", "mtp.fc.scales": "F16"},
            "mtp.fc.qweight (I32), mtp.fc.scales (F16) and no mtp.fc.weight",
        ),
        ({"mtp.fc.weight_packed": "I32"}, "mtp.fc.weight_packed (I32) and no mtp.fc.weight"),
    ],
)
def test_a_first_matrix_in_four_bits(instead: dict[str, str], words: str) -> None:
    held = {**BODY, **HEAD}
    del held["mtp.fc.weight"]
    [problem] = compare(MTP, {**held, **instead}, "m")
    assert (problem.code, problem.found) == ("builtin-head-precision", words)
    assert "mtp.fc.weight in BF16" in problem.needed
    assert "org/whole" in problem.do


def test_what_lies_beside_a_matrix_is_told_and_not_what_lies_beside_a_pattern() -> None:
    wide: BuiltinHead = {"kind": "mtp", "layers": 1, "tensors": ["*.nextn*"]}
    [problem] = compare(wide, BODY, "m")
    assert (problem.code, problem.found) == ("builtin-head-not-exported", "no tensor *.nextn*")


def test_both_at_once_are_told_at_once() -> None:
    problems = compare(MTP, {"mtp.fc.weight": "U8"}, "m")
    assert [problem.code for problem in problems] == ["builtin-head-not-exported", "builtin-head-precision"]


def test_layers_of_another_precision_are_counted() -> None:
    held = {**HEAD, "mtp.layers.0.a.weight": "U8", "mtp.layers.0.b.weight": "U8", "mtp.layers.0.a.bias": "U8"}
    [problem] = compare(MTP, held, "m")
    assert problem.found == "mtp.layers.0.a.weight and 1 more in U8"


# --- a folder of safetensors ----------------------------------------------------------------------------


def test_shards_and_their_index(tmp_path: Path) -> None:
    assert said(shards(tmp_path, BODY, HEAD)) == []
    assert said(shards(tmp_path, BODY)) == ["builtin-head-not-exported: no tensor mtp.fc.weight, mtp.layers.0.*"]
    assert said(shards(tmp_path, BODY, {**HEAD, "mtp.fc.weight": "U8"})) == [
        "builtin-head-precision: mtp.fc.weight in U8"
    ]


def test_a_head_in_several_shards(tmp_path: Path) -> None:
    first, second = ({name: dtype} for name, dtype in HEAD.items())
    assert said(shards(tmp_path, {**BODY, **first}, second)) == []


def test_what_the_index_names_and_no_shard_has_is_not_there(tmp_path: Path) -> None:
    """An export that copied the index of what it was made from."""
    shards(tmp_path, BODY, HEAD)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(safetensors({"other": "BF16"}))
    assert said(tmp_path) == ["builtin-head-not-exported: no tensor mtp.fc.weight, mtp.layers.0.*"]
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert said(tmp_path) == ["builtin-head-not-exported: no tensor mtp.fc.weight, mtp.layers.0.*"]


def test_a_file_that_the_index_does_not_name_is_not_loaded(tmp_path: Path) -> None:
    shards(tmp_path, BODY)
    (tmp_path / "mtp.safetensors").write_bytes(safetensors(HEAD))
    assert said(tmp_path)[0].startswith("builtin-head-not-exported")


def test_one_file_without_an_index(tmp_path: Path) -> None:
    (tmp_path / "original").mkdir()
    (tmp_path / "original" / "model.safetensors").write_bytes(safetensors(HEAD))
    (tmp_path / "model.safetensors").write_bytes(safetensors(BODY))
    assert said(tmp_path)[0].startswith("builtin-head-not-exported")
    (tmp_path / "model.safetensors").write_bytes(safetensors({**BODY, **HEAD}))
    assert said(tmp_path) == []


@pytest.mark.parametrize("text", ["", "<html>", "[]", "{}", '{"weight_map": {"mtp.fc.weight": 1}}'])
def test_a_broken_index(tmp_path: Path, text: str) -> None:
    (shards(tmp_path, HEAD) / INDEX).write_text(text)
    assert said(tmp_path) == ["weights-damaged: no weight_map"]


def test_a_shard_without_a_header(tmp_path: Path) -> None:
    (shards(tmp_path, HEAD) / "model-00001-of-00001.safetensors").write_bytes(b"x" * 100)
    assert said(tmp_path)[0].startswith(
        "weights-damaged: model-00001-of-00001.safetensors: first 8 bytes that declare a header of"
    )


# --- GGUF -----------------------------------------------------------------------------------------------


F16 = np.dtype(np.float16)
EH_PROJ = "blk.3.nextn.eh_proj.weight"


def test_a_gguf_file_with_and_without_its_nextn_tensors(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    assert said(write_gguf(path, {"token_embd.weight": F16, EH_PROJ: F16}), NEXTN) == []
    assert said(write_gguf(path, {"token_embd.weight": F16, EH_PROJ: gguf.GGMLQuantizationType.Q8_0}), NEXTN) == []
    assert said(write_gguf(path, {"token_embd.weight": F16}), NEXTN) == [
        "builtin-head-not-exported: no tensor blk.*.nextn.eh_proj.weight"
    ]
    assert said(write_gguf(path, {EH_PROJ: gguf.GGMLQuantizationType.Q4_0}), NEXTN) == [
        f"builtin-head-precision: {EH_PROJ} in Q4_0"
    ]


def test_a_gguf_file_that_was_split(tmp_path: Path) -> None:
    first = write_gguf(tmp_path / "m-Q4_K_M-00001-of-00002.gguf", {"token_embd.weight": F16})
    write_gguf(tmp_path / "m-Q8_0-00002-of-00002.gguf", {EH_PROJ: F16})
    assert said(first, NEXTN)[0].startswith("builtin-head-not-exported")
    write_gguf(tmp_path / "m-Q4_K_M-00002-of-00002.gguf", {EH_PROJ: F16})
    assert said(first, NEXTN) == []


def test_a_gguf_file_cut_in_its_head(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {EH_PROJ: F16})
    path.write_bytes(path.read_bytes()[:300])
    assert said(path, NEXTN)[0].startswith("weights-damaged: a head")


def test_types_are_called_what_ggml_calls_them() -> None:
    ours = {kind.value: type_name(kind.value) for kind in gguf.GGMLQuantizationType}
    theirs = {kind.value: kind.name for kind in gguf.GGMLQuantizationType}
    newer = {number for number, name in ours.items() if name == f"type {number}"}
    assert {number: name for number, name in ours.items() if number not in newer} == {
        number: name for number, name in theirs.items() if number not in newer
    }
    assert all(number > 40 for number in newer)
