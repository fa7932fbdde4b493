#!/usr/bin/python
"""Read what must be the same on all hosts of a replica: versions of the engine's packages and hashes of weights."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_facts
short_description: Read what must be the same on all hosts of a replica
description:
  - Reads the versions of an environment from its files, and the hashes of the weights from the notes beside them.
attributes:
  check_mode: {support: full, description: It never changes anything.}
options:
  engine: {description: The engine's name in the catalogue., type: str, required: true}
  engine_home: {description: Folder of the engine's environment., type: path, required: true}
  weights: {description: "Path of each of the weights, by its name.", type: dict, required: true}
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
values: {description: Version or hash of each package and weights that are there., type: dict, returned: success}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.engines.registry import engine_of
from ..module_utils.host.env_stamp import versions
from ..module_utils.weights.integrity import manifest_hash


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "engine": {"type": "str", "required": True},
            "engine_home": {"type": "path", "required": True},
            "weights": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    values = versions(Path(given["engine_home"]), engine_of(given["engine"]).same_on_hosts)
    for name, path in given["weights"].items():
        digest = manifest_hash(Path(path))
        if digest:
            values[f"weights of {name}"] = digest
    module.exit_json(changed=False, values=values)


if __name__ == "__main__":
    main()
