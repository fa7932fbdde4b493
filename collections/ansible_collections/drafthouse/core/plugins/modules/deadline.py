#!/usr/bin/python
"""Keep a program running on a rented box that ends the box at its deadline."""

from __future__ import annotations

DOCUMENTATION = r"""
module: deadline
short_description: Ensure that a rented box ends at its deadline
description:
  - Writes the program, called the watch, and its order, and keeps it running under a supervisord of its own, which
    C(make stop) leaves alone.
  - At the deadline the watch asks vast.ai to destroy the instance, with the key that the platform gave the container,
    or to stop it if that key may not destroy. If vast.ai does neither for some minutes, it ends what serves on the box.
  - Runs with the Python of the box's own environment, which has supervisor.
  - The time left counts by vast.ai's clock (C(lease) of the fact, which the action of this name takes in place of
    C(left_s)). A second run changes nothing.
attributes:
  check_mode: {support: full, description: Tells what would be changed.}
options:
  program: {description: Text of the program; added by the action., type: str, required: true}
  deadline: {description: "When the box shall end, in unix seconds.", type: int, required: true}
  left_s: {description: Seconds until then., type: float, required: true}
  home: {description: Our folder on the box; without it no server is ended., type: path}
  sure:
    description: Whether the seconds count by vast.ai's clock; if not, an order for the same deadline stays.
    type: bool
    default: true
  power_off: {description: Text of the program that ends servers; added by the action., type: str, default: ""}
  url: {description: Address of vast.ai's API., type: str, required: true}
  folder: {description: Folder of the order and the journal., type: path, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: End this box in an hour
  drafthouse.core.deadline:
    deadline: "{{ now().timestamp() + 3600 }}"
    left_s: 3600
    url: https://console.vast.ai
    folder: /var/lib/drafthouse/deadline
"""
RETURN = r"""
has_key: {description: Whether the platform gave the container a key., returned: success, type: bool}
started: {description: Whether the watch was started or restarted., returned: success, type: bool}
"""

import json
import sys
from pathlib import Path
from typing import TypedDict, cast

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing, one_problem
from ..module_utils.core.files import object_in, replace_file
from ..module_utils.core.procfs import Clocks, clocks, first_environment
from ..module_utils.serving.supervisor import Program, Supervisor, configuration

_NAME = "deadline"
# A new order is given only if the box's count of the time left differs from the controller's by more seconds.
_TOLERANCE_S = 60.0


class Order(TypedDict, total=False):
    """An order for the watch (``arm.json``), or its count of the time left (``clock.json``), which holds its order.

    The start script's order has ``life_s``; a playbook's has ``left_s``, the seconds left at ``up``, the uptime.
    """

    deadline: int
    life_s: float
    left_s: float
    up: float
    boot: str
    url: str
    home: str
    order: Order


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "program": {"type": "str", "required": True},
            "deadline": {"type": "int", "required": True},
            "left_s": {"type": "float", "required": True},
            "url": {"type": "str", "required": True},
            "home": {"type": "path"},
            "sure": {"type": "bool", "default": True},
            "power_off": {"type": "str", "default": ""},
            "folder": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    folder = Path(given["folder"])
    script = folder / "deadline.py"
    with failing(module):
        changed = _write_program(folder / "power_off.py", given["power_off"], module.check_mode)
        changed |= _write_program(script, given["program"], module.check_mode)
        changed |= armed(
            folder,
            given["deadline"],
            given["left_s"],
            given["url"].rstrip("/"),
            clocks(),
            home=given["home"] or "",
            sure=given["sure"],
            check=module.check_mode,
        )
        started = _start(folder, script, module.check_mode)
    has_key = bool(first_environment().get("CONTAINER_API_KEY"))
    module.exit_json(changed=bool(changed or started), has_key=has_key, started=bool(started))


def _write_program(file: Path, text: str, check: bool) -> bool:
    """Write a program's file if it differs; True if it did. ``check``: write nothing."""
    if file.is_file() and file.read_text("utf-8") == text:
        return False
    if not check:
        _write(file, text, 0o700)
    return True


def _start(folder: Path, script: Path, check: bool) -> bool:
    """Keep the watch running; True if it had to be started. ``check``: start nothing."""
    supervisor = Supervisor(folder / "supervisor")
    # Folder of the environment's Python, which runs this module: first on the PATH, for the program's first line.
    python_folder = str(Path(sys.executable).parent)
    watch = Program(_NAME, [str(script), str(folder)], str(folder / "deadline.log"), folder=python_folder)
    wanted = configuration(supervisor.home, [watch])
    if check:
        return _NAME not in supervisor.running() or supervisor.present_configuration() != wanted
    started, _ = supervisor.converge(wanted, [_NAME], fresh=False)
    return bool(started)


def armed(
    folder: Path,
    deadline: int,
    left_s: float,
    url: str,
    now: Clocks,
    *,
    home: str = "",
    sure: bool = True,
    check: bool = False,
) -> bool:
    """Write the watch's order: ``left_s`` seconds from ``now``. True if it differs from the present one.

    ``home``: our folder on the box; "": the watch ends no servers. If not ``sure``, because the controller only has its
    own wall clock, an order for this deadline stays: the start script's came from the provider's clock. ``check``:
    write nothing.
    """
    if _is_in_force(folder, deadline, left_s, url, now, home):
        return False
    present = _read(folder / "arm.json")
    keeps = not sure and present.get("deadline") == deadline
    if keeps and present.get("home", "") == home:
        return False
    if not check:
        order = present
        if not keeps:
            order = {"deadline": deadline, "left_s": round(left_s, 1), "url": url, "up": now.up, "boot": now.boot}
        if home:
            order["home"] = home
        _write(folder / "arm.json", json.dumps(order) + "\n")
    return True


def _is_in_force(folder: Path, deadline: int, left_s: float, url: str, now: Clocks, home: str) -> bool:
    """True if the present order is the same, and its count of the time left agrees."""
    order = _read(folder / "arm.json")
    state = _read(folder / "clock.json")
    if (order.get("deadline"), order.get("url"), order.get("home", "")) != (deadline, url, home):
        return False
    # The watch's count if it has begun with this order, else the order itself.
    count = state if state.get("order") == order else order
    if count.get("boot") != now.boot or "left_s" not in count:
        return False
    return abs(float(count["left_s"]) - (now.up - float(count["up"])) - left_s) <= _TOLERANCE_S


def _write(file: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file, for its owner alone. Raises DrafthouseError."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, text, mode)
    except OSError as error:
        found = error.strerror or str(error)
        needed = "a folder for the deadline watch"
        raise one_problem("file-unwritable", found, needed, "connect as root", str(file)) from error


def _read(file: Path) -> Order:
    return cast("Order", object_in(file))


if __name__ == "__main__":
    main()
