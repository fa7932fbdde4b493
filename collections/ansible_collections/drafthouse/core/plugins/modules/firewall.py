#!/usr/bin/python
"""Guard ports with iptables chains of our own, in both IP families, so that nobody is locked out."""

from __future__ import annotations

DOCUMENTATION = r"""
module: firewall
short_description: Guard ports with iptables chains of our own
description:
  - The ports are open to the given networks, to the box itself and to containers on the given interfaces, and closed
    to all others.
  - Filters in INPUT and, where Docker made it, in DOCKER-USER, over IPv4 and IPv6.
    Nothing but our own chains is written.
  - New rules are on trial until the action of the same name confirms them over a new connection. Otherwise the box
    rolls them back by itself.
  - Units restore the confirmed rules when the box, Docker or another firewall starts.
attributes:
  check_mode: {support: full, description: "Shows the rules, changes nothing."}
  diff_mode: {support: full, description: Shows the rules and the files before and after.}
options:
  state: {description: Whether our chains are there., type: str, choices: [present, absent], default: present}
  ports: {description: TCP ports to guard. Needed unless absent., type: list, elements: int, default: []}
  closed_ports: {description: TCP ports that nobody outside may reach., type: list, elements: int, default: []}
  allow_cidrs: {description: Networks or addresses that may reach them., type: list, elements: str, default: []}
  docker_interfaces:
    description: Bridges whose containers may reach them.
    type: list
    elements: str
    default: [docker0]
  client_connections:
    description: How many connections one address (IPv6, one /64) may have at a port; 0 sets no limit.
    type: int
    default: 0
  client_rate: {description: How many new ones a second it may open; 0 sets no limit., type: int, default: 0}
  group:
    description: The other hosts that serve the same model. They reach every port.
    type: list
    elements: str
    default: []
  group_ports:
    description: Where the engines of such hosts listen for each other, as FIRST:LAST. Nobody else reaches them.
    type: list
    elements: str
    default: []
  ssh_port: {description: Port of SSH that is never filtered. 0 finds it., type: int, default: 0}
  confirm_seconds: {description: Time on trial., type: int, default: 60}
  program: {description: Content of the program that puts rules in place on the box., type: str, required: true}
  units: {description: Content of the systemd units by their names., type: dict, required: true}
  confirm: {description: Token of the rules on trial that are to be kept. For the action., type: str, default: ""}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Let one network reach the API
  drafthouse.core.firewall:
    ports: [8000]
    allow_cidrs: [192.0.2.0/24, "2001:db8:1::/48"]
    program: "{{ lookup('ansible.builtin.file', 'drafthouse-firewall', rstrip=false) }}"
    units:
      drafthouse-firewall.service: "{{ lookup('ansible.builtin.file', 'drafthouse-firewall.service', rstrip=false) }}"
"""
RETURN = r"""
rules: {description: "The rules by IP family (C(v4), C(v6)).", returned: success, type: dict}
taken_back: {description: Whether the confirmation came too late., returned: failure, type: bool}
on_trial: {description: Token to confirm the rules with; empty if none are on trial., returned: success, type: str}
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import DrafthouseError
from ..module_utils.core.files import text_in
from ..module_utils.host.firewall import apply as box
from ..module_utils.host.firewall import rules as firewall
from ..module_utils.host.firewall.means import FirewallMeans, refusals


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "ports": {"type": "list", "elements": "int", "default": []},
            "closed_ports": {"type": "list", "elements": "int", "default": []},
            "allow_cidrs": {"type": "list", "elements": "str", "default": []},
            "docker_interfaces": {"type": "list", "elements": "str", "default": ["docker0"]},
            "client_connections": {"type": "int", "default": 0},
            "client_rate": {"type": "int", "default": 0},
            "group": {"type": "list", "elements": "str", "default": []},
            "group_ports": {"type": "list", "elements": "str", "default": []},
            "ssh_port": {"type": "int", "default": 0},
            "confirm_seconds": {"type": "int", "default": 60},
            "program": {"type": "str", "required": True},
            "units": {"type": "dict", "required": True},
            "confirm": {"type": "str", "default": "", "no_log": False},
        },
        required_if=[("state", "present", ["ports"])],
        supports_check_mode=True,
    )
    try:
        if module.params["state"] == "absent":
            module.exit_json(**_absent(module))
        elif module.params["confirm"]:
            box.confirm(module.params["confirm"], box.session())
            module.exit_json(**_make_lasting(module), on_trial="")
        else:
            module.exit_json(**_present(module))
    except DrafthouseError as error:
        module.fail_json(**error.result, taken_back=isinstance(error, box.TakenBack))


def _present(module: AnsibleModule) -> dict[str, Any]:
    """Result for ``state: present``: the rules are put on trial unless they are in force."""
    given = module.params
    running = box.session()
    answers = {family: box.save_output(family) for family in box.families()}
    wished = _wished(module, running, answers)
    wanted = {family: firewall.rules(wished, family) for family in firewall.FAMILIES}
    found = {family: firewall.ours(answer.out) for family, answer in answers.items()}
    result: dict[str, Any] = {"rules": {f"v{family}": lines for family, lines in wanted.items()}, "on_trial": ""}
    in_force = not box.pending() and all(
        firewall.in_place(found[family], wanted[family])
        and box.confirmed_rules(family) == firewall.restore_text(wanted[family])
        for family in found
    )
    files, modes = _files(given)
    stale = box.differing(files, modes)
    settled = in_force and not stale and (not box.has_systemd() or box.enabled(list(given["units"])))
    result |= {"changed": not settled, "diff": _diff(found, wanted, files, stale)}
    if not box.has_systemd():
        module.warn("no systemd on this box: the rules are active, but a reboot loses them")
    if settled or module.check_mode:
        return result
    if in_force:
        return result | _make_lasting(module)
    box.write(box.PROGRAM, given["program"], modes[box.PROGRAM])
    token = secrets.token_hex(8)
    box.start_trial(wanted, running, token, given["confirm_seconds"])
    return result | {"on_trial": token}


def _wished(
    module: AnsibleModule, running: firewall.Session | None, answers: Mapping[int, box.Output]
) -> firewall.Wishes:
    """The checked wishes. Raises DrafthouseError with all problems of the options and the box."""
    given = module.params
    facts = box.read_firewall(answers)
    if module.check_mode and facts.missing and not facts.own_nftables:
        module.warn("iptables is not installed yet: the rules are shown as on a box without others")
        facts = FirewallMeans(root=facts.root, docker_backend=facts.docker_backend)
    problems = [*refusals(facts), *firewall.trial_problems(given["confirm_seconds"])]
    ssh_ports = {given["ssh_port"]} if given["ssh_port"] else box.ssh_ports(running)
    try:
        wished = firewall.wishes(
            given["ports"],
            given["allow_cidrs"],
            given["docker_interfaces"],
            ssh_ports,
            given["closed_ports"],
            given["client_connections"],
            given["client_rate"],
            given["group"],
            given["group_ports"],
        )
    except DrafthouseError as error:
        raise DrafthouseError([*problems, *error.problems]) from None
    if problems:
        raise DrafthouseError(problems)
    return wished


def _files(given: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, int]]:
    """Contents and modes of our files on the box, by path."""
    files = {box.PROGRAM: str(given["program"])}
    if box.has_systemd():
        files |= {f"{box.UNITS}/{name}": str(text) for name, text in given["units"].items()}
    return files, {path: 0o755 if path == box.PROGRAM else 0o644 for path in files}


def _make_lasting(module: AnsibleModule) -> dict[str, Any]:
    """Write and enable what restores the confirmed rules at a start, as far as it differs."""
    files, modes = _files(module.params)
    for path in box.differing(files, modes):
        box.write(path, files[path], modes[path])
    if box.has_systemd():
        box.enable(list(module.params["units"]))
    return {"changed": True}


def _absent(module: AnsibleModule) -> dict[str, Any]:
    """Result for ``state: absent``: exactly our rules and files are removed."""
    units = list(module.params["units"])
    # Without iptables there are no families, and no rules of ours.
    found = {family: firewall.ours(box.save_output(family).out) for family in box.families()}
    left = box.leftovers(units)
    changed = bool(left or any(ours.rules or ours.jumps for ours in found.values()))
    diff = _diff(found, None, {}, []) + [{"before_header": path, "before": "there\n", "after": ""} for path in left]
    if changed and not module.check_mode:
        box.remove(module.params["program"], units)
    return {"changed": changed, "rules": {}, "on_trial": "", "diff": diff}


def _diff(
    found: Mapping[int, firewall.Ours],
    wanted: Mapping[int, Sequence[str]] | None,
    files: Mapping[str, str],
    stale: Sequence[str],
) -> list[dict[str, str]]:
    """Ansible's diff: our rules of each family, then our files. ``wanted`` is None if the rules are removed."""
    texts = []
    for family, ours in found.items():
        after = "" if wanted is None else firewall.shown(firewall.would_be(ours, wanted[family]))
        texts.append((f"firewall rules, IPv{family}", firewall.shown(ours), after))
    texts += [(path, text_in(path), files[path]) for path in stale]
    return [
        {"before_header": name, "after_header": name, "before": before, "after": after}
        for name, before, after in texts
        if before != after
    ]


if __name__ == "__main__":
    main()
