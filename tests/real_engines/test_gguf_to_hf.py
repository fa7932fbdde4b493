"""A padded GGUF becomes a padded Hugging Face folder, by the transformers that vLLM itself runs on."""

import json
import math
from pathlib import Path

from drafthouse.weights.demo.recipes import gguf_to_hf, pad_blocks
from tests.support.engines import engine_home, packaged_weights


def test_identity_blocks_survive_the_conversion(tmp_path: Path) -> None:
    padded = pad_blocks(str(packaged_weights("smollm2-135m-q4")), str(tmp_path / "padded.gguf"), blocks=32)
    folder = Path(
        gguf_to_hf(padded.path, str(tmp_path / "hf"), python=str(engine_home("vllm") / "bin" / "python")).path
    )
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert (config["num_hidden_layers"], config["tie_word_embeddings"]) == (32, True)
    assert (folder / "tokenizer.json").is_file()
    assert (folder / "chat_template.jinja").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "padded.gguf"]

    # safetensors: the length of a JSON header, the header, then the tensors at its offsets.
    content = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])

    def values(name: str) -> bytes:
        entry = header[name]
        start, end = entry["data_offsets"]
        assert entry["dtype"] == "BF16"
        assert end - start == 2 * math.prod(entry["shape"])
        return content[8 + length + start : 8 + length + end]

    for layer in (30, 31):
        for writer in ("self_attn.o_proj", "mlp.down_proj"):
            assert not any(values(f"model.layers.{layer}.{writer}.weight"))
        for reader in ("self_attn.q_proj", "mlp.up_proj"):
            own = values(f"model.layers.{layer - 30}.{reader}.weight")
            assert any(own)
            assert values(f"model.layers.{layer}.{reader}.weight") == own
