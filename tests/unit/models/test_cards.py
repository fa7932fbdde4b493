"""Models of 2026 by their config.json and weights, against the sizes that their publishers name (`cards.json`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from drafthouse.models.entry import Facts, made_entry
from drafthouse.models.tensor_totals import TensorKind
from drafthouse.profiles.memory_fit import kv_bytes_per_token
from tests.support.checkpoints import tensor

CARDS: Mapping[str, Any] = json.loads(Path(__file__).with_name("cards.json").read_text("utf-8"))["models"]
UNITS = {"B": 10**9, "T": 10**12}


def _entry(repo: str) -> Any:
    model = CARDS[repo]
    tensors = dict(_tensors(model["tensors"]))
    size = sum(weights.size for weights in tensors.values())
    return made_entry(Facts(repo, "a" * 40, model["config"], {"model.safetensors": size}, tensors), {}).entry


def _tensors(groups: list[Any]) -> Any:
    """Yield the tensors of the groups; matrices are one tensor with a first dimension for all of a group."""
    for group, (name, count, shape) in enumerate(groups):
        if len(shape) < 3:
            yield name.replace("{}", str(group)), tensor(count, 1, *shape)
            continue
        for number in range(count):
            yield name.replace("{}", f"{group}{number}"), tensor(*shape)


def _printed(figure: str) -> tuple[float, float]:
    """A figure of a card, and how much a right one may differ: 3 %, or half of the last digit printed."""
    number, unit = figure[:-1], UNITS[figure[-1]]
    digits = len(number.partition(".")[2])
    return float(number) * unit, max(0.03 * float(number) * unit, 0.5 * 10**-digits * unit)


@pytest.mark.parametrize("repo", CARDS)
def test_parameters_are_those_of_the_card(repo: str) -> None:
    expected, tolerance = _printed(CARDS[repo]["card"]["total"])
    assert _entry(repo)["parameters"] == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("repo", [repo for repo in CARDS if CARDS[repo]["card"]["active"]])
def test_what_a_token_reads_is_the_cards_active_parameters(repo: str) -> None:
    """A token reads the output layer and one row of the embedding; publishers count both, one or none of them."""
    expected, tolerance = _printed(CARDS[repo]["card"]["active"])
    entry = _entry(repo)
    read, table = entry["read_bytes"] / 2, entry["vocab"] * entry["hidden"]
    assert expected <= read + table + tolerance
    assert read - table - tolerance <= expected or "bound" in entry


@pytest.mark.parametrize(
    ("repo", "layers", "per_token", "window"),
    [
        # 6 of 52 layers with attention, of 2 heads of 128 (NVIDIA's page on Nemotron 3 Nano)
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 6, 6 * 2 * 2 * 128 * 2, 0),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 12, 12 * 2 * 2 * 128 * 2, 0),
        # MLA without an indexer; with one, 132 bytes of it in each layer (vLLM 0.33.0, DeepseekV32IndexerCache)
        ("moonshotai/Kimi-K2.5", 61, 61 * 576 * 2, 0),
        ("deepseek-ai/DeepSeek-V3.2", 61, 61 * (576 * 2 + 132), 0),
        # 21 of 78 layers have an indexer of their own
        ("zai-org/GLM-5.2", 78, 78 * 576 * 2 + 21 * 132, 0),
        ("moonshotai/Kimi-K3", 24, 24 * 576 * 2, 0),
        # 18 of 36 layers with a window of 128 tokens (OpenAI's card)
        ("openai/gpt-oss-120b", 18, 18 * 2 * 8 * 64 * 2, 18 * 128 * 2 * 8 * 64 * 2),
        # windows of 512 tokens, with a latent vector twice as wide by per_layer_config
        ("dots-studio/dots3-note-prev", 13, 13 * (576 * 2 + 132), 33 * 512 * 1088 * 2),
        ("inclusionAI/Ling-3.0-flash", 7, 7 * 576 * 2, 0),
        # 16,384 bytes by a published calculation
        ("ibm-granite/granite-4.0-h-small", 4, 16384, 0),
        ("LiquidAI/LFM2.5-8B-A1B", 6, 6 * 2 * 8 * 64 * 2, 0),
        ("Qwen/Qwen3.6-27B", 16, 16 * 2 * 4 * 256 * 2, 0),
        ("google/gemma-4-31B-it", 10, 10 * 2 * 4 * 512 * 2, 50 * 1024 * 2 * 16 * 256 * 2),
    ],
)
def test_the_kv_cache_of_a_token(repo: str, layers: int, per_token: int, window: int) -> None:
    entry = _entry(repo)
    assert entry.get("kv_layers", entry["layers"]) == layers
    assert kv_bytes_per_token(entry, 2) == pytest.approx(per_token, rel=0.03)
    assert entry.get("window_bytes", 0) == window
    assert "bound" not in entry


def test_what_is_not_known_exactly_is_marked() -> None:
    """DeepSeek-V4 compresses tokens, experts of LongCat may do nothing, Scout names no layers that see a chunk."""
    marked = {repo for repo in CARDS if "bound" in _entry(repo)}
    assert marked == {
        "deepseek-ai/DeepSeek-V4-Flash",
        "deepseek-ai/DeepSeek-V4-Pro",
        "meituan-longcat/LongCat-Flash-Chat",
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    }
    # 20 layers keep an entry for 4 tokens, 21 one for 128
    flash = _entry("deepseek-ai/DeepSeek-V4-Flash")
    assert (20 / 4 + 21 / 128) * 512 * 2 <= kv_bytes_per_token(flash, 2) <= 3 * (20 / 4 + 21 / 128) * 512 * 2


def test_bytes_hold_two_weights_whether_or_not_the_configuration_says_so() -> None:
    config = CARDS["moonshotai/Kimi-K2.5"]["config"]
    weights = {"model.layers.0.mlp.experts.0.up_proj.weight": TensorKind("U8", (8, 8), 64)}
    fp8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    rows: list[Any] = [{}, fp8]
    for more in rows:
        entry = made_entry(Facts("org/fp4", "a" * 40, {**config, **more}, {"model.safetensors": 64}, weights), {}).entry
        assert entry["parameters"] == 128
