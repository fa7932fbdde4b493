"""Fail if the controller's Ansible cannot run our playbooks to the end, or if the inventory names no host.

Without this, Ansible would fail after hours of work, outside every rescue, or do nothing and exit with 0.
"""

from __future__ import annotations

from importlib.util import find_spec

from ansible import constants
from ansible.release import __version__

from ..module_utils.core.errors import one_problem
from ..module_utils.core.versions import as_version
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars, failure

#: Versions of ansible-core that our tests cover: from the first to below the second.
_CORES = ("2.19", "2.22")
#: Packages that our actions import on the controller, some of them only after the first measurements.
_IMPORTED = ("numpy", "yaml", "jinja2", "jsonschema", "packaging", "aiohttp")
#: Strategies in which all hosts finish a task before the next begins; in the others each goes on alone.
_IN_STEP = ("linear", "debug")
_ALONE = ("free", "host_pinned")
_DO = "make venv in the clone, then .venv/bin/ansible-playbook (or a verb of drafthouse, which uses it)"


class ActionModule(Action):
    """`drafthouse.core.hosts_named`: no arguments."""

    def answer(self, variables: TaskVars) -> Answer:
        """A failure if the inventory has no host. Raises DrafthouseError for an unfit Ansible."""
        _check_ansible(variables)
        if variables.get("groups", {}).get("all"):
            return {"changed": False}
        sources = ", ".join(str(source) for source in variables.get("ansible_inventory_sources") or ["(none)"])
        rent = "rent one (make rent), " if "vastai" in sources else ""
        do = f"{rent}add it to the inventory's hosts.yml (which has an example), or choose another with -i"
        found = "an inventory without hosts"
        return failure(one_problem("no-host", found, "at least one box to work on", do, sources))


def _check_ansible(variables: TaskVars) -> None:
    """Raise DrafthouseError for other versions of ansible-core, missing packages, and strategies that cannot work."""
    oldest, too_new = _CORES
    if not as_version(oldest) <= as_version(__version__) < as_version(too_new):
        needed = f"ansible-core from {oldest} to below {too_new}"
        raise one_problem("ansible-unfit", f"ansible-core {__version__}", needed, _DO)
    if missing := [name for name in _IMPORTED if find_spec(name) is None]:
        found = f"a Python without {', '.join(missing)}"
        raise one_problem("ansible-unfit", found, "the libraries of requirements.txt beside Ansible", _DO)
    strategy = constants.DEFAULT_STRATEGY.rpartition(".")[2]
    if strategy not in (*_IN_STEP, *_ALONE):
        needed = f"one of: {', '.join((*_IN_STEP, *_ALONE))}"
        raise one_problem("ansible-unfit", f"the strategy {strategy}", needed, "unset ANSIBLE_STRATEGY")
    meeting = ("drafthouse_fleet", "drafthouse_hosts_per_replica")
    hosts = variables.get("hostvars", {})
    if strategy in _ALONE and any(name in hosts[host] for host in hosts for name in meeting):
        found = f"the strategy {strategy}, and hosts of a fleet or a replica"
        raise one_problem("ansible-unfit", found, "linear: these hosts wait for each other", "unset ANSIBLE_STRATEGY")
