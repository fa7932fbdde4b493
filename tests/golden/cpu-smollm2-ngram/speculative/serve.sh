#!/usr/bin/env bash
# Rendered by Drafthouse from templates/serve/llamacpp.sh.j2; the next run overwrites changes made here.
# SmolLM2-135M with n-gram lookup on the CPU
set -euo pipefail
export GOMP_SPINCOUNT=1000

exec llama-server \
  --model /models/original/smollm2-135m/SmolLM2-135M-Instruct.F32.gguf \
  --alias smollm2-135m \
  --ctx-size 4096 \
  --parallel 1 \
  --metrics \
  --api-key-file /opt/drafthouse/secrets/api_key \
  --host 127.0.0.1 \
  --port 8000 \
  --spec-type ngram-simple \
  --spec-ngram-simple-size-m 8 \
  --spec-ngram-simple-size-n 3 \
  "$@"
