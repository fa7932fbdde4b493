"""Resolve the profile for a box: the first task of every play. Its three facts are all that passes between phases.

- `drafthouse_profile`: the resolved profile, with the rendered files of both arms.
- `drafthouse_box`: the facts of the box.
- `drafthouse_run`: what belongs to this run, such as the key and folder of the results of this profile on this box, the
  file of the prompts, and until when the box may live.

Tasks that need more than one of them combine them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ..module_utils.addons import monitoring
from ..module_utils.addons.fleet.front import front_host
from ..module_utils.addons.gateway import script_of
from ..module_utils.cloud.deadline import deadline_of
from ..module_utils.cloud.vast.clock import ClockReading, Lease, lease_of
from ..module_utils.core.box_archive import archive
from ..module_utils.core.documents import short
from ..module_utils.core.errors import DrafthouseError, Problem, one_problem
from ..module_utils.core.pins import is_commit
from ..module_utils.core.plain_text import printable
from ..module_utils.core.procfs import clocks
from ..module_utils.host.gpu_choice import fitting_gpus
from ..module_utils.profiles.rented_vm import site_of_vm
from ..module_utils.profiles.result_key import measured_key
from ..module_utils.profiles.several_hosts import hosts_of
from ..module_utils.profiles.workspace import resolved_profile, site_from
from ..module_utils.prompts.suite_file import suites_file
from ..module_utils.serving.releases import identity_of
from ..plugin_utils.action import Action
from ..plugin_utils.role_settings import settings_of_roles
from ..plugin_utils.words import Answer, TaskVars, failure

if TYPE_CHECKING:
    from ..module_utils.host.box_types import BoxFacts
    from ..module_utils.profiles.profile_types import Site
    from ..module_utils.profiles.resolved_types import Hardware, ResolvedProfile

_display = Display()
# Left out of the fact: prompts are long and go to the box as a file; extras are only for `make render`.
_NOT_FOR_A_RUN = ("suites", "extras", "prompts")
_FACTS = ("drafthouse_profile", "drafthouse_box", "drafthouse_run")
_READ = ("profile", "overrides", "engine_version")
# Properties by which two boxes count as different in the key of a measurement.
_IDENTITY = ("hostname", "machine", "cpu", "cores", "memory_total", "gpus")


class ActionModule(Action):
    """`drafthouse.core.resolve`: reads `profile`, `engine_version`, `overrides` and the variables with our prefix."""

    _VALID_ARGS = frozenset({"again", "profile"})

    def answer(self, variables: TaskVars) -> Answer:
        """The three facts, and those of the roles' settings. Raises DrafthouseError with every problem."""
        fact = variables.get("drafthouse_profile")
        command_line = load_extra_vars(self._loader)
        if "drafthouse_profile" in command_line:
            return failure(DrafthouseError(_fact_given(str(fact))))
        was_resolved = isinstance(fact, Mapping)
        if was_resolved and not self._task.args.get("again"):
            # Once a run, so that an edit of the profile meanwhile has no effect; `again`: the box has changed.
            return {"changed": False}
        settings = {} if was_resolved else settings_of_roles(variables, command_line, self._templar)
        ours = self._ours(variables, command_line)
        # First, because problems of the profile can be reported without the box.
        resolved = self._find_home(ours, self._resolve(ours))
        deadline = _deadline(ours)
        for note in resolved["warnings"]:
            if note.startswith("runtime: "):
                _display.display(f"  {variables.get('inventory_hostname')}: {note}")
        answer = self._look_at_the_box(resolved, variables)
        if answer.get("failed"):
            return answer
        box = answer["box"]
        is_local = variables.get("ansible_connection") == "local"
        vm_site = None if is_local else site_of_vm(resolved, box, ours)
        site = _with_gpus(vm_site or resolved["site"], box, resolved["hardware"])
        if site != resolved["site"]:
            resolved = resolved_profile(resolved["profile"], site, self._overrides(ours))
        if served := box.get("served"):
            # Whether this same profile, with the same files, serves already.
            served["same"] = served["identity"] == identity_of(resolved)
        rented = None if is_local or site["manage_host"] else box["first_process"]
        deadline = deadline or (rented or {}).get("deadline")
        run = {
            **self._names_of_run(resolved, box, ours),
            "rented": rented,
            "deadline": deadline,
            "lease": _lease(ours, deadline),
            "rented_vm": bool(vm_site),
            "front": _front(resolved, variables),
        }
        profile = {name: value for name, value in resolved.items() if name not in _NOT_FOR_A_RUN}
        facts = {**settings, "drafthouse_profile": profile, "drafthouse_box": box, "drafthouse_run": run}
        return {"changed": False, "ansible_facts": facts}

    def _names_of_run(self, resolved: ResolvedProfile, box: Any, ours: TaskVars) -> Answer:
        """The part of `drafthouse_run` that names the run's results and the files that it sends."""
        home = resolved["site"]["home"]
        hardware = {part: box[part] for part in _IDENTITY}
        span = [resolved["site"]["span"]] if "span" in resolved["site"] else []
        key = measured_key(resolved, hardware, *span)
        return {
            "key": key,
            "result_dir": f"{home}/results/{resolved['profile']}/{key}",
            "archive": archive()[0],
            "suites_file": suites_file(home, resolved["suites"]),
            "overrides": self._overrides(ours),
        }

    def _ours(self, variables: TaskVars, command_line: TaskVars) -> dict[str, Any]:
        """Our variables, with templates filled in. Keys of an inventory may be of any type."""
        ours = {
            key: self._templar.template(value)
            for key, value in variables.items()
            if isinstance(key, str) and key not in _FACTS and (key.startswith("drafthouse_") or key in _READ)
        }
        for name in _READ:
            given = variables.get(f"drafthouse_{name}")
            if name not in command_line and given is not None:
                # Once the fact exists it hides the inventory's drafthouse_profile, a name.
                ours[name] = given["profile"] if isinstance(given, Mapping) and name == "profile" else given
        if named := self._task.args.get("profile"):
            ours["profile"] = named
        return ours

    def _find_home(self, ours: dict[str, Any], resolved: ResolvedProfile) -> ResolvedProfile:
        """The profile with the home of the box's user, asked from the box, in place of ~."""
        site = resolved["site"]
        places = {"drafthouse_home": site["home"], "drafthouse_models_dir": site["models_dir"]}
        relative = {name: place for name, place in places.items() if place.startswith("~/")}
        if not relative:
            return resolved
        for name, place in relative.items():
            ours[name] = self._remote_expand_user(place)
        return self._resolve(ours)

    def _resolve(self, variables: TaskVars) -> ResolvedProfile:
        name = variables.get("profile")
        if not name:
            do = "add -e profile=NAME, or drafthouse_profile to the inventory (make profiles shows them all)"
            raise one_problem("missing-option", "no profile", "a profile name", do, "profile")
        site = site_from(variables)
        # A runtime of the command line must be used; one of the inventory may give way to another.
        site["runtime_asked"] = "drafthouse_runtime" in load_extra_vars(self._loader)
        return resolved_profile(str(name), site, self._overrides(variables))

    def _overrides(self, variables: TaskVars) -> dict[str, Any]:
        """Changes to the profile: `overrides`, and `engine_version` as one of them. Raises DrafthouseError."""
        given = variables.get("overrides") or {}
        if not isinstance(given, Mapping):
            found = f"{short(repr(given))}, which is not a mapping"
            raise one_problem("wrong-type", found, "keys of a profile with values", "correct it", "overrides")
        overrides = dict(given)
        if variables.get("engine_version"):
            overrides["engine_version"] = str(variables["engine_version"])
        return overrides

    def _look_at_the_box(self, resolved: ResolvedProfile, variables: TaskVars) -> Answer:
        """Result of the module `box_facts`, asked about all that the profile needs on the box."""
        site, engine = resolved["site"], resolved["engine"]
        program = [engine["program"]] if "program" in engine else []
        ours = [
            script_of(site["home"]),
            monitoring.prometheus_script_path(site["home"]),
            *(f"{site['home']}/{name}/serve.sh" for name in ("watchdog", "replica", "fleet/gateway", "fleet/router")),
            f"{site['home']}/serve/{resolved['profile']}/follower/serve.sh",
            engine["home"],
            resolved["key_file"],
            *program,
        ]
        hub = []
        for item in resolved["weights"]:
            if item["source"] != "hub":
                continue
            commit = item.get("pinned") or item["details"]["revision"]
            if is_commit(commit):
                hub.append({"path": item["path"], "repo": item["details"]["repo"], "commit": commit})
        arguments = {
            "paths": [site["home"], site["models_dir"]],
            "present": [*(item["path"] for item in resolved["weights"]), *ours],
            "hub": hub,
            "files": [f"{site['home']}/served/start.sh", *_programs(resolved)],
            "environments": [*(f"{site['home']}/{name}" for name in ("uv", "venv")), engine["home"]],
            "gpus": site.get("gpus", []),
            "ports": resolved["ports"],
            "supervisor_pidfile": f"{site['home']}/supervisor/supervisord.pid",
            "home": site["home"],
        }
        if hosts_of(site) > 1:
            arguments["private_subnet"] = site["private_subnet"]
        return self.run_module("drafthouse.core.box_facts", arguments, variables)


