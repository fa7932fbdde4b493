#!/usr/bin/env bash
# Rendered by Drafthouse from templates/serve/llamacpp.sh.j2; the next run overwrites changes made here.
# Llama-3.2-3B with Llama-3.2-1B as its draft in llama.cpp on one RTX 4090
set -euo pipefail

exec llama-server \
  --model /models/original/bartowski-Llama-3.2-3B-Instruct-GGUF/Llama-3.2-3B-Instruct-Q4_K_M.gguf \
  --alias Llama-3.2-3B-Instruct \
  --ctx-size 8192 \
  --parallel 1 \
  --n-gpu-layers 99 \
  --metrics \
  --api-key-file /opt/drafthouse/secrets/api_key \
  --host 127.0.0.1 \
  --port 8000 \
  "$@"
