#!/usr/bin/python
"""Wait until the engine answers a request, or fail with the reason why it does not."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_ready
short_description: Wait until the engine answers a request
description:
  - Polls the health address until it answers 200, then requests the served model with the key, and last a few tokens.
    A server that is healthy but answers nothing is not ready.
  - An engine that ends meanwhile, or is started again by the supervisor, is a failure that shows its last lines.
  - Keeps how long the start took in I(home)C(/run), for the result that is measured next.
attributes:
  check_mode: {support: full, description: Nothing is asked.}
options:
  runtime: {description: What holds the arm running., type: str, choices: [process, docker], required: true}
  home: {description: Our folder on the box., type: path, required: true}
  name: {description: The arm., type: str, required: true}
  base_url: {description: "For example C(http://127.0.0.1:8000).", type: str, required: true}
  health: {description: Path of the health address., type: str, required: true}
  model: {description: The name under which the model is served., type: str, required: true}
  key_file: {description: File with the API key., type: path, required: true}
  timeout_s: {description: Seconds until this gives up., type: int, required: true}
  request_timeout_s: {description: Seconds within which it must answer a request., type: float, default: 120}
  progress_file: {description: Where progress is written as JSON lines., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Wait for the engine
  drafthouse.core.engine_ready:
    runtime: docker
    home: /opt/drafthouse
    name: baseline
    base_url: http://127.0.0.1:8000
    health: /health
    model: Qwen3-32B
    key_file: /opt/drafthouse/secrets/api_key
    timeout_s: 2400
"""
RETURN = r"""
seconds: {description: How long it took from the engine's start to its first answer., returned: success, type: float}
"""

from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.core.progress import Progress
from ..module_utils.host.port_holder import foreign_listener
from ..module_utils.serving.first_request import REQUEST_S
from ..module_utils.serving.readiness import ready_file, wait_until_ready
from ..module_utils.serving.runtimes import runtime_of


def main() -> None:
    """Run the module."""
    text = {"type": "str", "required": True}
    path = {"type": "path", "required": True}
    module = AnsibleModule(
        argument_spec={
            "runtime": {**text, "choices": ["process", "docker"]},
            "home": path,
            "name": text,
            "base_url": text,
            "health": text,
            "model": text,
            "key_file": path,
            "timeout_s": {"type": "int", "required": True},
            "request_timeout_s": {"type": "float", "default": REQUEST_S},
            "progress_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, seconds=0.0)
    given = module.params
    address = urlsplit(given["base_url"])
    with failing(module):
        seconds = wait_until_ready(
            runtime_of(given["runtime"], given["home"]),
            name=given["name"],
            base_url=given["base_url"],
            health=given["health"],
            model=given["model"],
            key=Path(given["key_file"]).read_text("utf-8").strip(),
            timeout_s=given["timeout_s"],
            progress=Progress(given["progress_file"]),
            keep=ready_file(given["home"], given["name"]),
            request_timeout_s=given["request_timeout_s"],
            stranger=partial(foreign_listener, address.port or 0, address.hostname or "", given["home"]),
        )
    module.exit_json(changed=False, seconds=seconds)


if __name__ == "__main__":
    main()
