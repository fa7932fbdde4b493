"""The inventory `drafthouse.core.vastai`: the instances of accounts at vast.ai, as hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: vastai
short_description: Instances rented from vast.ai as hosts
description:
  - Asks vast.ai's REST API for the instances of one or several accounts, and makes a host of each that is chosen.
  - Without a key or an answer it says so in one line and has no hosts; other sources of the inventory work on.
  - What is read is kept for a minute, and is read anew as soon as something is rented or ended from here.
  - What bills and is not in the ledger of C(make rent), or is in it and not in the list, is said in a line each.
extends_documentation_fragment:
  - constructed
options:
  plugin:
    description: Marks a file as one for this plugin.
    required: true
    choices: [drafthouse.core.vastai]
  url:
    description: Address of the API.
    type: str
    default: https://console.vast.ai
    env:
      - name: VAST_URL
  accounts:
    description:
      - The accounts to ask. Each is a C(name), which becomes C(vast_account), and C(key_env), the variable of the
        environment that holds its key. Keys never stand in this file.
      - By default one, whose key is C(VAST_API_KEY), or lies where vast.ai's own command line puts it
        (C(~/.config/vastai/vast_api_key), C(~/.vast_api_key)).
    type: list
    elements: dict
    default: []
  label:
    description: Only instances with a label like one of these (shell patterns).
    type: list
    elements: str
    default: ['*']
  statuses:
    description: Only instances that do one of these.
    type: list
    elements: str
    default: [running]
  rented_here:
    description:
      - Only instances that this ledger of C(make rent) knows. An account's other machines then never become hosts,
        and no playbook reaches them.
    type: bool
    default: false
  api_ports:
    description: The ports inside that the API may have; the first that is mapped becomes C(drafthouse_api_port).
    type: list
    elements: int
    default: [8443, 443, 8000]
  timeout:
    description: Seconds without an answer after which a try is given up; there are two.
    type: int
    default: 15
  cache:
    description: Whether what was read is kept.
    type: bool
    default: true
    env:
      - name: ANSIBLE_INVENTORY_CACHE
    ini:
      - section: inventory
        key: cache
  cache_plugin:
    description: What keeps it.
    type: str
    default: jsonfile
    env:
      - name: ANSIBLE_INVENTORY_CACHE_PLUGIN
    ini:
      - section: inventory
        key: cache_plugin
  cache_timeout:
    description: For how many seconds.
    type: int
    default: 60
    env:
      - name: ANSIBLE_INVENTORY_CACHE_TIMEOUT
    ini:
      - section: inventory
        key: cache_timeout
  cache_connection:
    description: Where. Nothing secret is kept.
    type: str
    default: ~/.cache/drafthouse/inventory
    env:
      - name: ANSIBLE_INVENTORY_CACHE_CONNECTION
    ini:
      - section: inventory
        key: cache_connection
  cache_prefix:
    description: How its files' names begin.
    type: str
    default: vastai_
    env:
      - name: ANSIBLE_INVENTORY_CACHE_PLUGIN_PREFIX
    ini:
      - section: inventory
        key: inventory_cache_prefix
"""

