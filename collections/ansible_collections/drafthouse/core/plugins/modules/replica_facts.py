#!/usr/bin/python
"""Tell what must be the same on all hosts that serve one model: the engine's versions, and which weights lie there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_facts
short_description: Tell what must be the same on all hosts that serve one model
description:
  - Reads the versions of an environment from its files, and the hashes of the weights from the notes beside them.
attributes:
  check_mode: {support: full, description: It changes nothing at any time.}
options:
  engine: {description: The engine's name in the catalogue., type: str, required: true}
  engine_home: {description: Folder of the engine's environment., type: path, required: true}
  weights: {description: Where each of the weights lies, by its name., type: dict, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Gather engine and weights
  drafthouse.core.replica_facts:
    engine: vllm
    engine_home: /opt/drafthouse/engines/vllm-0.32.0
    weights: {qwen3-32b: /models/qwen3-32b}
"""
RETURN = r"""
values: {description: The version or hash of each thing that is there., type: dict, returned: success}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.engines.registry import engine_of
from ..module_utils.host.env_stamp import versions
from ..module_utils.weights.integrity import manifest_hash


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "required": True},
            "engine_home": {"type": "path", "required": True},
            "weights": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    values = versions(Path(module.params["engine_home"]), engine_of(module.params["engine"]).same_on_hosts)
    hashes = {name: manifest_hash(Path(path)) for name, path in module.params["weights"].items()}
    values |= {f"weights of {name}": value for name, value in hashes.items() if value}
    module.exit_json(changed=False, values=values)


if __name__ == "__main__":
    main()
