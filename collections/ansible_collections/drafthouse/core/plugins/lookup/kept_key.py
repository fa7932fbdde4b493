"""The lookup `kept_key`: the API key that the controller keeps for a profile's rented servers."""

from __future__ import annotations

DOCUMENTATION = r"""
name: kept_key
short_description: The API key that the controller keeps for a profile's rented servers
description:
  - Returns the key of each profile, and makes one if none is kept. The file has mode 0600.
  - A rented box loses its files when it ends; with this key the next one serves the same clients.
options:
  _terms: {description: Names of profiles., required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Copy the key to the box
  ansible.builtin.copy:
    content: "{{ lookup('drafthouse.core.kept_key', 'h100-llama33-draft3b') }}"
    dest: /workspace/drafthouse/secrets/api_key
    mode: "0600"
  no_log: true
"""
RETURN = r"""
_raw: {description: The keys., type: list, elements: str}
"""

from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from ..module_utils.cloud.vast.local_state import kept_key
from ..module_utils.core.errors import DrafthouseError


class LookupModule(LookupBase):
    """`drafthouse.core.kept_key`."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        """Keys of the profiles ``terms``."""
        try:
            return [kept_key(str(term)) for term in terms]
        except DrafthouseError as error:
            raise AnsibleError(str(error)) from error
