"""Heads with random weights: the shapes of real ones, the same bytes every time."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drafthouse.weights.demo.gguf_files import file_sha256
from tests.support.made_models import random_head
from tests.support.random_heads import CannotMake

TARGET = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 9000,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
}  # fmt: skip
SUMS = {
    "eagle3": "ed438054f41c25d915a8d3578c1db79f7850ff539b4c6122d11dfb3c670d6c63",
    "dflash": "858cbf83b749a63586257223a8ce4d05b654d09143908014d20ad12f28fab591",
    "mtp": "146e3983bff3a7b54d968a9b0d171c52bbc3f464bd9c7fc65704201d0ab9dabb",
}


def write_target(folder: Path, **changed: object) -> Path:
    folder.mkdir(parents=True)
    config = {key: value for key, value in {**TARGET, **changed}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_weights(folder: Path, content: dict[str, bytes]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, bits in content.items():
        offsets = [len(data), len(data) + len(bits)]
        header[name] = {"dtype": "BF16", "shape": [len(bits) // 2], "data_offsets": offsets}
        data += bits
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def tensors_of(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    content = (folder / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:start])
    header.pop("__metadata__")
    found = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        found[name] = (entry["dtype"], entry["shape"], content[start + first : start + end])
    return found


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


def numbers(bits: bytes) -> np.ndarray:
    return (np.frombuffer(bits, dtype="<u2").astype("<u4") << 16).view("<f4")


def test_an_eagle3_head_has_the_shapes_of_a_real_one(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    head = tensors_of(random_head("eagle3", target, tmp_path / "head"))
    shapes = {name: shape for name, (_, shape, _) in head.items()}
    assert shapes["fc.weight"] == [64, 3 * 64]
    assert shapes["layers.0.self_attn.q_proj.weight"] == [64, 2 * 64]
    assert shapes["layers.0.self_attn.k_proj.weight"] == [32, 2 * 64]
    assert shapes["lm_head.weight"] == [8192, 64]
    assert (shapes["d2t"], shapes["t2d"]) == ([8192], [9000])
    for name, (kind, shape, data) in head.items():
        assert len(data) == math.prod(shape) * {"BF16": 2, "I64": 8, "BOOL": 1}[kind], name
    assert sum(head["t2d"][2]) == 8192
    for name in ("norm", "layers.0.hidden_norm"):
        assert set(numbers(head[f"{name}.weight"][2])) == {1.0}
    for name, columns in (("fc", 192), ("lm_head", 64), ("layers.0.mlp.down_proj", 96)):
        values = numbers(head[f"{name}.weight"][2])
        assert abs(values.mean()) < 0.1 * values.std()
        assert 0.7 < values.std() * math.sqrt(columns) < 1.5, name


def test_an_eagle3_heads_configuration_names_nothing_to_fetch(tmp_path: Path) -> None:
    folder = random_head("eagle3", write_target(tmp_path / "target"), tmp_path / "head")
    config = config_of(folder)
    assert config["speculators_config"]["verifier"]["name_or_path"] is None
    assert config["speculators_model_type"] == "eagle3"
    assert config["transformer_layer_config"]["num_hidden_layers"] == 1
    assert config["transformer_layer_config"]["head_dim"] == 16
    assert config["transformer_layer_config"]["rope_theta"] == 10000.0
    assert "random" in config["drafthouse_synthetic"]


def test_a_dflash_head_reads_three_of_the_targets_blocks(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target", num_hidden_layers=30)
    folder = random_head("dflash", target, tmp_path / "head")
    config, head = config_of(folder), {name: shape for name, (_, shape, _) in tensors_of(folder).items()}
    assert config["architectures"] == ["DFlashDraftModel"]
    assert config["dflash_config"] == {"mask_token_id": 8999, "target_layer_ids": [1, 15, 27]}
    assert head["fc.weight"] == [64, 3 * 64]
    assert head["layers.0.self_attn.q_norm.weight"] == [16]
    # Its embedding and its output matrix are the target's.
    assert not [name for name in head if "embed" in name or "lm_head" in name]


def test_an_mtp_head_is_inside_a_copy_of_its_target(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    own = np.arange(12, dtype="<u2").tobytes()
    write_weights(tmp_path / "target", {"model.norm.weight": own})
    (tmp_path / "target" / "tokenizer.json").write_text("{}")
    folder = random_head("mtp", target, tmp_path / "with")
    config, made = config_of(folder), tensors_of(folder)
    assert config["architectures"] == ["MiMoForCausalLM"]
    assert config["num_nextn_predict_layers"] == 1
    assert config["num_hidden_layers"] == TARGET["num_hidden_layers"]
    assert (folder / "tokenizer.json").read_text() == "{}"
    assert made["model.norm.weight"] == ("BF16", [12], own)
    assert made["model.mtp_layers.0.input_proj.weight"][1] == [64, 2 * 64]
    # A MiMo's projections have biases, a Llama's have none.
    for block in ("layers.0", "layers.1", "mtp_layers.0"):
        assert not any(made[f"model.{block}.self_attn.k_proj.bias"][2])


def test_the_same_target_gives_the_same_head_everywhere(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target")
    write_weights(tmp_path / "target", {})
    sums = []
    # Written down, so that a change of the bytes is seen.
    for kind, expected in SUMS.items():
        made = [random_head(kind, target, tmp_path / f"{kind}-{name}") for name in "ab"]
        sums += [file_sha256(folder / "model.safetensors") for folder in made]
        assert sums[-2:] == [expected, expected]
    other = write_target(tmp_path / "other", hidden_size=128)
    assert file_sha256(random_head("eagle3", other, tmp_path / "c") / "model.safetensors") not in sums


def test_a_target_that_no_head_fits_is_told(tmp_path: Path) -> None:
    def refused(kind: str, target: Path, words: str) -> None:
        with pytest.raises(CannotMake, match=words):
            random_head(kind, target, tmp_path / "out" / "head")
        assert not (tmp_path / "out").exists()

    refused("eagle3", write_target(tmp_path / "gptoss", model_type="gpt_oss"), "model_type 'gpt_oss'")
    refused("eagle3", write_target(tmp_path / "cut", vocab_size=None), "config.json without vocab_size")
    # A Qwen2 has biases of its own.
    refused("mtp", write_target(tmp_path / "qwen", model_type="qwen2"), "needed is one of llama")
