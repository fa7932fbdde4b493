#!/usr/bin/env bash
# Rendered by Drafthouse from templates/smoke.sh.j2; the next run overwrites changes made here.
# One chat request to a running server: does it answer at all?
#
#   DRAFTHOUSE_API_KEY=... ./smoke.sh
#
# The key is on the box in /opt/drafthouse/secrets/api_key.
# BASE_URL and MAX_TOKENS change where and how much.
set -euo pipefail

base_url="${BASE_URL:-http://127.0.0.1:8000}"
max_tokens="${MAX_TOKENS:-200}"

command -v curl >/dev/null || { printf 'found: no curl\nneeded: curl\ndo: apt-get install curl\n' >&2; exit 2; }
if [[ -z "${DRAFTHOUSE_API_KEY:-}" ]]; then
  printf 'found: no key\nneeded: the key in DRAFTHOUSE_API_KEY\ndo: export DRAFTHOUSE_API_KEY="$(< %s)" on the box\n' \
    /opt/drafthouse/secrets/api_key >&2
  exit 2
fi

request='{
  "model": "smollm2-135m",
  "temperature": 0.5,
  "max_tokens": '"$max_tokens"',
  "messages": [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Tell me a joke."}
  ]
}'

# The key goes through a pipe: as an argument every process list would show it.
if ! answer="$(curl --silent --show-error --fail-with-body --max-time 600 "$base_url/v1/chat/completions" \
  --header "Content-Type: application/json" \
  --header @<(printf 'Authorization: Bearer %s\n' "${DRAFTHOUSE_API_KEY:-none}") \
  --data-raw "$request")"; then
  printf 'found: %s\nneeded: an answer from %s\ndo: look at the server'"'"'s log; is it ready (%s/health)?\n' \
    "${answer:-no answer}" "$base_url" "$base_url" >&2
  exit 1
fi

if command -v jq >/dev/null; then
  jq . <<< "$answer"
else
  printf '%s\n' "$answer"
fi