EXAMPLES = r"""
# inventory/vastai/vastai.yml
plugin: drafthouse.core.vastai
rented_here: true
accounts:
  - {name: home, key_env: VAST_API_KEY}
  - {name: work, key_env: VAST_API_KEY_WORK}
keyed_groups:
  - {prefix: gpu, key: vast_gpu_name}
groups:
  cheap: drafthouse_price_per_hour < 2
compose:
  drafthouse_home: "'/workspace/' ~ vast_account"
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, cast

from ansible.errors import AnsibleError, AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

from ..module_utils.cloud.vast.account import compare_with_account
from ..module_utils.cloud.vast.client import VastClient, key_of_environment
from ..module_utils.cloud.vast.clock import Lease, ends_at, lease_of
from ..module_utils.cloud.vast.instances import HostVariables, chosen, host_of
from ..module_utils.cloud.vast.ledger import FILE, Rental, id_of, read
from ..module_utils.cloud.vast.local_state import state_folder
from ..module_utils.cloud.vast.rows import Instance
from ..module_utils.core.errors import DrafthouseError, Problem
from ..module_utils.core.procfs import clocks
from ..module_utils.core.retry import Patience

# A person waits: vast.ai's trouble of a moment is tried through, and not more.
_PATIENCE = Patience(tries=2, first_s=1.0, longest_s=5.0, longest_wait_s=10.0)


class Stamp(TypedDict):
    """What kept hosts depend on, beside their age."""

    ledger: int
    accounts: list[list[str]]
    api_ports: list[int]
    boot: str


class Kept(TypedDict, total=False):
    """What is kept between two runs; ``billing`` are `Problem`s as plain data."""

    stamp: Stamp
    hosts: list[HostVariables]
    billing: list[dict[str, str]]


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """`plugin: drafthouse.core.vastai`, in a file called vastai.yml."""

    NAME = "drafthouse.core.vastai"

    def verify_file(self, path: str) -> bool:
        """Take files whose name ends in vastai.yml."""
        return bool(super().verify_file(path)) and path.endswith(("vastai.yml", "vastai.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Put the hosts into the inventory."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        accounts = self._accounts()
        folder, known = self._ledger()
        hosts = self._hosts(accounts, folder, known, path, cache)
        labels, wanted = self.get_option("label"), known if self.get_option("rented_here") else None
        picked = chosen(hosts, labels, self.get_option("statuses"), wanted)
        self.display.v(f"vast.ai: {len(hosts)} instances, {len(picked)} of them hosts")
        for host in picked:
            if "ansible_host" in host:
                self._add(host)
        for host in chosen(hosts, labels, {host["vast_status"] for host in hosts}, known):
            if host not in picked:
                self._left_out(host, f"is '{host['vast_status']}'")
            elif "ansible_host" not in host:
                self._left_out(host, "has no address for SSH yet")

    def _left_out(self, host: HostVariables, why: str) -> None:
        """Say that one of ours is no host: whoever sees none may rent another one, and pay for two."""
        number = host["drafthouse_instance"]
        self.display.warning(
            f"vast.ai: instance {number} {why}, so it is not a host; it bills: make destroy ARGS={number}",
            formatted=True,
        )

    def _accounts(self) -> list[dict[str, str]]:
        accounts = self.get_option("accounts") or [{"name": "", "key_env": "VAST_API_KEY"}]
        for account in accounts:
            if not isinstance(account, Mapping) or set(account) != {"name", "key_env"}:
                found = sorted(account) if isinstance(account, Mapping) else repr(account)
                raise AnsibleParserError(f"accounts: found {found}, needed name and key_env of each")
        names = [str(account["name"]) for account in accounts]
        if len(set(names)) < len(names):
            raise AnsibleParserError(f"accounts: found the names {', '.join(names)}, needed a different one for each")
        return [{name: str(value) for name, value in account.items()} for account in accounts]

    def _ledger(self) -> tuple[Path | None, Mapping[str, Rental]]:
        """The folder of what is rented from here, None where there cannot be one, and what its ledger knows."""
        try:
            folder = state_folder()
            book = read(folder / FILE)
            for problem in book.damage:
                self._warn(problem)
            return folder, book.rentals
        except DrafthouseError as error:
            self._say("", error)
            return None, {}

    def _hosts(
        self,
        accounts: list[dict[str, str]],
        folder: Path | None,
        known: Mapping[str, Rental],
        path: str,
        cache: bool,
    ) -> list[HostVariables]:
        """The variables of all instances, kept ones where they are young and nothing happened since."""
        clients = {account["name"]: client for account in accounts if (client := self._client(account))}
        stamp: Stamp = {
            "ledger": _changed(folder / FILE) if folder else 0,
            "accounts": [[name, client.account] for name, client in clients.items()],
            "api_ports": self.get_option("api_ports"),
            # What is kept counts on by this machine's clock since its start.
            "boot": clocks().boot,
        }
        keeps = self.get_option("cache")
        kept = self._kept(path) if keeps and cache else {}
        if kept.get("stamp") == stamp and clients:
            for told in kept["billing"]:
                self._warn(Problem.of(told))
            return kept["hosts"]
        key_env = {account["name"]: account["key_env"] for account in accounts}
        hosts: list[HostVariables] = []
        billing: list[Problem] = []
        complete = bool(clients)
        for name, client in clients.items():
            try:
                rows = client.instances()
                if folder:
                    found = compare_with_account(client, folder / FILE, rows)
                    billing += [problem for problem in found.billing if problem not in found.damage]
            except DrafthouseError as error:
                self._say(name, error)
                complete = False
            else:
                hosts += self._of_account(name, client, rows, folder, known, key_env[name])
        for problem in billing:
            self._warn(problem)
        if keeps and complete:
            keep: Kept = {"stamp": stamp, "hosts": hosts, "billing": [problem.as_dict() for problem in billing]}
            self._cache[self.get_cache_key(path)] = keep
        return hosts

    def _of_account(
        self,
        name: str,
        client: VastClient,
        rows: list[Instance],
        folder: Path | None,
        known: Mapping[str, Rental],
        key_env: str,
    ) -> list[HostVariables]:
        """The variables of an account's instances, in the order of its list."""
        known_hosts = str(folder / "known_hosts") if folder else ""
        ports = self.get_option("api_ports")
        hosts = []
        for row in rows:
            host = host_of(row, account=name, url=client.url, known_hosts=known_hosts, api_ports=ports)
            # By the variable's name the callback asks the same account what became of a box that got lost.
            host["drafthouse_vast_key_env"] = key_env
            if lease := _lease(host, row, known, client):
                host["drafthouse_lease"] = lease
            hosts.append(host)
        return hosts

    def set_options(self, *args: Any, **options: Any) -> None:
        """Keep nothing where the folder for it cannot be made: an inventory without a cache is one all the same."""
        super().set_options(*args, **options)
        if not self.get_option("cache") or self.get_option("cache_plugin") not in (
            "jsonfile",
            "ansible.builtin.jsonfile",
        ):
            return
        folder = Path(os.path.expandvars(self.get_option("cache_connection"))).expanduser()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            self.display.v(f"vast.ai: answers are not cached: {error}")
            self.set_option("cache", False)

    def _kept(self, path: str) -> Kept:
        """What was kept, nothing where it is too old or was damaged."""
        try:
            kept: Any = dict(self._cache[self.get_cache_key(path)])
        except (KeyError, AnsibleError, TypeError, ValueError):
            return {}
        return cast("Kept", kept)

    def _client(self, account: Mapping[str, str]) -> VastClient | None:
        try:
            key = key_of_environment(os.environ, Path.home(), account["key_env"])
            return VastClient(
                key, self.get_option("url"), patience=_PATIENCE, timeout_s=self.get_option("timeout"),
                tell=self.display.v,
            )  # fmt: skip
        except DrafthouseError as error:
            self._say(account["name"], error)
            return None

    def _warn(self, problem: Problem) -> None:
        """Say in one line what bills, or may, and is no host."""
        self.display.warning(f"vast.ai: {problem.found}. Do: {problem.do}", formatted=True)

    def _say(self, account: str, error: DrafthouseError) -> None:
        """Say in one line why there are no hosts of an account."""
        first = error.problems[0]
        whose = f" (account {account})" if account else ""
        self.display.warning(f"vast.ai is not asked{whose}: {first.found}. Do: {first.do}", formatted=True)

    def _add(self, variables: HostVariables) -> None:
        name = f"vast-{variables['drafthouse_instance']}"
        self.inventory.add_host(name, group=self.inventory.add_group("vastai"))
        for key, value in variables.items():
            self.inventory.set_variable(name, key, value)
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)


def _lease(host: HostVariables, row: Instance, known: Mapping[str, Rental], client: VastClient) -> Lease | None:
    """Return until when a box may live by the provider's clock; None of one that is none of ours."""
    deadline = host.get("drafthouse_deadline")
    if deadline is None:
        return None
    one = known.get(id_of(host.get("vast_label")) or "")
    ends = ends_at(row, deadline, one.facts if one else {}, one.begun if one else None)
    return lease_of(ends or deadline, client.clock.anchor())


def _changed(file: Path) -> int:
    """Return when the ledger was last written to: what was rented or ended since is not in what was kept."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
