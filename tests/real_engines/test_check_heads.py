"""Commands with heads of every kind, by vLLM's own parser and configuration: made models, which nobody serves.

The configurations are small, and made after what vLLM's own code reads of such models: a Qwen 3 Next (a hybrid, as is
Qwen 3.5, whose own class asks for torchvision, which the CPU environment is without) and a DeepSeek V3 with a head
inside, and heads of their own for a small Qwen 3. That right words pass says little alone: wrong ones are tried too.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from drafthouse.profiles.catalog import Catalog, load_catalog
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory
from tests.real_engines.test_check_commands import PIN, Check, Command, checker, with_speculation

BASE, HEAD_BASE = "llama32-3b", "qwen3-32b-eagle3"
_SMALL = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
_QWEN3 = {**_SMALL, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 4}
_QWEN3_NEXT = {
    **_SMALL,
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 128,
    "num_nextn_predict_layers": 1,
}
_DEEPSEEK = {
    **{key: value for key, value in _SMALL.items() if key != "head_dim"},
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "num_nextn_predict_layers": 2,
    "q_lora_rank": 64,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": True,
}
_VERIFIER = {
    "algorithm": "made",
    "default_proposal_method": "greedy",
    "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 7}],
    "verifier": {"name_or_path": "made/qwen3", "architectures": ["Qwen3ForCausalLM"]},
}
_LAYERS = {**_QWEN3, "num_hidden_layers": 2}
_PEAGLE = {
    "speculators_model_type": "peagle",
    "architectures": ["PEagleSpeculator"],
    "speculators_config": _VERIFIER,
    "transformer_layer_config": {**_LAYERS, "model_type": "llama"},
    "draft_vocab_size": 512,
    "mask_token_id": 1,
    "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
}
_DFLASH = {
    **_LAYERS,
    "architectures": ["DFlashDraftModel"],
    "block_size": 8,
    "num_target_layers": 4,
    "dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 2]},
}
_DSPARK = {**_DFLASH, "architectures": ["Qwen3DSparkModel"], "markov_rank": 16, "markov_head_type": "vanilla"}
CONFIGS: dict[str, Any] = {
    "made-qwen3-next": _QWEN3_NEXT,
    "made-deepseek": _DEEPSEEK,
    "made-qwen3": _QWEN3,
    "made-peagle": _PEAGLE,
    "made-dflash": _DFLASH,
    "made-dflash2": {**_DFLASH, "architectures": ["DFlash2DraftModel"]},
    "made-dspark": _DSPARK,
}
#: Target, method, draft, K, options of the draft.
CASES: dict[str, tuple[str, str, str | None, int, dict[str, Any]]] = {
    "qwen mtp": ("made-qwen3-next", "mtp", None, 3, {"moe_backend": "triton", "draft_sample_method": "probabilistic"}),
    "deepseek mtp": ("made-deepseek", "mtp", None, 4, {"rejection_sample_method": "block"}),
    "peagle": ("made-qwen3", "peagle", "made-peagle", 7, {}),
    "dflash": ("made-qwen3", "dflash", "made-dflash", 7, {"kv_cache_dtype": "auto", "max_model_len": 1024}),
    "dflash2": ("made-qwen3", "dflash", "made-dflash2", 7, {}),
    "dspark": ("made-qwen3", "dspark", "made-dspark", 7, {"attention_backend": "FLASH_ATTN"}),
}

#: What only the second model runner has: the configuration is made whole, and ends with what the first one has not. The
#: second needs Triton, which the CPU build is without.
SECOND_RUNNER = {
    "dflash2": "Model Runner V1 does not support: DFlash candidate-head drafts",
    "dspark": "Model Runner V1 does not support: dspark speculative decoding",
}


def made_catalog() -> Catalog:
    catalog = copy.deepcopy(load_catalog(ROOT))
    for name in ("made-qwen3-next", "made-deepseek", "made-qwen3"):
        catalog.models[name] = {**catalog.models[BASE], "name": name, "folder": name, "context": 4096, "heads": 4}
    catalog.models["made-qwen3-next"]["builtin_head"] = {"kind": "mtp", "layers": 1, "tensors": ["mtp.*"]}
    catalog.models["made-deepseek"]["builtin_head"] = {
        "kind": "mtp", "layers": 2, "n_predict": 2, "tensors": ["model.layers.3.*"],
    }  # fmt: skip
    for name in ("made-peagle", "made-dflash", "made-dflash2", "made-dspark"):
        kind = name.removeprefix("made-").rstrip("2")
        head: Any = {"name": name, "folder": name, "head_for": "made-qwen3", "head_method": kind, "context": 4096}
        catalog.models[name] = {**catalog.models[HEAD_BASE], **head}
    return catalog


def commands(case: str) -> list[Command]:
    """The commands of both arms, as they are resolved for the pinned version."""
    target, method, draft, tokens, options = CASES[case]
    catalog = made_catalog()
    spec: Any = {
        "method": method,
        "num_speculative_tokens": tokens,
        "options": options,
        **({"draft": draft} if draft else {}),
    }
    catalog.profiles["made"] = {
        "title": case,
        "hardware": "rtx6000",
        "engine": "vllm",
        "engine_version": PIN,
        "target": target,
        "speculation": spec,
        "serve": {"max_model_len": 2048},
        "experiment": {"suites": ["mixed"]},
    }
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
    resolved = resolve(catalog, "made", dict(site_of_inventory("workstation")), kinds)
    models = [model for model in (resolved["target"], resolved["draft"]) if model]
    found = []
    for arm, built in resolved["arms"].items():
        found.append(
            {
                "name": f"{case} {arm}",
                "argv": [*built["command"], *(word for flag in built["flags"] for word in flag)],
                "environment": built["environment"],
                "model_configs": {model["path"]: copy.deepcopy(CONFIGS[model["id"]]) for model in models},
            }
        )
    return found


@pytest.fixture(scope="module")
def check() -> Check:
    return checker(PIN)


def test_every_kind_of_head_passes_in_both_arms(check: Check) -> None:
    verdicts = check([command for case in CASES for command in commands(case)])
    said = {verdict["name"]: (verdict["parser"], verdict["engine_config"]) for verdict in verdicts}
    assert len(said) == 2 * len(CASES)
    for case, words in SECOND_RUNNER.items():
        parser, config = said.pop(f"{case} speculative")
        assert (parser, config.endswith(words)) == ("ok", True), config
    assert said == dict.fromkeys(said, ("ok", "ok"))


def test_what_the_resolver_refuses_vllm_refuses_too(check: Check) -> None:
    verdicts = check([command for command, _ in refused()])
    for verdict, (_, words) in zip(verdicts, refused(), strict=True):
        assert words in verdict["engine_config"], verdict


def refused() -> list[tuple[Command, str]]:
    """Commands that the resolver would not render, and what vLLM says of each."""
    qwen, deepseek, peagle = (commands(case)[1] for case in ("qwen mtp", "deepseek mtp", "peagle"))
    return [
        (with_speculation(deepseek, "half a pass", num_speculative_tokens=3), "must be divisible by n_predict=2"),
        (with_speculation(qwen, "a word of 0.21.0", draft_sample_method="gumbel"), "draft_sample_method: Input"),
        (with_speculation(peagle, "a draft too long", max_model_len=100000), "greater than the derived"),
        (with_speculation(peagle, "no head inside", method="mtp", model=None, parallel_drafting=None), "Unsupported"),
    ]
