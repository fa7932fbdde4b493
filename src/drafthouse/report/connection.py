"""How Open WebUI, curl and OpenAI's client reach what serves: lines to copy at the end of a run.

The key is in none of them: a command reads it from its file into a variable, and curl gets it through a pipe, so that
no process list shows it.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Connection:
    """The base address where the user is, the model's name, and what comes first.

    ``key_command`` prints the key there; empty where the server asks for none. ``tunnel`` is the command that brings
    the server to this machine; empty where it runs here.
    """

    url: str
    model: str
    key_command: str
    tunnel: str = ""


def connection_lines(to: Connection) -> list[str]:
    """The lines; those that are no command are comments, so that the whole can be pasted into bash."""
    message = [{"role": "user", "content": "Say yes."}]
    python = (
        f"from openai import OpenAI; print(OpenAI().chat.completions.create(model={json.dumps(to.model)}, "
        f"messages={json.dumps(message)}).choices[0].message.content)"
    )
    key = f'"$({to.key_command})"' if to.key_command else "none"
    lines = ["# connect (bash)"]
    if to.tunnel:
        lines.append(f"# first, in another terminal: {to.tunnel}")
    return [
        *lines,
        f"export OPENAI_BASE_URL={shlex.quote(to.url)} OPENAI_API_KEY={key}",
        "# curl",
        'curl --silent --show-error --noproxy "*" "$OPENAI_BASE_URL/models" '
        "--header @<(printf 'Authorization: Bearer %s' \"$OPENAI_API_KEY\")",
        "# OpenAI's client (pip install openai)",
        f"python3 -c {shlex.quote(python)}",
        "# Open WebUI, then at http://127.0.0.1:3000 (Docker on Linux)",
        'docker run --rm --network host -e HOST=127.0.0.1 -e PORT=3000 -e OPENAI_API_BASE_URL="$OPENAI_BASE_URL" '
        "-e OPENAI_API_KEY -v open-webui:/app/backend/data ghcr.io/open-webui/open-webui:main",
    ]
