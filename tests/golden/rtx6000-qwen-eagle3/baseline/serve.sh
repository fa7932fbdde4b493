#!/usr/bin/env bash
# Rendered by Drafthouse from templates/serve/vllm.sh.j2; the next run overwrites changes made here.
# Qwen3-32B with RedHat's EAGLE-3 head on one RTX PRO 6000
set -euo pipefail

# The key comes from a file that only its owner may read: a flag would show it in every process list.
VLLM_API_KEY="$(< /opt/drafthouse/secrets/api_key)"
export VLLM_API_KEY
export HF_HUB_OFFLINE=1
export VLLM_NO_USAGE_STATS=1

exec vllm serve \
  /models/original/Qwen-Qwen3-32B \
  --served-model-name Qwen3-32B \
  --max-model-len 40960 \
  --reasoning-parser qwen3 \
  --tool-call-parser hermes \
  --enable-auto-tool-choice \
  --host 127.0.0.1 \
  --port 8000 \
  "$@"
