"""The lookup `box_archive`: the archive of our programs that stay on a box after a run."""

from __future__ import annotations

DOCUMENTATION = r"""
name: box_archive
short_description: The archive of our programs that stay on a box after a run
description:
  - Builds the archive from the sources of this clone, as a temporary file of the controller, and returns its path.
  - Its name, which is the same on a box, has a hash of its content.
author: Drafthouse
"""
EXAMPLES = r"""
- name: Copy the programs to the box
  ansible.builtin.copy:
    src: "{{ lookup('drafthouse.core.box_archive') }}"
    dest: /opt/drafthouse/
    mode: "0644"
"""
RETURN = r"""
_raw: {description: Path of the archive on the controller., type: list, elements: path}
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
        """Path of the archive, as the only item."""
        name, data = archive()
        file = Path(constants.DEFAULT_LOCAL_TMP, name)
        if not file.exists():
            # Atomically, because the workers of several hosts write it at the same time.
            with TemporaryDirectory(dir=constants.DEFAULT_LOCAL_TMP) as own:
                replace_file(file, data, by_way_of=Path(own))
        return [str(file)]
