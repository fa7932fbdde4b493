"""Hosts that serve one model together, a replica: give each its place, compare them, and render their common files."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..module_utils.core.errors import DrafthouseError, one_problem
from ..module_utils.core.places import CODE
from ..module_utils.profiles import several_hosts
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars, failure

if TYPE_CHECKING:
    from ..module_utils.host.box_types import BoxFacts
    from ..module_utils.profiles.profile_types import Site, Span
    from ..module_utils.profiles.resolved_types import ResolvedProfile

_ALL_HOSTS = "run the play on all hosts of the replica, and first fix what stopped it on the others"


class ActionModule(Action):
    """`drafthouse.core.replica`, run on every host of the play.

    ``part: places`` compares the boxes and sets the fact `drafthouse_span`, the host's place. ``part: engine`` compares
    the results of `drafthouse.core.replica_facts`, registered as ``facts``, and returns as ``entries`` the files that
    keep the hosts together. Both fail on all hosts of a replica if one host differs.
    """

    _VALID_ARGS = frozenset({"part", "facts"})
    _NEEDED = ("part",)

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the part."""
        if self._task.args["part"] == "places":
            return self._places(variables)
        return self._engine(variables)

    def _places(self, variables: TaskVars) -> Answer:
        """The host's place as a fact; a failure if its replica's boxes differ."""
        hostvars = variables["hostvars"]
        mine = str(variables["inventory_hostname"])
        names = [str(name) for name in variables["ansible_play_hosts_all"]]
        members = []
        for name in names:
            # A host without facts is no member; `replicas` then refuses its replica as incomplete.
            if "drafthouse_box" in hostvars[name]:
                site = _site(hostvars[name])
                if several_hosts.hosts_of(site) > 1:
                    members.append(several_hosts.Member(name, str(site.get("replica", ""))))
        replicas = several_hosts.replicas(members, several_hosts.hosts_of(_site(hostvars[mine])))
        replica, mates = next((name, mates) for name, mates in replicas.items() if mine in mates)
        values = {name: _of_box(hostvars[name]) for name in mates}
        if wrong := several_hosts.differences(values, replica):
            return failure(DrafthouseError(wrong))
        private = {name: hostvars[name]["drafthouse_box"]["private"] for name in mates}
        spans = several_hosts.spans(
            {replica: mates},
            {name: network["addresses"] for name, network in private.items()},
            {name: network["infiniband"] for name, network in private.items()},
        )
        return {"changed": False, "ansible_facts": {"drafthouse_span": spans[mine]}}

    def _engine(self, variables: TaskVars) -> Answer:
        """The host's files; a failure unless all hosts of the replica have the same engine and weights."""
        resolved: ResolvedProfile = variables["drafthouse_profile"]
        span = resolved["site"]["span"]
        registered = str(self._task.args["facts"])
        hostvars = variables["hostvars"]
        facts = {name: hostvars[name].get(registered) or {} for name in span["names"]}
        if missing := [name for name, fact in facts.items() if fact.get("values") is None]:
            found = f"no facts about the engine on {', '.join(missing)}"
            raise one_problem(
                "replica-incomplete", found, "every host of the replica ready", _ALL_HOSTS, span["replica"]
            )
        values = {name: fact["values"] for name, fact in facts.items()}
        if wrong := several_hosts.differences(values, span["replica"]):
            return failure(DrafthouseError(wrong))
        return {"changed": False, "entries": _entries(resolved, span)}


def _site(variables: TaskVars) -> Site:
    site: Site = variables["drafthouse_profile"]["site"]
    return site


def _of_box(variables: TaskVars) -> dict[str, str]:
    """Properties of a box and its profile that must be the same on all hosts of a replica."""
    box: BoxFacts = variables["drafthouse_box"]
    resolved: ResolvedProfile = variables["drafthouse_profile"]
    cards = Counter(f"{gpu['name']} ({gpu['memory_mib']:,} MiB)" for gpu in box["gpus"])
    # Ray's workers get the head's paths; other engines use each host's own.
    paths = {}
    if several_hosts.executor_of(resolved["site"]) == "ray":
        paths["weights"] = ", ".join(item["path"] for item in resolved["weights"])
    return {
        **paths,
        "profile": resolved["profile"],
        "engine": f"{resolved['engine']['name']} {resolved['engine']['version']}",
        "processor": box["machine"],
        "GPUs": ", ".join(f"{number} x {name}" for name, number in sorted(cards.items())),
        "driver": ", ".join(sorted({gpu["driver"] for gpu in box["gpus"]})),
    }


def _entries(resolved: ResolvedProfile, span: Span) -> list[dict[str, str]]:
    """The program that keeps the hosts together; for a follower also its scripts for all arms."""
    site = resolved["site"]
    folder = f"{site['home']}/serve/{resolved['profile']}"
    text = (CODE / "serving" / "together.py").read_text("utf-8")
    entries = [{"path": several_hosts.program(site), "mode": "0755", "content": text}]
    # In a Ray cluster of the user's own only the head starts anything.
    if span["rank"] == 0 or "ray_address" in site:
        return entries
    folders = [f"{site['home']}/logs", *(f"{folder}/{name}" for name in (*resolved["arms"], "follower"))]
    entries += [{"path": path, "mode": "0755"} for path in folders]
    scripts = {}
    for name, arm in resolved["arms"].items():
        for file in arm["files"]:
            entries.append(
                {"path": f"{folder}/{name}/{file['path']}", "mode": file["mode"], "content": file["content"]}
            )
        scripts[name] = "".join(file["content"] for file in arm["files"])
    follow = several_hosts.follow_script(site, scripts)
    return [*entries, {"path": f"{folder}/follower/serve.sh", "mode": "0755", "content": follow}]