def _programs(resolved: ResolvedProfile) -> list[str]:
    """Paths of our programs in the engine's environment."""
    install = resolved["engine"]["install"]
    names = [install.get("launcher"), *(install.get("tools") or [])] if install else []
    return [f"{resolved['engine']['home']}/bin/{name}" for name in names if name]


def _fact_given(value: str) -> Problem:
    """Problem of a fact's name on the command line, whose variables hide facts."""
    name = short(printable(value))
    do = f"name the profile with -e profile={name}, and leave drafthouse_profile unset"
    found = f"the variable drafthouse_profile, which is '{name}'"
    return Problem("invalid-setting", found, "this name free for what the task sets", do, "drafthouse_profile")


def _with_gpus(site: Site, box: BoxFacts, hardware: Hardware) -> Site:
    """The site, with GPUs if it names none: those of the box's environment, else those that fit the profile."""
    choice = box.get("gpu_choice")
    if "gpus" in site or (choice and choice["wrong"]):
        return site
    ids = choice["ids"] if choice else fitting_gpus(box["gpus"], hardware.get("gpu_names", ()), hardware["devices"])
    return {**site, "gpus": ids} if choice or ids else site


def _deadline(variables: TaskVars) -> int | None:
    """End of a rented box (unix seconds) by the inventory, else by its label; None: no end. Raises DrafthouseError."""
    given = variables.get("drafthouse_deadline") or deadline_of(variables.get("drafthouse_label"))
    if given and not re.fullmatch(r"\d{1,11}", str(given)):
        found, needed = short(repr(given)), "seconds since 1970"
        raise one_problem("wrong-type", found, needed, "correct it, or remove it", "drafthouse_deadline")
    return int(given) if given else None


