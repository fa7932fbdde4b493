#!/usr/bin/env bash
# Rendered by Drafthouse from templates/serve/llamacpp.sh.j2; the next run overwrites changes made here.
# a fourfold SmolLM2-135M with the plain one as its draft, on the CPU
set -euo pipefail
export GOMP_SPINCOUNT=1000

exec llama-server \
  --model /models/original/smollm2-135m/SmolLM2-135M-Instruct.BF16.x120.gguf \
  --alias smollm2-135m-x4 \
  --ctx-size 4096 \
  --parallel 1 \
  --metrics \
  --api-key-file /opt/drafthouse/secrets/api_key \
  --host 127.0.0.1 \
  --port 8000 \
  "$@"
