"""Headers, indexes and vocabularies of small real files: each fault is made on disk and must be seen."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from drafthouse.profiles.resolved_types import PairMethod
from drafthouse.weights.gguf_header import read_gguf
from drafthouse.weights.inspect import INDEX, check_model, check_pair, remarks
from tests.support.pace import in_cpu_time

DRAFT_MODEL: PairMethod = {"id": "draft_model", "kind": "model", "vocab_difference": 0}
LLAMACPP: PairMethod = {"id": "draft_model", "kind": "model", "vocab_difference": 128}
HEAD: PairMethod = {"id": "eagle3", "kind": "head", "vocab_difference": 0}


def safetensors(path: Path, header: dict[str, Any], size: int, *, length: int | None = None) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + bytes(size))
    return path


def tensor(begin: int, end: int, dtype: str = "BF16", shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 2] if shape is None else shape, "data_offsets": [begin, end]}


def found(path: Path) -> str:
    return "\n".join(problem.found for problem in check_model(path))


# --- one file -------------------------------------------------------------------------------------------


def test_whole_files_have_nothing_wrong(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "b": tensor(8, 12),
        "a": tensor(0, 8, shape=[2, 2]),
        "empty": tensor(12, 12, shape=[0, 4]),
        "scalar": tensor(12, 16, "F32", []),
        "four_bits": tensor(16, 20, "F4", [2, 4]),
        "of_next_year": tensor(20, 23, "F3", [8]),
    }
    assert check_model(safetensors(tmp_path / "model.safetensors", header, 23)) == []


@pytest.mark.parametrize(
    ("header", "size", "length", "words"),
    [
        ({"a": tensor(0, 8)}, 7, None, "up to byte"),
        ({"a": tensor(0, 8)}, 9, None, "1 bytes after the last tensor"),
        ({"a": tensor(0, 8), "b": tensor(6, 10)}, 10, None, "'b' overlaps 'a'"),
        ({"a": tensor(0, 8), "b": tensor(10, 12)}, 12, None, "'b' starts 2 bytes after 'a'"),
        ({"a": tensor(2, 8)}, 8, None, "starts 2 bytes after the header"),
        ({"a": tensor(0, 8, shape=[3])}, 8, None, "8 bytes for BF16 [3]"),
        ({"a": tensor(0, 8, shape=[-4])}, 8, None, "tensor 'a'"),
        ({"a": {"dtype": "BF16", "shape": [4], "data_offsets": [8, 0]}}, 8, None, "tensor 'a'"),
        ({"a": {"dtype": "BF16", "shape": [True], "data_offsets": [0, 2]}}, 2, None, "tensor 'a'"),
        ({"a": 1}, 8, None, "tensor 'a'"),
        ({"a": tensor(0, 8)}, 8, 1 << 62, "a header of 4611686018427387904 bytes"),
        ({"a": tensor(0, 8)}, 8, 5000, "cut short"),
        ({"a": tensor(0, 8)}, 8, 20, "not JSON"),
    ],
)
def test_a_fault_of_a_safetensors_file(
    tmp_path: Path, header: dict[str, Any], size: int, length: int | None, words: str
) -> None:
    assert words in found(safetensors(tmp_path / "model.safetensors", header, size, length=length))


@pytest.mark.parametrize("content", [b"", b"1234567", b"\2\0\0\0\0\0\0\0[]", b"\xff" * 64])
def test_what_is_no_safetensors_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    assert len(check_model(tmp_path)) == 1


def test_a_file_cut_at_any_byte_is_seen(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "model.safetensors", {"a": tensor(0, 8), "b": tensor(8, 40)}, 40)
    whole = path.read_bytes()
    for kept in range(len(whole)):
        path.write_bytes(whole[:kept])
        assert check_model(path), kept
    path.write_bytes(whole)
    assert check_model(path) == []


def test_nothing_there_and_an_unknown_format(tmp_path: Path) -> None:
    assert "nothing" in found(tmp_path / "gone")
    assert "no *.safetensors" in found(tmp_path)
    (tmp_path / "medusa_lm_head.pt").write_bytes(b"pickled")
    assert check_model(tmp_path) == []


# --- a folder with an index -----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 2):
        safetensors(tmp_path / f"model-0000{number}-of-00002.safetensors", {f"t{number}": tensor(0, 8)}, 8)
    names = {f"t{number}": f"model-0000{number}-of-00002.safetensors" for number in (1, 2)}
    write_index(tmp_path, {"metadata": {"total_size": 16}, "weight_map": names})
    return tmp_path


def write_index(folder: Path, index: object) -> None:
    (folder / INDEX).write_text(json.dumps(index))


def index_of(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / INDEX).read_text())
    return data


def test_a_folder_and_its_index_agree(folder: Path) -> None:
    assert check_model(folder) == []
    assert remarks(folder) == []


def test_a_missing_shard(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert found(folder) == "no shard model-00002-of-00002.safetensors"


def test_a_tensor_that_its_shard_does_not_have(folder: Path) -> None:
    index = index_of(folder)
    index["weight_map"]["lost"] = "model-00001-of-00002.safetensors"
    write_index(folder, index)
    assert found(folder) == "model-00001-of-00002.safetensors without 'lost'"


def test_a_shard_of_another_file_under_the_right_name(folder: Path) -> None:
    (folder / "model-00001-of-00002.safetensors").write_bytes(
        (folder / "model-00002-of-00002.safetensors").read_bytes()
    )
    assert found(folder) == "model-00001-of-00002.safetensors without 't1'"


def test_an_index_that_leaves_the_folder_names_nothing_that_is_there(folder: Path) -> None:
    index = index_of(folder)
    index["weight_map"]["t1"] = "../model-00001-of-00002.safetensors"
    write_index(folder, index)
    assert "no shard ../" in found(folder)


@pytest.mark.parametrize("index", [[], {}, {"weight_map": []}, {"weight_map": {"a": 1}}])
def test_an_index_without_its_table(folder: Path, index: object) -> None:
    write_index(folder, index)
    assert found(folder) == "no weight_map"


def test_a_total_size_of_yesterday_is_a_remark(folder: Path) -> None:
    write_index(folder, {**index_of(folder), "metadata": {"total_size": 99}})
    assert check_model(folder) == []
    assert "says 99 bytes, the tensors have 16" in remarks(folder)[0]


def test_two_hundred_shards_take_less_than_a_second(tmp_path: Path) -> None:
    names = {}
    for number in range(200):
        header = {f"t{number}.{part}": tensor(part * 8, part * 8 + 8) for part in range(10)}
        path = safetensors(tmp_path / f"model-{number:03}.safetensors", header, 80)
        names.update(dict.fromkeys(header, path.name))
    write_index(tmp_path, {"weight_map": names})
    begun = time.process_time()  # of this process: what else the machine does is not meant
    assert check_model(tmp_path) == []
    assert in_cpu_time(time.process_time() - begun, 1)


# --- GGUF -----------------------------------------------------------------------------------------------


def write_gguf(path: Path, tokens: list[str], types: list[int] | None = None, bos: int = 0) -> Path:
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types(types or [1] * len(tokens))
    writer.add_bos_token_id(bos)
    writer.add_float32("llama.some", 0.5)
    writer.add_array("llama.list", [1, 2, 3])
    writer.add_tensor("a", np.zeros((4, 32), dtype=np.float32))
    writer.add_tensor("b", np.zeros((32,), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


TOKENS = [f"t{number}" for number in range(300)]


def test_a_gguf_head_is_read_as_the_gguf_package_reads_it(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", TOKENS)
    head, other = read_gguf(path), gguf.GGUFReader(path)
    assert head.keys["tokenizer.ggml.tokens"] == TOKENS
    assert (head.keys["llama.some"], head.keys["llama.list"]) == (0.5, [1, 2, 3])
    assert {name: head.data + offset for name, (_, _, offset) in head.tensors.items()} == {
        tensor.name: tensor.data_offset for tensor in other.tensors
    }
    assert check_model(path) == []


def test_a_gguf_file_cut_anywhere_is_seen(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", TOKENS[:4])
    whole = path.read_bytes()
    # Behind the last tensor the writer pads to 32 bytes, which nobody reads.
    for kept in [*range(0, len(whole) - 32, 7), len(whole) - 33]:
        path.write_bytes(whole[:kept])
        assert check_model(path), kept


@pytest.mark.parametrize(
    "content", [b"", b"GGUF", b"GGUF\1\0\0\0", b"GGML" + bytes(40), b"GGUF\3\0\0\0" + b"\xff" * 40]
)
def test_what_is_no_gguf_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    assert len(check_model(tmp_path / "m.gguf")) == 1


# --- target and draft -------------------------------------------------------------------------------------


def hf(folder: Path, words: list[str], *, size: int | None = None, special: dict[int, str] | None = None) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": size or len(words), "bos_token_id": 0}))
    added = [{"id": number, "content": text, "special": True} for number, text in (special or {}).items()]
    model = {"type": "BPE", "vocab": {word: number for number, word in enumerate(words)}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": added}))
    return folder


def unlike(target: Path, draft: Path, method: PairMethod = DRAFT_MODEL) -> str:
    return "\n".join(problem.found for problem in check_pair(target, draft, method))


def test_the_same_tokens_fit(tmp_path: Path) -> None:
    target, draft = hf(tmp_path / "t", TOKENS), hf(tmp_path / "d", TOKENS)
    assert unlike(target, draft) == ""
    assert (
        unlike(target, tmp_path / "no-head-needs-files", {"id": "ngram", "kind": "lookup", "vocab_difference": 0}) == ""
    )


def test_one_token_with_another_meaning(tmp_path: Path) -> None:
    words = [*TOKENS[:7], "other", *TOKENS[8:]]
    target, draft = hf(tmp_path / "t", TOKENS), hf(tmp_path / "d", words)
    assert unlike(target, draft) == "token 7 is 'other'"
    assert "a token id must mean the same" in check_pair(target, draft, DRAFT_MODEL)[0].needed


def test_padded_matrices_of_the_same_vocabulary(tmp_path: Path) -> None:
    # As Qwen2.5 has them: 151,936 rows in the small models, 152,064 in the large ones.
    target, draft = hf(tmp_path / "t", TOKENS, size=448), hf(tmp_path / "d", TOKENS, size=320)
    assert unlike(target, draft) == "320 rows for tokens"
    assert unlike(target, draft, LLAMACPP) == ""


def test_special_tokens_may_have_other_names(tmp_path: Path) -> None:
    target = hf(tmp_path / "t", TOKENS, size=302, special={300: "<|im_end|>"})
    draft = hf(tmp_path / "d", TOKENS, size=302, special={300: "<|reserved_0|>", 301: "<|more|>"})
    assert unlike(target, draft) == ""


def test_ordinary_tokens_that_only_one_has(tmp_path: Path) -> None:
    target, draft = hf(tmp_path / "t", TOKENS, size=300), hf(tmp_path / "d", TOKENS[:290], size=300)
    assert unlike(target, draft) == "10 ordinary tokens that only one of the two has, such as 290"


def test_a_draft_without_a_tokenizer_is_held_against_the_size(tmp_path: Path) -> None:
    target, draft = hf(tmp_path / "t", TOKENS), hf(tmp_path / "d", TOKENS, size=301)
    (draft / "tokenizer.json").unlink()
    assert unlike(target, draft) == "301 rows for tokens"


def test_other_forms_of_a_tokenizer(tmp_path: Path) -> None:
    target, draft = hf(tmp_path / "t", TOKENS), hf(tmp_path / "d", TOKENS)
    (draft / "tokenizer.json").unlink()
    (draft / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(TOKENS)}))
    (draft / "added_tokens.json").write_text(json.dumps({"<x>": 300}))
    (draft / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"301": {"content": "<y>"}}}))
    assert unlike(target, draft) == ""
    (draft / "vocab.json").write_text(json.dumps({"other": 0}))
    assert "token 0 is 'other'" in unlike(target, draft)
    for folder, content in ((target, b"one"), (draft, b"two")):
        for name in ("tokenizer.json", "vocab.json"):
            (folder / name).unlink(missing_ok=True)
        (folder / "tokenizer.model").write_bytes(content)
    assert unlike(target, draft) == "a tokenizer file other than the target's"


def test_a_broken_tokenizer_is_a_problem_and_no_traceback(tmp_path: Path) -> None:
    target, draft = hf(tmp_path / "t", TOKENS), hf(tmp_path / "d", TOKENS)
    for content in ("{", "[]", "{}", '{"model": {}}', '{"model": {"vocab": {}}, "added_tokens": [{}]}'):
        (draft / "tokenizer.json").write_text(content)
        assert "can't be read" in unlike(target, draft), content


def test_gguf_vocabularies(tmp_path: Path) -> None:
    target = write_gguf(tmp_path / "t.gguf", TOKENS)
    assert unlike(target, write_gguf(tmp_path / "d.gguf", TOKENS), LLAMACPP) == ""
    other = write_gguf(tmp_path / "o.gguf", [*TOKENS[:9], "other", *TOKENS[10:]])
    assert unlike(target, other, LLAMACPP) == "token 9 is 'other'"
    assert unlike(target, write_gguf(tmp_path / "b.gguf", TOKENS, bos=1), LLAMACPP).startswith(
        "'t1' as the beginning-of-text token"
    )
    assert unlike(target, hf(tmp_path / "d", TOKENS), LLAMACPP) == ""


def head(folder: Path, table: list[int] | None, **config: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    values = struct.pack(f"<{len(table or [])}q", *(table or []))
    header = {"d2t": tensor(0, len(values), "I64", [len(table)])} if table else {"w": tensor(0, 0)}
    path = safetensors(folder / "model.safetensors", header, 0)
    path.write_bytes(path.read_bytes() + values)
    assert check_model(folder) == []
    return folder


def test_a_head_proposes_what_the_target_has(tmp_path: Path) -> None:
    target = hf(tmp_path / "t", TOKENS)
    assert unlike(target, head(tmp_path / "good", [0, 5, 297], vocab_size=300), HEAD) == ""
    assert unlike(target, head(tmp_path / "bad", [0, 5, 298], vocab_size=300), HEAD).endswith("maps to token 300")
    assert unlike(target, head(tmp_path / "own", None, vocab_size=300), HEAD) == ""
    assert unlike(target, head(tmp_path / "large", None, vocab_size=301), HEAD) == "a head that proposes 301 tokens"
