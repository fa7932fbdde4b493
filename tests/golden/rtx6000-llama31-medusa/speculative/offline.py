#!/usr/bin/env python3
# Rendered by Drafthouse from templates/offline/vllm.py.j2; the next run overwrites changes made here.
"""Llama-3.1-8B with Medusa heads on one RTX PRO 6000

The speculative arm in vLLM's Python API, without a server. Run it with the interpreter of vLLM 0.32.0:

    /opt/drafthouse/engines/vllm-0.32.0/bin/python offline.py "your prompt"
"""

import os
import sys

os.environ.setdefault('HF_HUB_OFFLINE', '1')
os.environ.setdefault('VLLM_NO_USAGE_STATS', '1')

from vllm import LLM, SamplingParams  # noqa: E402 (the environment is read at import)

PROMPT = "Write a Python function to calculate the Fibonacci sequence."


def main() -> None:
    llm = LLM(
        model='/models/original/meta-llama-Llama-3.1-8B-Instruct',
        max_model_len=32768,
        speculative_config={
            'method': 'medusa',
            'model': '/models/original/nebius-MEDUSA-Llama-3.1-8B-Instruct',
            'num_speculative_tokens': 6,
        },
        disable_log_stats=False,  # or there are no counters to read below
    )
    sampling = SamplingParams(temperature=0.7, top_p=0.95, max_tokens=100)
    conversation = [{"role": "user", "content": " ".join(sys.argv[1:]) or PROMPT}]
    for output in llm.chat(conversation, sampling):
        print(output.outputs[0].text)
    for metric in llm.get_metrics():
        if metric.name.startswith("vllm:spec_decode_num_") and hasattr(metric, "value"):
            print(f"{metric.name} {metric.value}")


# The engine starts its workers as new processes, which import this file again.
if __name__ == "__main__":
    main()
