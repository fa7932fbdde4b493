#!/usr/bin/python
"""Wait until the gateway accepts requests with the key, and no others."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_ready
short_description: Wait until the gateway accepts requests with the key, and no others
description:
  - Sends requests over TLS, and checks the certificate. The right answers are 401 without the key, 200 with it, and 404
    for C(/metrics).
  - A gateway that has ended is a failure that shows its last lines.
  - The action of the same name adds how to reach the gateway from outside.
attributes:
  check_mode: {support: full, description: Nothing is asked.}
options:
  runtime: {description: What runs the gateway., type: str, choices: [process, docker], required: true}
  home: {description: The gateway's folder on the box., type: path, required: true}
  port: {description: Its port., type: int, required: true}
  name: {description: Its DNS name; empty where the certificate was made on the box., type: str, default: ""}
  certificate: {description: That certificate. Empty trusts public authorities., type: str, default: ""}
  key_file: {description: File with the API key., type: path, required: true}
  program: {description: Its name in the runtime., type: str, default: gateway}
  front:
    description: Whether it is a fleet's front. One without a replica that takes requests is waited for.
    type: bool
    default: false
  timeout_s: {description: Seconds until this gives up., type: int, default: 60}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Wait for the gateway
  drafthouse.core.gateway_ready:
    runtime: process
    home: /opt/drafthouse/gateway
    port: 8443
    certificate: /opt/drafthouse/gateway/tls/certificate.pem
    key_file: /opt/drafthouse/secrets/api_key
"""
RETURN = r"""
certificate: {description: The certificate (PEM) where it was made on the box., returned: success, type: str}
fingerprint: {description: Its SHA-256., returned: success, type: str}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.addons.gateway_ready import fingerprint, read_key, wait_for_gateway
from ..module_utils.core.errors import failing
from ..module_utils.serving.runtimes import runtime_of


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "runtime": {"type": "str", "choices": ["process", "docker"], "required": True},
            "home": {"type": "path", "required": True},
            "port": {"type": "int", "required": True},
            "name": {"type": "str", "default": ""},
            "certificate": {"type": "str", "default": ""},
            "key_file": {"type": "path", "required": True, "no_log": False},
            "program": {"type": "str", "default": "gateway"},
            "front": {"type": "bool", "default": False},
            "timeout_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode:
        module.exit_json(changed=False, certificate="", fingerprint="")
    with failing(module):
        wait_for_gateway(
            runtime_of(given["runtime"], given["home"]),
            given["program"],
            port=given["port"],
            name=given["name"],
            certificate=given["certificate"],
            key=read_key(given["key_file"]),
            timeout_s=given["timeout_s"],
            front=given["front"],
        )
    pem = Path(given["certificate"]).read_text("utf-8") if given["certificate"] else ""
    module.exit_json(changed=False, certificate=pem, fingerprint=fingerprint(pem) if pem else "")


if __name__ == "__main__":
    main()
