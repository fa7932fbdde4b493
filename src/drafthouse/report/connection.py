"""Shell lines with which Open WebUI, curl and OpenAI's client reach the server, printed at the end of a run.

No line contains the API key. A command reads it from its file into a variable, and curl gets it through a pipe, so
that no process list shows it.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Connection:
    """How the user's machine reaches the server."""

    url: str  # the base URL
    model: str  # the model's name
    key_command: str  # prints the API key; "" if the server needs none
    tunnel: str = ""  # the command that forwards the server's port to this machine; "" if the server runs on it


def connection_lines(connection: Connection) -> list[str]:
    """The lines; explanations are comments, so that all lines can be pasted into bash.

    A server that needs no key gets "none", because OpenAI's client refuses to start without a key.
    """
    messages = [{"role": "user", "content": "Say yes."}]
    python = (
        f"from openai import OpenAI; print(OpenAI().chat.completions.create(model={json.dumps(connection.model)}, "
        f"messages={json.dumps(messages)}).choices[0].message.content)"
    )
    key = f'"$({connection.key_command})"' if connection.key_command else "none"
    lines = ["# connect (bash)"]
    if connection.tunnel:
        lines.append(f"# first, in another terminal: {connection.tunnel}")
    return [
        *lines,
        f"export OPENAI_BASE_URL={shlex.quote(connection.url)} OPENAI_API_KEY={key}",
        "# curl",
        'curl --silent --show-error --noproxy "*" "$OPENAI_BASE_URL/models" '
        "--header @<(printf 'Authorization: Bearer %s' \"$OPENAI_API_KEY\")",
        "# OpenAI's client (pip install openai)",
        f"python3 -c {shlex.quote(python)}",
        "# Open WebUI, then at http://127.0.0.1:3000 (Docker on Linux)",
        'docker run --rm --network host -e HOST=127.0.0.1 -e PORT=3000 -e OPENAI_API_BASE_URL="$OPENAI_BASE_URL" '
        "-e OPENAI_API_KEY -v open-webui:/app/backend/data ghcr.io/open-webui/open-webui:main",
    ]
