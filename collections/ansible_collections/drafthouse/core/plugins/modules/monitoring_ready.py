#!/usr/bin/python
"""Wait until Prometheus scrapes every target and evaluates its rules."""

from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring_ready
short_description: Wait until Prometheus scrapes every target and evaluates its rules
description:
  - Queries Prometheus over the box's loopback. Fails with the reason if a target cannot be scraped.
attributes:
  check_mode: {support: full, description: Nothing is asked.}
options:
  prometheus: {description: Address of Prometheus., type: str, required: true}
  jobs: {description: The jobs that must be scraped., type: list, elements: str, required: true}
  grafana: {description: Address of Grafana; empty without one., type: str, default: ""}
  log: {description: Command that shows Prometheus's log., type: str, default: ""}
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
    """Run the module."""
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
        state = wait_for_monitoring(
            given["prometheus"], given["jobs"], grafana=given["grafana"], log=given["log"], timeout_s=given["timeout_s"]
        )
    module.exit_json(changed=False, rules=state.rules)


if __name__ == "__main__":
    main()
