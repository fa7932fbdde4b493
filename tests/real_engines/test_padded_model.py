"""The padded model is the same function: through the real engine it writes the same text, only slower."""

from pathlib import Path

import pytest

from drafthouse.weights.demo.recipes import dequantize, pad_blocks
from tests.support.engines import engine_home, llama_server, packaged_weights

PROMPTS = (
    "Write two sentences about a lighthouse.",
    "Copy this text exactly: The river ran under the old bridge, past the mill and the meadow.",
)


def texts(home: Path, model: str) -> list[str]:
    with llama_server(home, "-m", model, "-np", "1", "-c", "1024") as server:
        return [server.greedy(prompt, 48)["choices"][0]["message"]["content"] for prompt in PROMPTS]


@pytest.mark.soak
def test_identity_blocks_change_no_word(tmp_path: Path) -> None:
    home = engine_home("llamacpp")
    # F32: in BF16 greedy texts differ between two servers that differ in nothing but batching.
    plain = dequantize(str(packaged_weights("smollm2-135m-q4")), str(tmp_path / "f32.gguf"), "F32")
    padded = pad_blocks(plain.path, str(tmp_path / "padded.gguf"), blocks=40)
    assert padded.bytes > plain.bytes * 1.2
    expected = texts(home, plain.path)
    assert all(text.strip() for text in expected)
    assert texts(home, padded.path) == expected
