"""Fail where this controller's Ansible cannot play ours to the end, and where an inventory names no host.

Ansible alone would fail behind hours of work, outside every rescue, or do nothing and exit 0.
"""

from __future__ import annotations

from importlib.util import find_spec

from ansible import constants
from ansible.release import __version__

from ..module_utils.core.errors import one_problem
from ..module_utils.core.versions import as_version
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars, failure

#: Lines of ansible-core that our lanes play: from the first to below the second.
_CORES = ("2.19", "2.22")
#: What actions import on the controller, some of them behind the first measurements.
_IMPORTED = ("numpy", "yaml", "jinja2", "jsonschema", "packaging", "aiohttp")
#: Strategies with which hosts keep step. The others let each go on alone, so hosts of a fleet do not meet.
_IN_STEP = ("linear", "debug")
_ALONE = ("free", "host_pinned")
_OURS = "make venv in the clone, then .venv/bin/ansible-playbook (or a verb of drafthouse, which uses it)"


class ActionModule(Action):
    """`drafthouse.core.hosts_named`: no arguments."""

    def answer(self, variables: TaskVars) -> Answer:
        """A failure unless this Ansible can play, and there is a host to work on."""
        _played_by_this_ansible(variables)
        if variables.get("groups", {}).get("all"):
            return {"changed": False}
        sources = ", ".join(str(source) for source in variables.get("ansible_inventory_sources") or ["(none)"])
        rent = "rent one (make rent), " if "vastai" in sources else ""
        return failure(
            one_problem(
                "no-host",
                "an inventory without hosts",
                "at least one box to work on",
                f"{rent}add it to the inventory's hosts.yml (which has an example), or choose another with -i",
                sources,
            )
        )


def _played_by_this_ansible(variables: TaskVars) -> None:
    """Raise DrafthouseError for another line of ansible-core, missing libraries, and strategies that cannot work."""
    first, beyond = _CORES
    if not as_version(first) <= as_version(__version__) < as_version(beyond):
        needed = f"ansible-core from {first} to below {beyond}"
        raise one_problem("ansible-unfit", f"ansible-core {__version__}", needed, _OURS)
    if missing := [name for name in _IMPORTED if find_spec(name) is None]:
        found = f"a Python without {', '.join(missing)}"
        raise one_problem("ansible-unfit", found, "the libraries of requirements.txt beside Ansible", _OURS)
    strategy = constants.DEFAULT_STRATEGY.rpartition(".")[2]
    if strategy not in (*_IN_STEP, *_ALONE):
        needed = f"one of: {', '.join((*_IN_STEP, *_ALONE))}"
        raise one_problem("ansible-unfit", f"the strategy {strategy}", needed, "unset ANSIBLE_STRATEGY")
    together = ("drafthouse_fleet", "drafthouse_hosts_per_replica")
    hosts = variables.get("hostvars", {})
    if strategy in _ALONE and any(name in hosts[host] for host in hosts for name in together):
        found = f"the strategy {strategy}, and hosts of a fleet or a replica"
        raise one_problem("ansible-unfit", found, "linear: these hosts wait for each other", "unset ANSIBLE_STRATEGY")
