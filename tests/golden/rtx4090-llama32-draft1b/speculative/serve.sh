#!/usr/bin/env bash
# Rendered by Drafthouse from templates/serve/vllm.sh.j2; the next run overwrites changes made here.
# Llama-3.2-3B with Llama-3.2-1B as its draft on one RTX 4090
set -euo pipefail

# The key comes from a file that only its owner may read: a flag would show it in every process list.
VLLM_API_KEY="$(< /opt/drafthouse/secrets/api_key)"
export VLLM_API_KEY
export HF_HUB_OFFLINE=1
export VLLM_NO_USAGE_STATS=1

exec vllm serve \
  /models/original/meta-llama-Llama-3.2-3B-Instruct \
  --served-model-name Llama-3.2-3B-Instruct \
  --max-model-len 16384 \
  --tool-call-parser llama3_json \
  --enable-auto-tool-choice \
  --host 127.0.0.1 \
  --port 8000 \
  --speculative-config '{"method": "draft_model", "model": "/models/original/meta-llama-Llama-3.2-1B-Instruct", "num_speculative_tokens": 5, "draft_tensor_parallel_size": 1}' \
  "$@"
