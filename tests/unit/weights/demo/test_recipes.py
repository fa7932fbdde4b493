"""Derived weights, on a tiny GGUF made here with gguf-py."""

import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.weights.demo import recipes
from drafthouse.weights.demo.gguf_files import file_sha256
from tests.support.made_models import prune_blocks

pytestmark = pytest.mark.processes
BLOCKS, HIDDEN, FEED_FORWARD, VOCAB = 2, 64, 96, 128
MATRICES = {
    "attn_q": (HIDDEN, HIDDEN),
    "attn_k": (HIDDEN // 2, HIDDEN),
    "attn_v": (HIDDEN // 2, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_gate": (FEED_FORWARD, HIDDEN),
    "ffn_up": (FEED_FORWARD, HIDDEN),
    "ffn_down": (HIDDEN, FEED_FORWARD),
}
Q4_1, F32, BF16 = (gguf.GGMLQuantizationType[name] for name in ("Q4_1", "F32", "BF16"))


def write_model(
    path: Path, kind: gguf.GGMLQuantizationType = Q4_1, extra: dict[str, tuple[int, ...]] | None = None
) -> Path:
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, arch="llama")
    writer.add_name("tiny")
    writer.add_block_count(BLOCKS)
    writer.add_embedding_length(HIDDEN)
    writer.add_size_label("1M")
    writer.add_file_type(3)
    writer.add_quantization_version(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_array("llama.attention.head_count_kv", [4, 2])
    writer.add_token_list([f"<{number}>" for number in range(VOCAB)])

    def add(name: str, shape: tuple[int, ...]) -> None:
        values = random.standard_normal(shape, dtype=np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", (VOCAB, HIDDEN))  # tied: there is no output.weight
    for block in range(BLOCKS):
        add(f"blk.{block}.attn_norm.weight", (HIDDEN,))
        for name, (rows, columns) in MATRICES.items():
            add(f"blk.{block}.{name}.weight", (rows, columns))
        add(f"blk.{block}.attn_output.bias", (HIDDEN,))
        add(f"blk.{block}.ffn_norm.weight", (HIDDEN,))
    for name, shape in (extra or {}).items():
        add(name, shape)
    add("output_norm.weight", (HIDDEN,))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tiny.gguf")


def plain(tensor: gguf.ReaderTensor) -> np.ndarray:
    return np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type))


def read(path: Path | str) -> tuple[dict[str, object], dict[str, gguf.ReaderTensor]]:
    reader = gguf.GGUFReader(path)
    keys = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    return keys, {tensor.name: tensor for tensor in reader.tensors}


def said(error: pytest.ExceptionInfo[DrafthouseError]) -> str:
    return str(error.value)


def test_dequantize_writes_matrices_in_bf16_and_vectors_in_f32(model: Path, tmp_path: Path) -> None:
    recipes.dequantize(str(model), str(tmp_path / "out.gguf"))
    before, after = read(model)[1], read(tmp_path / "out.gguf")[1]
    assert list(after) == list(before)
    for name, tensor in after.items():
        assert tensor.tensor_type == (BF16 if len(tensor.shape) > 1 else F32), name
        assert list(tensor.shape) == list(before[name].shape), name
        # bf16 has 8 bits of mantissa, the hidden one counted: half a step is 2^-9 of the value.
        assert np.allclose(plain(tensor), plain(before[name]), rtol=2**-8, atol=0), name


def test_dequantize_to_f32_keeps_every_value(model: Path, tmp_path: Path) -> None:
    recipes.dequantize(str(model), str(tmp_path / "out.gguf"), dtype="F32")
    before, after = read(model)[1], read(tmp_path / "out.gguf")[1]
    for name, tensor in after.items():
        assert tensor.tensor_type == F32
        assert np.array_equal(plain(tensor), plain(before[name])), name


def test_dequantize_tells_the_new_type_and_keeps_the_rest(model: Path, tmp_path: Path) -> None:
    recipes.dequantize(str(model), str(tmp_path / "out.gguf"))
    before, after = read(model)[0], read(tmp_path / "out.gguf")[0]
    assert after.pop("general.file_type") == 32
    assert "general.quantization_version" not in after
    for key in ("general.file_type", "general.quantization_version"):
        before.pop(key)
    assert after == before


def test_padded_blocks_are_copies_that_add_nothing(model: Path, tmp_path: Path) -> None:
    recipes.pad_blocks(str(model), str(tmp_path / "out.gguf"), blocks=5)
    before, after = read(model)[1], read(tmp_path / "out.gguf")[1]
    assert len(after) == len(before) + 3 * (len(MATRICES) + 3)
    for name, tensor in before.items():
        assert np.array_equal(after[name].data, tensor.data), name
    for block in range(BLOCKS, 5):
        for role in [*MATRICES, "attn_norm", "ffn_norm"]:
            new, old = after[f"blk.{block}.{role}.weight"], before[f"blk.{block % BLOCKS}.{role}.weight"]
            assert new.tensor_type == old.tensor_type
            assert list(new.shape) == list(old.shape)
            if role in {"attn_output", "ffn_down"}:
                assert not plain(new).any(), role
            else:
                assert np.array_equal(new.data, old.data), role
        assert not plain(after[f"blk.{block}.attn_output.bias"]).any()


def test_padding_adjusts_the_metadata_and_says_that_it_is_synthetic(model: Path, tmp_path: Path) -> None:
    recipes.pad_blocks(str(model), str(tmp_path / "out.gguf"), blocks=5)
    before, after = read(model)[0], read(tmp_path / "out.gguf")[0]
    assert after["llama.block_count"] == 5
    assert after["llama.attention.head_count_kv"] == [4, 2, 4, 2, 4]
    assert after["drafthouse.synthetic"] == "identity blocks: 2 -> 5"
    assert "general.size_label" not in after
    for key in ("tokenizer.ggml.tokens", "llama.embedding_length", "general.name"):
        assert after[key] == before[key]


def test_a_pruned_model_keeps_its_first_and_its_last_blocks(model: Path, tmp_path: Path) -> None:
    five = recipes.pad_blocks(str(model), str(tmp_path / "five.gguf"), blocks=5)
    pruned = tmp_path / "three.gguf"
    prune_blocks(Path(five.path), pruned, blocks=3)
    assert pruned.stat().st_size < five.bytes
    (_, before), (metadata, after) = read(Path(five.path)), read(pruned)
    assert metadata["llama.block_count"] == 3
    assert metadata["llama.attention.head_count_kv"] == [4, 2, 4]
    assert metadata["drafthouse.synthetic"] == "blocks taken out: 5 -> 3"
    assert len(after) == len(before) - 2 * (len(MATRICES) + 3)
    assert np.array_equal(after["token_embd.weight"].data, before["token_embd.weight"].data)
    for new, old in enumerate((0, 1, 4)):
        for role in MATRICES:
            assert np.array_equal(after[f"blk.{new}.{role}.weight"].data, before[f"blk.{old}.{role}.weight"].data)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q5_1", "Q4_0"])
def test_zero_bytes_are_the_value_zero_in_every_type(tmp_path: Path, kind: str) -> None:
    source = write_model(tmp_path / "tiny.gguf", gguf.GGMLQuantizationType[kind])
    recipes.pad_blocks(str(source), str(tmp_path / "out.gguf"), blocks=3)
    assert not plain(read(tmp_path / "out.gguf")[1]["blk.2.ffn_down.weight"]).any()


def test_the_same_input_gives_the_same_bytes(model: Path, tmp_path: Path) -> None:
    first = recipes.dequantize(str(model), str(tmp_path / "a" / "out.gguf"))
    second = recipes.dequantize(str(model), str(tmp_path / "b" / "out.gguf"))
    assert first.sha256 == second.sha256 == file_sha256(Path(first.path))
    assert first.bytes == Path(first.path).stat().st_size
    padded = [recipes.pad_blocks(str(model), str(tmp_path / name), blocks=4).sha256 for name in "cd"]
    assert padded[0] == padded[1]


def test_progress_ends_at_the_whole(model: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    recipes.pad_blocks(str(model), str(tmp_path / "out.gguf"), 3, lambda done, all_: seen.append((done, all_)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] > 0


def test_nothing_half_written_is_left_behind(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "x.gguf"

    def stop(done: int, _all: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recipes.dequantize(str(model), str(out), progress=stop)
    assert list(out.parent.iterdir()) == []


def test_a_wrong_input_is_told_in_words(model: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out.gguf")
    with pytest.raises(DrafthouseError) as error:
        recipes.dequantize(str(tmp_path / "absent.gguf"), out)
    assert "No such file" in said(error)
    text = tmp_path / "page.gguf"
    text.write_text("<html>not found</html>")
    with pytest.raises(DrafthouseError) as error:
        recipes.dequantize(str(text), out)
    assert "starting with b'<htm'" in said(error)
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[: model.stat().st_size // 2])
    with pytest.raises(DrafthouseError) as error:
        recipes.dequantize(str(cut), out)
    assert "damaged GGUF" in said(error)
    with pytest.raises(DrafthouseError) as error:
        recipes.dequantize(str(model), out, dtype="BF61")
    assert "write 'BF16'" in said(error)
    with pytest.raises(DrafthouseError) as error:
        recipes.pad_blocks(str(model), out, blocks=2)
    assert "more than the model's own 2 blocks" in said(error)
    assert not Path(out).exists()


def test_padding_refuses_blocks_it_does_not_understand(tmp_path: Path) -> None:
    strange = write_model(tmp_path / "ssm.gguf", extra={"blk.0.ssm_out.weight": (HIDDEN, HIDDEN)})
    with pytest.raises(DrafthouseError) as error:
        recipes.pad_blocks(str(strange), str(tmp_path / "out.gguf"), blocks=4)
    assert "blk.0.ssm_out.weight" in said(error)
    assert "do: pad a dense model" in said(error)


def test_an_existing_result_is_replaced_at_once(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_text("old")
    recipes.dequantize(str(model), str(out))
    assert read(out)[0]["general.name"] == "tiny"


def test_a_place_that_cannot_be_written_is_told(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DrafthouseError) as error:
        recipes.dequantize(str(model), str(tmp_path / "file" / "out.gguf"))
    assert "choose another folder" in said(error)


def test_recipe_keys_differ_by_everything_that_matters() -> None:
    key = recipes.recipe_key("gguf_pad_blocks", {"blocks": 120}, ["aa"])
    assert key == recipes.recipe_key("gguf_pad_blocks", {"blocks": 120}, ["aa"])
    assert len(key) == 64
    others = [
        recipes.recipe_key("gguf_pad_blocks", {"blocks": 60}, ["aa"]),
        recipes.recipe_key("gguf_pad_blocks", {"blocks": 120}, ["bb"]),
        recipes.recipe_key("gguf_dequantize", {"blocks": 120}, ["aa"]),
    ]
    assert len({key, *others}) == 4
    with pytest.raises(DrafthouseError) as error:
        recipes.recipe_key("gguf_pad_block", {}, [])
    assert "write 'gguf_pad_blocks'" in said(error)


def test_conversion_needs_the_engines_environment(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError) as error:
        recipes.gguf_to_hf(str(model), str(tmp_path / "hf"), python=str(tmp_path / "bin" / "python"))
    assert "install the engine first" in said(error)


def test_a_failed_conversion_says_why_and_leaves_nothing(model: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "gguf-to-hf"
    program.parent.mkdir()
    program.write_text("import sys; sys.exit('gguf-to-hf: tiny.gguf: architecture unknown')\n")
    python = program.with_name("python")
    python.symlink_to(sys.executable)
    with pytest.raises(DrafthouseError) as error:
        recipes.gguf_to_hf(str(model), str(tmp_path / "out" / "hf"), python=str(python))
    assert "architecture unknown" in said(error)
    assert list((tmp_path / "out").iterdir()) == []
