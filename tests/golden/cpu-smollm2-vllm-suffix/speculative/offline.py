#!/usr/bin/env python3
# Rendered by Drafthouse from templates/offline/vllm.py.j2; the next run overwrites changes made here.
"""SmolLM2-135M with suffix decoding in vLLM on the CPU

The speculative arm in vLLM's Python API, without a server. Run it with the interpreter of vLLM 0.32.0:

    /opt/drafthouse/engines/vllm-0.32.0-cpu-suffix/bin/python offline.py "your prompt"
"""

import os
import sys

os.environ.setdefault('HF_HUB_OFFLINE', '1')
os.environ.setdefault('VLLM_NO_USAGE_STATS', '1')
os.environ.setdefault('VLLM_CPU_KVCACHE_SPACE', '1')

from vllm import LLM, SamplingParams  # noqa: E402 (the environment is read at import)

PROMPT = "Write a Python function to calculate the Fibonacci sequence."


def main() -> None:
    llm = LLM(
        model='/models/original/smollm2-135m-hf',
        max_model_len=2048,
        max_num_seqs=8,
        dtype='bfloat16',
        enforce_eager=True,
        speculative_config={
            'method': 'suffix',
            'num_speculative_tokens': 16,
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
