#!/usr/bin/env python3
# Rendered by Drafthouse from templates/offline/vllm.py.j2; the next run overwrites changes made here.
"""gpt-oss-120b with Snowflake's Arctic LSTM speculator on one RTX PRO 6000

The speculative arm in vLLM's Python API, without a server. Run it with the interpreter of vLLM 0.26.0:

    /opt/drafthouse/engines/vllm-arctic-0.26.0/bin/python offline.py "your prompt"
"""

import os
import sys

os.environ.setdefault('HF_HUB_OFFLINE', '1')
os.environ.setdefault('VLLM_NO_USAGE_STATS', '1')
os.environ.setdefault('ARCTIC_INFERENCE_ENABLED', '1')

from vllm import LLM, SamplingParams  # noqa: E402 (the environment is read at import)

PROMPT = "Write a Python function to calculate the Fibonacci sequence."


def main() -> None:
    llm = LLM(
        model='/models/original/gpt-oss-120b',
        tensor_parallel_size=1,
        max_num_seqs=1,
        max_model_len=131072,
        gpu_memory_utilization=0.97,
        speculative_config={
            'method': 'arctic',
            'model': '/models/original/Arctic-LSTM-Speculator-gpt-oss-120b',
            'num_speculative_tokens': 3,
            'enable_suffix_decoding': True,
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
