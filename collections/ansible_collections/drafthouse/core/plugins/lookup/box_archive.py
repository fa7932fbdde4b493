"""The archive of our programs that outlive a run on a box."""

from __future__ import annotations

DOCUMENTATION = r"""
name: box_archive
short_description: The archive of our programs that outlive a run on a box
description:
  - Builds it from the sources of this clone, and returns where it lies on the controller while this run lasts.
  - Its name has a hash of what is in it; on a box it has the same name.
author: Drafthouse
"""
EXAMPLES = r"""
- name: Put the programs on the box
  ansible.builtin.copy:
    src: "{{ lookup('drafthouse.core.box_archive') }}"
    dest: /opt/drafthouse/
    mode: "0644"
"""
RETURN = r"""
_raw: {description: Its path on the controller., type: list, elements: path}
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ansible import constants
from ansible.plugins.lookup import LookupBase

from ..module_utils.core.box_archive import archive
from ..module_utils.core.files import replace_file


class LookupModule(LookupBase):
    """`drafthouse.core.box_archive`."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        """The one path."""
        name, data = archive()
        file = Path(constants.DEFAULT_LOCAL_TMP, name)
        if not file.exists():
            # Workers of several hosts write it at the same time.
            with TemporaryDirectory(dir=constants.DEFAULT_LOCAL_TMP) as own:
                replace_file(file, data, by_way_of=Path(own))
        return [str(file)]
