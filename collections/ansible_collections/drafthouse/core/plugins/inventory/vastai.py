"""The inventory plugin `drafthouse.core.vastai`: instances of accounts at vast.ai as hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: vastai
short_description: Instances rented from vast.ai as hosts
description:
  - Reads the instances of one or several accounts from vast.ai's REST API, and makes a host of each that is chosen.
  - Without a key or an answer it prints a line and has no hosts; other sources of the inventory still work.
  - Answers are cached for a minute, and read again as soon as something is rented or ended from here.
  - A warning names each instance that is billed but not in the ledger of C(make rent), or in it but not in the list.
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
      - The accounts to read. Each has a C(name), which becomes C(vast_account), and C(key_env), the name of the
        environment variable with its key. Keys are never in this file.
      - By default one, whose key is C(VAST_API_KEY), or is where vast.ai's own command line puts it
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
    description: Only instances with one of these statuses.
    type: list
    elements: str
    default: [running]
  rented_here:
    description:
      - Only instances in the ledger of C(make rent). Other machines of the account then never become hosts, so no
        playbook reaches them.
    type: bool
    default: false
  api_ports:
    description: Ports inside the box for the API; the first that is mapped becomes C(drafthouse_api_port).
    type: list
    elements: int
    default: [8443, 443, 8000]
  timeout:
    description: Seconds without an answer after which an attempt is given up; there are two.
    type: int
    default: 15
  cache:
    description: Whether answers are cached.
    type: bool
    default: true
    env:
      - name: ANSIBLE_INVENTORY_CACHE
    ini:
      - section: inventory
        key: cache
  cache_plugin:
    description: The cache plugin.
    type: str
    default: jsonfile
    env:
      - name: ANSIBLE_INVENTORY_CACHE_PLUGIN
    ini:
      - section: inventory
        key: cache_plugin
  cache_timeout:
    description: Seconds for which answers are cached.
    type: int
    default: 60
    env:
      - name: ANSIBLE_INVENTORY_CACHE_TIMEOUT
    ini:
      - section: inventory
        key: cache_timeout
  cache_connection:
    description: Folder of the cache, which has no secrets.
    type: str
    default: ~/.cache/drafthouse/inventory
    env:
      - name: ANSIBLE_INVENTORY_CACHE_CONNECTION
    ini:
      - section: inventory
        key: cache_connection
  cache_prefix:
    description: Prefix of the cache's file names.
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

# Few and short: a person waits for the inventory.
_PATIENCE = Patience(tries=2, first_s=1.0, longest_s=5.0, longest_wait_s=10.0)


class Stamp(TypedDict):
    """What cached hosts depend on, beside their age."""

    ledger: int  # modification time in ns, 0 without a ledger
    accounts: list[list[str]]
    api_ports: list[int]
    boot: str


class Kept(TypedDict, total=False):
    """The cache between two runs; ``billing``: `Problem`s about billed instances, as plain data."""

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
        """Add the hosts to the inventory, with a warning for each of ours that is billed and cannot be a host."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        accounts = self._accounts()
        folder, known = self._ledger()
        hosts = self._hosts(accounts, folder, known, path, cache)
        labels = self.get_option("label")
        only = known if self.get_option("rented_here") else None
        picked = chosen(hosts, labels, self.get_option("statuses"), only)
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
        """Warn about a rental that is no host: a user who does not see it may rent another, and pay for two."""
        number = host["drafthouse_instance"]
        self.display.warning(
            f"vast.ai: instance {number} {why}, so it is not a host; it bills: make destroy ARGS={number}",
            formatted=True,
        )

    def _accounts(self) -> list[dict[str, str]]:
        """The accounts to read, {name, key_env} each. Raises AnsibleParserError."""
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
        """The folder with the ledger of rentals, None if it cannot exist, and the rentals in it by id."""
        try:
            folder = state_folder()
            ledger = read(folder / FILE)
            for problem in ledger.damage:
                self._warn(problem)
            return folder, ledger.rentals
        except DrafthouseError as error:
            self._say("", error)
            return None, {}

    def _hosts(
        self, accounts: list[dict[str, str]], folder: Path | None, known: Mapping[str, Rental], path: str, cache: bool
    ) -> list[HostVariables]:
        """Variables of all instances, from the cache if it is young and nothing was rented or ended since."""
        clients: dict[str, VastClient] = {}
        for account in accounts:
            client = self._client(account)
            if client:
                clients[account["name"]] = client
        stamp: Stamp = {
            "ledger": _changed(folder / FILE) if folder else 0,
            "accounts": [[name, client.account] for name, client in clients.items()],
            "api_ports": self.get_option("api_ports"),
            # Cached leases count by the uptime of this machine.
            "boot": clocks().boot,
        }
        has_cache = self.get_option("cache")
        kept = self._kept(path) if has_cache and cache else {}
        if kept.get("stamp") == stamp and clients:
            for data in kept["billing"]:
                self._warn(Problem.of(data))
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
        if has_cache and complete:
            keep: Kept = {"stamp": stamp, "hosts": hosts, "billing": [problem.as_dict() for problem in billing]}
            self._cache[self.get_cache_key(path)] = keep
        return hosts

    def _of_account(
        self, name: str, client: VastClient, rows: list[Instance], folder: Path | None,
        known: Mapping[str, Rental], key_env: str,
    ) -> list[HostVariables]:  # fmt: skip
        """Variables of an account's instances, in the order of ``rows``."""
        known_hosts = str(folder / "known_hosts") if folder else ""
        ports = self.get_option("api_ports")
        hosts = []
        for row in rows:
            host = host_of(row, account=name, url=client.url, known_hosts=known_hosts, api_ports=ports)
            # With it the callback `house` reads the state of a lost box from the same account.
            host["drafthouse_vast_key_env"] = key_env
            if lease := _lease(host, row, known, client):
                host["drafthouse_lease"] = lease
            hosts.append(host)
        return hosts

    def set_options(self, *args: Any, **options: Any) -> None:
        """Set the options, without a cache if its folder cannot be made: Ansible would fail."""
        super().set_options(*args, **options)
        in_files = self.get_option("cache_plugin") in ("jsonfile", "ansible.builtin.jsonfile")
        if not self.get_option("cache") or not in_files:
            return
        folder = Path(os.path.expandvars(self.get_option("cache_connection"))).expanduser()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            self.display.v(f"vast.ai: answers are not cached: {error}")
            self.set_option("cache", False)

    def _kept(self, path: str) -> Kept:
        """The cached data; {} if it is missing, too old or damaged."""
        try:
            kept: Any = dict(self._cache[self.get_cache_key(path)])
        except (KeyError, AnsibleError, TypeError, ValueError):
            return {}
        return cast("Kept", kept)

    def _client(self, account: Mapping[str, str]) -> VastClient | None:
        """Client for an account; None, and a warning, if it has no key."""
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
        """Print a problem about billing in one line."""
        self.display.warning(f"vast.ai: {problem.found}. Do: {problem.do}", formatted=True)

    def _say(self, account: str, error: DrafthouseError) -> None:
        """Print in one line why an account has no hosts."""
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
    """Until when a box may live by the provider's clock; None if it was not rented by us."""
    deadline = host.get("drafthouse_deadline")
    if deadline is None:
        return None
    rental = known.get(id_of(host.get("vast_label")) or "")
    ends = ends_at(row, deadline, rental.facts if rental else {}, rental.begun if rental else None)
    return lease_of(ends or deadline, client.clock.anchor())


def _changed(file: Path) -> int:
    """Modification time of the ledger in ns; 0 without one."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
