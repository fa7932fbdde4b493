"""Add one KV group of zeros to a Llama model: 9 heads over 3 become 12 over 4, and the same model can be halved.

    ENGINE/bin/python widen_heads.py FOLDER WIDER

The added heads write nothing, because their part of o_proj is zero too. The exit status is 1 where the logits of both
differ.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM


def widen(source: Path, folder: Path) -> bool:
    """Write the wider model; return whether its logits are the same."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(source)
    config = model.config.__class__.from_dict(model.config.to_dict())
    config.head_dim = model.config.hidden_size // model.config.num_attention_heads
    group = model.config.num_attention_heads // model.config.num_key_value_heads
    config.num_attention_heads += group
    config.num_key_value_heads += 1
    wider = LlamaForCausalLM(config).to(torch.bfloat16)
    state = wider.state_dict()
    for name, values in model.state_dict().items():
        if values.shape != state[name].shape:
            state[name] = torch.zeros_like(state[name])
            state[name][: values.shape[0], : values.shape[1]] = values
        else:
            state[name] = values
    wider.load_state_dict(state)
    wider.tie_weights()
    wider.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    asked = tokenizer("Explain gravity in one sentence.", return_tensors="pt")
    # As it lies there: a cast of the one in memory has rounded its rotary frequencies too.
    written = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    logits = [one(**asked).logits for one in (model, written)]
    return bool(torch.allclose(*logits))


if __name__ == "__main__":
    sys.exit(0 if widen(Path(sys.argv[1]), Path(sys.argv[2])) else "the wider model answers otherwise")