def _front(resolved: ResolvedProfile, variables: TaskVars) -> str:
    """Host with the front of the box's fleet, even if --limit excludes it; "" outside a fleet."""
    if resolved["fleet"] is None:
        return ""
    hosts = variables["hostvars"]
    members = [str(name) for name in variables["groups"]["all"] if hosts[name].get("drafthouse_fleet") is not None]
    return front_host(resolved["fleet"]["front"], members or [str(variables["inventory_hostname"])])


def _lease(variables: TaskVars, deadline: int | None) -> Lease | None:
    """Until when the box may live, and by which clock; None without a deadline.

    The deadline of a rental's label counts by the provider's clock, which the inventory `vastai` has read. A deadline
    that the user gives counts by the controller's clock. So does one of another inventory's label, but that lease is
    not ``sure``: the controller's clock may be wrong.
    """
    if deadline is None:
        return None
    given = variables.get("drafthouse_deadline")
    label = deadline_of(variables.get("drafthouse_label"))
    if deadline == label and variables.get("drafthouse_lease"):
        lease: Lease = variables["drafthouse_lease"]
        return {**lease, "sure": True}
    now = clocks()
    return {**lease_of(deadline, ClockReading(now.wall, now.up, now.boot)), "sure": bool(given) and deadline != label}
