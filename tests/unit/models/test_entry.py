"""The entry that a configuration gives, against the catalogue's own, written by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafthouse.models.entry import Facts, entry_id, made_entry
from drafthouse.models.tensor_totals import TensorKind
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT
from tests.support.checkpoints import llama_like
from tests.support.refusals import refuses

HOUSE = load_catalog(ROOT)
CONFIGS = ROOT / "tests" / "real_engines" / "model_configs"
CONFIG_OF = {key: CONFIGS / f"{model['name'].rpartition('/')[2]}.json" for key, model in HOUSE.models.items()}
KEYS = [key for key, path in CONFIG_OF.items() if path.is_file()]
#: What people chose (names, folders), and what stands in the weights' headers and on the repository's page.
BESIDE = {
    *("source", "folder", "served_name", "license", "gated", "temperature", "since", "works_on", "state_bytes"),
    *("weight_bytes", "read_bytes", "parameters", "builtin_head"),
}
#: Where the hand-written entry has it from a card, a recipe or a whole configuration, which these files are not.
_ELSEWHERE = [
    ("traits", "qwen38-27b-nvfp4 qwen38-27b-nvfp4-unsloth qwen36-27b-nvfp4 qwen36-35b-a3b-nvfp4 gemma4-31b"),
    ("traits kv_layers window_bytes bound", "muse-glimmer-30b-nvfp4"),
    # Some caches are counted as if every layer kept every token, which is too much and never too little.
    ("kv_layers window_bytes", "gpt-oss-120b gpt-oss-20b nemotron35-lightning-dspark muse-glimmer-30b-assistant"),
    ("traits bound", "qwen38-flash-next-nvfp4 qwen38-flash-next-fp8 glm53-flash-nvfp4"),
    ("bound", "qwen38-27b-dspark"),
    ("kv_layers window_bytes bound max_speculative_tokens", "qwen38-27b-dflash2 glm53-flash-dflash2"),
    # Its one cached vector of 512 is counted as a key and a value, and in every layer, as an upper bound; its
    # configuration tells of the other weights' FP8.
    ("head_dim quantization traits kv_layers window_bytes", "deepseek-v4-flash-0731"),
    # By hand without the keys of its indexer, 66 of 578 values.
    ("head_dim", "glm53-flash-nvfp4"),
    # It reads its target's cache.
    ("kv_layers kv_heads head_dim", "gemma4-31b-assistant"),
    ("max_speculative_tokens", "gpt-oss-120b-eagle3-throughput gpt-oss-20b-peagle qwen3-8b-peagle"),
    # What their configurations propose was not seen.
    ("speculators", "llama33-70b-eagle3 qwen3-8b-peagle"),
    # Nothing depends on it, so nobody wrote it down.
    ("quantization", "llama33-70b-fp8 llama32-3b-fp8 llama32-3b-gptq gpt-oss-120b nemotron35-lightning-dspark"),
]
ELSEWHERE = {
    key: {name for names, keys in _ELSEWHERE if key in keys.split() for name in names.split()} for key in HOUSE.models
}
ONE = {"fc.weight": TensorKind("BF16", (1, 1), 2)}


def _config(key: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(CONFIG_OF[key].read_text("utf-8"))
    return read


def _made(config: dict[str, Any], head_for: str | None = None, repo: str = "org/name") -> Any:
    return made_entry(Facts(repo, "a" * 40, config, {"model.safetensors": 2}, ONE), HOUSE.models, head_for=head_for)


@pytest.mark.parametrize("key", KEYS)
def test_an_entry_is_the_hand_written_one(key: str) -> None:
    ours: Any = HOUSE.models[key]
    made = _made(_config(key), ours.get("head_for"), ours["name"]).entry
    aside = BESIDE | ELSEWHERE[key]
    differs = {name: (ours.get(name), made.get(name)) for name in {*ours, *made} - aside}
    assert {name: pair for name, pair in differs.items() if pair[0] != pair[1]} == {}


def test_twelve_models_and_heads_of_every_method_are_the_hand_written_ones_in_all() -> None:
    in_all = [key for key in KEYS if not ELSEWHERE[key]]
    assert len([key for key in in_all if HOUSE.models[key]["kind"] == "model"]) >= 8
    assert len(in_all) >= 12
    methods = {method for key in KEYS if (method := HOUSE.models[key].get("head_method"))}
    assert methods == {model["head_method"] for model in HOUSE.models.values() if "head_method" in model}


DENSE_ONES = [
    key
    for key in KEYS
    if HOUSE.models[key]["kind"] == "model"
    and _config(key).get("model_type") in ("llama", "qwen3")
    and "quantization_config" not in _config(key)
]


@pytest.mark.parametrize("key", DENSE_ONES)
def test_weights_of_a_dense_model_are_the_hand_written_ones(key: str) -> None:
    ours, config = HOUSE.models[key], _config(key)
    tensors = llama_like(config)
    files = {"model.safetensors": sum(one.size for one in tensors.values())}
    made = made_entry(Facts(ours["name"], "a" * 40, config, files, tensors), HOUSE.models).entry
    assert made["parameters"] == pytest.approx(ours["parameters"], rel=1e-4)
    assert made["weight_bytes"] == pytest.approx(ours["weight_bytes"], rel=1e-3)


DENSE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4, "vocab_size": 100,
    "max_position_embeddings": 1000,
}  # fmt: skip


def _groups(bits: int, kind: str = "float", **more: object) -> dict[str, object]:
    return {"g": {"weights": {"num_bits": bits, "type": kind, **more}}}


@pytest.mark.parametrize(
    ("said", "quantization"),
    [
        (None, None),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "mixed-precision"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4"),
        ({"quant_method": "compressed-tensors", "config_groups": _groups(8, strategy="channel")}, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": _groups(8, strategy="block")}, "fp8-block"),
        ({"quant_method": "compressed-tensors", "config_groups": _groups(4, "int")}, "int4"),
        # unsloth's: FP8 by channel beside the 4-bit groups
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {**_groups(8, strategy="channel"), "h": _groups(4, group_size=16)["g"]},
            },
            "nvfp4",
        ),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": 1}}, None),
        ({"quant_method": "Mine / 2"}, "mine-2"),
        ("mine", None),
    ],
)
def test_how_the_weights_are_stored(said: object, quantization: str | None) -> None:
    config = DENSE if said is None else {**DENSE, "quantization_config": said}
    assert _made(config).entry.get("quantization") == quantization


@pytest.mark.parametrize(
    ("config", "head_for", "expected"),
    [
        ({"architectures": ["MedusaModel"], "hidden_size": 4096, "num_heads": 5, "vocab_size": 128256}, "llama31-8b",
         {"head_method": "medusa", "max_speculative_tokens": 5, "layers": 1, "kv_heads": 1, "context": 1 << 20}),
        ({"architectures": ["ArcticMLPSpeculatorPreTrainedModel"], "emb_dim": "8192", "n_predict": 3,
          "input_hidden_dim": 8192, "vocab_size": 128256}, "llama3-70b",
         {"head_method": "arctic", "max_speculative_tokens": 3, "hidden": 8192}),
    ],
)  # fmt: skip
def test_heads_without_attention_are_read(config: Any, head_for: str, expected: dict[str, Any]) -> None:
    entry = _made(config, head_for).entry
    assert {key: entry[key] for key in expected} == expected
    with refuses("draft-of-another-target"):
        _made(config, "llama32-1b")


def test_a_draft_model_that_was_trained_for_pard_says_so() -> None:
    entry = _made({**DENSE, "pard_token": 99}).entry
    assert (entry["kind"], entry["head_method"]) == ("model", "pard")
    assert "head_method" not in _made(DENSE).entry


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"base_model_name_or_path": "lmsys/vicuna-7b-v1.3", "medusa_num_heads": 5}, "authors' own format"),
        ({"architectures": ["HydraModel"]}, "no engine in the catalogue supports"),
        ({"architectures": ["X"], "speculators_config": {"algorithm": "mtp9"}}, "no engine in the catalogue"),
    ],
)
def test_heads_that_no_engine_loads_are_refused_with_the_reason(config: dict[str, Any], says: str) -> None:
    with refuses("model-shape-unknown", match=says):
        _made({**DENSE, **config}, "llama31-8b")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Qwen/Qwen3-14B", "qwen3-14b"), ("org/A b!c", "a-b-c"), ("org/___", "model")],
)
def test_an_entry_is_called_as_its_repository(name: str, expected: str) -> None:
    assert entry_id(name) == expected


@pytest.mark.parametrize("name", ["layers.0.mlp.experts.3.up_proj.weight", "layers.0.mixer.A_log"])
def test_what_only_the_weights_tell_of_is_noted_and_marked(name: str) -> None:
    """A family whose keys are all unknown is dense, with attention in every layer, by its configuration."""
    config = _config("qwen3-8b")
    tensors = {name: TensorKind("BF16", (1, 1), 2)}
    new = made_entry(Facts("org/name", "a" * 40, config, {"model.safetensors": 2}, tensors), HOUSE.models)
    assert new.entry["bound"] == "at most"
    assert [note for note in new.notes if "says nothing that is known" in note]
    assert "bound" not in _made(config).entry


def test_figures_that_may_be_too_small_are_no_upper_bounds() -> None:
    config = _config("qwen3-8b")
    assert _made({**config, "loop_num_passes": 3}).entry["bound"] == "about"
    assert _made({**config, "attention_pattern": "LLG"}).entry["bound"] == "at most"
