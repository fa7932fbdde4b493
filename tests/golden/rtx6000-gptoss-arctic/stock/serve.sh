#!/usr/bin/env bash
# Rendered by Drafthouse from templates/serve/vllm.sh.j2; the next run overwrites changes made here.
# gpt-oss-120b with Snowflake's Arctic LSTM speculator on one RTX PRO 6000
set -euo pipefail

# The key comes from a file that only its owner may read: a flag would show it in every process list.
VLLM_API_KEY="$(< /opt/drafthouse/secrets/api_key)"
export VLLM_API_KEY
export HF_HUB_OFFLINE=1
export VLLM_NO_USAGE_STATS=1

exec vllm serve \
  /models/original/gpt-oss-120b \
  --served-model-name gpt-oss-120b \
  --tensor-parallel-size 1 \
  --max-num-seqs 1 \
  --max-model-len 131072 \
  --gpu-memory-utilization 0.97 \
  --reasoning-parser openai_gptoss \
  --host 127.0.0.1 \
  --port 8000 \
  "$@"
