#!/usr/bin/python
"""Record what should serve, restore it, go back to an earlier release, or record that nothing should serve."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release
short_description: Record what should serve on a box, and restore it
description:
  - C(accepted) records that a running arm which has answered should serve, with its files and its supervisor's or
    container's definition. Before it replaces another server it must have run for a while, and answer then. The same
    again changes nothing.
  - C(put_back) makes the recorded server the only one of the box, and waits until it has answered a request. If it
    runs as it should, it is left alone. Jobs that an earlier run left on the box are ended first.
  - C(rolled_back) does the same with an earlier release. If that one does not answer, the present one is restored.
  - C(ended) records that nothing should serve.
  - Standard library only; any Python from 3.10 on.
attributes:
  check_mode: {support: full, description: Tells whether anything would be recorded or started.}
options:
  home: {description: Our folder on the box., type: path, required: true}
  state:
    description: What to do.
    type: str
    choices: [accepted, put_back, rolled_back, ended]
    required: true
  resolved: {description: The resolved profile. For accepted., type: dict}
  arm: {description: The arm that serves. For accepted., type: str}
  to: {description: The release to go back to. Empty means the one before., type: str, default: ""}
  refused:
    description: "The change that failed, for the history: profile, engine, version and why. For put_back."
    type: dict
  why: {description: "The reason, for the history.", type: str, default: ""}
  keep: {description: How many releases are kept., type: int, default: 5}
  lives_s:
    description: Seconds that an arm must have run before it replaces another server. For accepted.
    type: float
    default: 30
  progress_file: {description: Where progress is written as JSON lines., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Go back to the release before
  drafthouse.core.release:
    home: /opt/drafthouse
    state: rolled_back
"""
RETURN = r"""
release: {description: "What should serve now: release, profile, arm, engine, version.", returned: success, type: dict}
seconds: {description: How long it took until it had answered., returned: success, type: float}
"""

import contextlib
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import DrafthouseError, failing
from ..module_utils.core.locks import only_one
from ..module_utils.core.progress import Progress
from ..module_utils.serving.history import REFUSED, add_event, put_ballast
from ..module_utils.serving.promote import LIVES_S, accept, record_end, would_accept
from ..module_utils.serving.releases import KEEP, current_server
from ..module_utils.serving.restore import drift, put_back_current, roll_back


def main() -> None:
    """Run the module."""
    text = {"type": "str", "default": ""}
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["accepted", "put_back", "rolled_back", "ended"], "required": True},
            "resolved": {"type": "dict"},
            "arm": {"type": "str"},
            "to": text,
            "refused": {"type": "dict"},
            "why": text,
            "keep": {"type": "int", "default": KEEP},
            "lives_s": {"type": "float", "default": LIVES_S},
            "progress_file": {"type": "path"},
        },
        required_if=[("state", "accepted", ("resolved", "arm"))],
        supports_check_mode=True,
    )
    given = module.params
    home = Path(given["home"])
    with failing(module):
        result = _would(home, given) if module.check_mode else _done(home, given)
    module.exit_json(**{"seconds": 0.0, **result, "release": current_server(home) or {}})


def _would(home: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Result in check mode: whether anything would change."""
    if given["state"] == "accepted":
        return {"changed": would_accept(home, given["resolved"], given["arm"])}
    if given["state"] == "put_back":
        return {"changed": bool(drift(home))}
    return {"changed": given["state"] == "rolled_back" or current_server(home) is not None}


def _done(home: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Do it; the result is ``changed`` and, if a server was started, the seconds until it answered."""
    why = given["why"]
    tell = Progress(given["progress_file"])
    if given["state"] == "ended":
        return {"changed": record_end(home, why) is not None}
    with only_one(home / "benchmark.lock"):
        if given["state"] == "accepted":
            served = accept(home, given["resolved"], given["arm"], why, given["keep"], given["lives_s"], tell)
            return {"changed": served is not None}
        if given["state"] == "rolled_back":
            return {"changed": True, "seconds": roll_back(home, given["to"], why, tell)[1]}
        fault = drift(home)
        try:
            restored = put_back_current(home, tell, why if fault else "")
        finally:
            # The history gets the refused change even if the restore fails; a full disk may prevent only that line.
            if given["refused"]:
                with contextlib.suppress(DrafthouseError):
                    add_event(home, REFUSED, **given["refused"])
            # It may have been deleted to make room.
            put_ballast(home)
    return {"changed": bool(fault), "seconds": restored[1] if restored else 0.0}


if __name__ == "__main__":
    main()
