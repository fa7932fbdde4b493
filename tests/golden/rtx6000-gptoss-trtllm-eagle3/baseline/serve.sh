#!/usr/bin/env bash
# Rendered by Drafthouse from templates/serve/trtllm.sh.j2; the next run overwrites changes made here.
# gpt-oss-120b with NVIDIA's EAGLE-3 head in TensorRT-LLM on one RTX PRO 6000
set -euo pipefail
export HF_HUB_OFFLINE=1
export DISABLE_HARMONY_ADAPTER=1

# The engine's YAML lies beside this script.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

exec trtllm-serve \
  /models/original/gpt-oss-120b \
  --backend pytorch \
  --tp_size 1 \
  --ep_size 1 \
  --max_batch_size 1 \
  --trust_remote_code \
  --kv_cache_free_gpu_memory_fraction 0.95 \
  --host 127.0.0.1 \
  --port 8000 \
  --extra_llm_api_options "$here/low_latency.yaml" \
  "$@"
