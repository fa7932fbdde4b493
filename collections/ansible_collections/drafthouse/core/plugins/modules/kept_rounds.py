#!/usr/bin/python
"""Say how far an experiment is: whether its rounds are all measured and judged, and which steps are missing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kept_rounds
short_description: Say how far an experiment is on this box
description:
  - Reads which steps are kept and what was decided after the last judged round.
  - Needs nothing but the system's Python.
attributes:
  check_mode: {support: full, description: It changes nothing at any time.}
options:
  resolved: {description: The resolved profile., type: dict, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Gather kept results
  drafthouse.core.kept_rounds:
    resolved: "{{ drafthouse_profile | combine(drafthouse_run) }}"
"""
RETURN = r"""
over: {description: The experiment ended and nothing is missing., returned: always, type: bool}
last: {description: The last round that is to be measured now., returned: always, type: int}
steps: {description: The steps up to that round that are missing., returned: always, type: list}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.experiment.kept_rounds import look


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(argument_spec={"resolved": {"type": "dict", "required": True}}, supports_check_mode=True)
    module.exit_json(changed=False, **look(module.params["resolved"]))


if __name__ == "__main__":
    main()
