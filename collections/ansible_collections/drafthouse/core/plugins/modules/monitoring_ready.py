#!/usr/bin/python
"""Wait until Prometheus reads what it is for, and its rules are evaluated."""

from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring_ready
short_description: Wait until Prometheus reads what it is for, and its rules are evaluated
description:
  - Asks Prometheus on the box's own loopback. A target that cannot be read is a failure that says why.
attributes:
  check_mode: {support: full, description: Nothing is asked.}
options:
  prometheus: {description: Address of Prometheus., type: str, required: true}
  jobs: {description: The jobs that must be read., type: list, elements: str, required: true}
  grafana: {description: Address of Grafana; empty where there is none., type: str, default: ""}
  log: {description: How Prometheus's log is read., type: str, default: ""}
  timeout_s: {description: Seconds until this gives up., type: int, default: 60}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Wait for the monitoring
  drafthouse.core.monitoring_ready:
    prometheus: http://127.0.0.1:9490
    jobs: [engine, health]
"""
RETURN = r"""
rules: {description: How many rules are evaluated., returned: success, type: int}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.addons.monitoring_ready import wait_for_monitoring
from ..module_utils.core.errors import failing


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "prometheus": {"type": "str", "required": True},
            "jobs": {"type": "list", "elements": "str", "required": True},
            "grafana": {"type": "str", "default": ""},
            "log": {"type": "str", "default": ""},
            "timeout_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode:
        module.exit_json(changed=False, rules=0)
    with failing(module):
        seen = wait_for_monitoring(
            given["prometheus"],
            given["jobs"],
            grafana=given["grafana"],
            log=given["log"],
            timeout_s=given["timeout_s"],
        )
    module.exit_json(changed=False, rules=seen.rules)


if __name__ == "__main__":
    main()
