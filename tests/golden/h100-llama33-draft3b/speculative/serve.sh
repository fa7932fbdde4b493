#!/usr/bin/env bash
# Rendered by Drafthouse from templates/serve/vllm.sh.j2; the next run overwrites changes made here.
# Llama-3.3-70B FP8 with Llama-3.2-3B FP8 as its draft on one H100 NVL
set -euo pipefail

# The key comes from a file that only its owner may read: a flag would show it in every process list.
VLLM_API_KEY="$(< /opt/drafthouse/secrets/api_key)"
export VLLM_API_KEY
export HF_HUB_OFFLINE=1
export VLLM_NO_USAGE_STATS=1

exec vllm serve \
  /models/original/RedHatAI-Llama-3.3-70B-Instruct-FP8-dynamic \
  --served-model-name Llama-3.3-70B-Instruct \
  --max-model-len 8192 \
  --tool-call-parser llama3_json \
  --enable-auto-tool-choice \
  --host 127.0.0.1 \
  --port 8000 \
  --speculative-config '{"method": "draft_model", "model": "/models/original/RedHatAI-Llama-3.2-3B-Instruct-FP8-dynamic", "num_speculative_tokens": 5}' \
  "$@"
