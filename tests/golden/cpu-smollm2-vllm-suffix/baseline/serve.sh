#!/usr/bin/env bash
# Rendered by Drafthouse from templates/serve/vllm.sh.j2; the next run overwrites changes made here.
# SmolLM2-135M with suffix decoding in vLLM on the CPU
set -euo pipefail

# The key comes from a file that only its owner may read: a flag would show it in every process list.
VLLM_API_KEY="$(< /opt/drafthouse/secrets/api_key)"
export VLLM_API_KEY
export HF_HUB_OFFLINE=1
export VLLM_NO_USAGE_STATS=1
export VLLM_CPU_KVCACHE_SPACE=1

exec vllm serve \
  /models/original/smollm2-135m-hf \
  --served-model-name smollm2-135m \
  --max-model-len 2048 \
  --max-num-seqs 8 \
  --dtype bfloat16 \
  --enforce-eager \
  --host 127.0.0.1 \
  --port 8000 \
  "$@"
