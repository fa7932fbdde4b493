#!/usr/bin/python
"""Hold a watch over a rented box's deadline, which ends the box when it is reached."""

from __future__ import annotations

DOCUMENTATION = r"""
module: deadline
short_description: Hold a watch over a rented box's deadline
description:
  - Writes the program and its order, and holds it running under a supervisord of its own, which C(make stop) leaves
    alone.
  - When the time is over the program asks vast.ai to destroy the instance, with the key that the platform gave the
    container for itself; where that key may not, to stop it.
  - Runs with the Python of the box's own environment, which has supervisor.
  - Where vast.ai takes neither for some minutes, the program ends what serves on the box.
  - The time that is left is counted by vast.ai's clock (C(lease) of the fact, which the action of this name takes in
    place of C(left_s)). A second run changes nothing.
attributes:
  check_mode: {support: full, description: Tells what would be changed.}
options:
  program: {description: The text of the program; the action gives it., type: str, required: true}
  deadline: {description: When the box shall end, in unix seconds., type: int, required: true}
  left_s: {description: Seconds until then., type: float, required: true}
  home: {description: Folder that servers of the box run out of; without it none of them is ended., type: path}
  sure:
    description: Whether the seconds are by vast.ai's clock; else an order for the same deadline stays.
    type: bool
    default: true
  power_off: {description: The text of the program that ends them; the action gives it., type: str, default: ""}
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
# What is tolerated between the box's count and the controller's before a new order is given: SSH takes its time.
_TOLERANCE_S = 60.0


class Order(TypedDict, total=False):
    """Until when it lives: the start script's order has ``life_s``, a playbook's its moment and ``left_s`` from it.

    ``clock.json``, where the watch counts, holds the order that it counts under.
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
    """Answer Ansible."""
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
        changed = _put(folder / "power_off.py", given["power_off"], module.check_mode)
        changed |= _put(script, given["program"], module.check_mode)
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
        started = _held(folder, script, module.check_mode)
    has_key = bool(first_environment().get("CONTAINER_API_KEY"))
    module.exit_json(changed=bool(changed or started), has_key=has_key, started=bool(started))


def _put(file: Path, text: str, check: bool) -> bool:
    """Have the file hold this program; return whether that is (or would be) new."""
    if file.is_file() and file.read_text("utf-8") == text:
        return False
    if not check:
        _written(file, text, 0o700)
    return True


def _held(folder: Path, script: Path, check: bool) -> bool:
    """Hold the program running; return whether it was (or would be) started."""
    supervisor = Supervisor(folder / "supervisor")
    # This module runs with the environment's own Python; on this PATH the program's first line finds it, too.
    one = Program(
        _NAME, [str(script), str(folder)], str(folder / "deadline.log"), folder=str(Path(sys.executable).parent)
    )
    wanted = configuration(supervisor.home, [one])
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
    """Give the watch its order: ``left_s`` from now on, as the controller knows. Return whether that was news.

    ``home`` is the folder that servers of the box run out of, '' where none of them is to be ended (power_off.py).
    Where the controller has it from its own wall clock alone (not ``sure``), an order for this deadline stays: the
    start script's came from the provider's clock.
    """
    if _holds(folder, deadline, left_s, url, now, home):
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
        _written(folder / "arm.json", json.dumps(order) + "\n")
    return True


def _holds(folder: Path, deadline: int, left_s: float, url: str, now: Clocks, home: str) -> bool:
    """Tell whether the present order says the same, and the count under it agrees."""
    order, state = _read(folder / "arm.json"), _read(folder / "clock.json")
    if (order.get("deadline"), order.get("url"), order.get("home", "")) != (deadline, url, home):
        return False
    # The watch has not looked yet, or counts under it: whichever is newer.
    count = state if state.get("order") == order else order
    if count.get("boot") != now.boot or "left_s" not in count:
        return False
    return abs(float(count["left_s"]) - (now.up - float(count["up"])) - left_s) <= _TOLERANCE_S


def _written(file: Path, text: str, mode: int = 0o600) -> None:
    """Write a whole file or none, for its owner alone. Raises DrafthouseError."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, text, mode)
    except OSError as error:
        raise one_problem(
            "file-unwritable",
            error.strerror or str(error),
            "a folder for the deadline watch",
            "connect as root",
            str(file),
        ) from error


def _read(file: Path) -> Order:
    return cast("Order", object_in(file))


if __name__ == "__main__":
    main()
