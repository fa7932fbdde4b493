"""Read a host's variables with Ansible as in a run, for commands that run no playbook: plan, render, rent."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.documents import MIB, BadDocument, bytes_of
from ..core.errors import DrafthouseError, Problem, did_you_mean, one_problem
from ..core.plain_text import printable
from ..core.yaml_documents import is_too_deep, read_yaml
from .workspace import checked_site, inventory_path

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Site

#: The host's name for a rental that does not exist yet; it has the inventory's variables for all hosts.
NEW = "new"
# Variables besides `drafthouse_*`: names in older inventories.
_OLDER_NAMES = ("overrides", "engine_version")
_DUPLICATE_KEYS = "ANSIBLE_DUPLICATE_YAML_DICT_KEY"  # variable of the environment: what Ansible does about them
# The inventory plugin's file, which asks vast.ai for the account's rentals; these commands ask no provider.
_RENTALS_FILE = r"vastai\.ya?ml$"


def site_on(inventory: str, host: str = "") -> tuple[Site, dict[str, Any]]:
    """The site of a host of ``inventory`` (a name below inventory/, or a path), and its overrides of the profile.

    Without ``host``: of the first host, which standard error names if there are several. The overrides include an
    engine version that the inventory names. Raises DrafthouseError.
    """
    path = inventory_path(inventory)
    variables = variables_on(path, host)
    overrides = variables.get("drafthouse_overrides", variables.get("overrides")) or {}
    if version := variables.get("drafthouse_engine_version", variables.get("engine_version")):
        overrides = {**overrides, "engine_version": str(version)}
    return checked_site({name: variables[name] for name in variables if name not in _OLDER_NAMES}, str(path)), overrides


def variables_on(path: Path, host: str = "") -> dict[str, Any]:
    """The variables `drafthouse_*` of a host in the inventory at ``path``, with their templates filled in.

    ``host``: '' for the first one; NEW, or any name in an inventory without hosts, has the variables of all hosts. A
    variable that needs facts of the box or a password is left out, and standard error names it. A wheel without Ansible
    reads only group_vars/all.yml. Raises DrafthouseError for an unknown host and an unreadable inventory.
    """
    try:
        from ansible import constants  # noqa: PLC0415 (half a second, and a wheel may have none)

        # Before the next import, which compiles the patterns.
        constants.INVENTORY_IGNORE_PATTERNS.append(_RENTALS_FILE)
        from ansible.errors import AnsibleError  # noqa: PLC0415
        from ansible.inventory.manager import InventoryManager  # noqa: PLC0415
        from ansible.template import Templar  # noqa: PLC0415
        from ansible.vars.manager import VariableManager  # noqa: PLC0415
    except ImportError:
        file = path / "group_vars" / "all.yml"
        return read_yaml(file, "the site's variables: a YAML mapping", "correct it there") or {}

    constants.INVENTORY_UNPARSED_WARNING = False
    loader = _loader()
    try:
        inventory = InventoryManager(loader, sources=[str(path)])
        hosts = [] if host == NEW else [entry.name for entry in inventory.get_hosts()]
        if host and hosts and host not in hosts:
            do = did_you_mean(host, hosts)
            raise one_problem("no-such-host", f"no host '{host}'", "a host of the inventory", do, str(path))
        if len(hosts) > 1 and not host:
            print(f"of {len(hosts)} hosts this is {hosts[0]}; --host names another", file=sys.stderr)
        name = host or next(iter(hosts), NEW)
        if name not in hosts:
            inventory.add_host(name)
        variables = VariableManager(loader, inventory).get_vars(host=inventory.get_host(name))
    except (AnsibleError, RecursionError) as error:
        raise DrafthouseError(_unreadable(path, loader, printable(str(error)).partition("\n")[0])) from error
    return _filled_in(variables, Templar(loader, variables=variables))


def _loader() -> Any:
    """Ansible's file loader with limits, and with the vault's password if one is set."""
    from ansible import constants  # noqa: PLC0415
    from ansible.errors import AnsibleError  # noqa: PLC0415
    from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415
    from ansible.parsing.vault import get_file_vault_secret  # noqa: PLC0415

    class Loader(DataLoader):  # type: ignore[misc]  # Ansible has no types
        """Ansible's file loader for files of at most 1 MiB; an encrypted file without the password counts as empty.

        The limit is there because Ansible takes 10 s to parse 1 MiB of short lines.
        """

        def load_from_file(self, file_name: str, *given: Any, **named: Any) -> Any:
            """The content of a YAML file. Raises AnsibleError, also for one that is too large or nested too deeply."""
            try:
                content = bytes_of(Path(file_name), MIB)
            except BadDocument as error:
                raise AnsibleError(f"{file_name}: {error}") from error
            if not self._vault.secrets and self._vault.is_encrypted(content):
                _report_left_out(f"{file_name} is encrypted (ANSIBLE_VAULT_PASSWORD_FILE opens it)")
                return {}
            if is_too_deep(content.decode("utf-8", "replace")):
                raise AnsibleError(f"{file_name}: nested too deeply")
            with _without_duplicate_warnings():
                return super().load_from_file(file_name, *given, **named)

    loader = Loader()
    if password := constants.DEFAULT_VAULT_PASSWORD_FILE:
        secret = get_file_vault_secret(filename=password, loader=loader)
        secret.load()
        loader.set_vault_secrets([("default", secret)])
    return loader


@contextmanager
def _without_duplicate_warnings() -> Iterator[None]:
    """Turn off Ansible's warnings of duplicate keys, as it reads the file again for each. The run itself warns."""
    before = os.environ.get(_DUPLICATE_KEYS)
    os.environ[_DUPLICATE_KEYS] = before or "ignore"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_DUPLICATE_KEYS]


def _unreadable(path: Path, loader: Any, message: str) -> Problem:
    """The problem of the file below ``path`` that Ansible cannot read, or of ``path``; ``message`` is Ansible's."""
    from ansible.errors import AnsibleError  # noqa: PLC0415 (half a second, and a wheel may have none)

    where = path
    found = message
    needed = "an inventory"
    for file in sorted(path.rglob("*.y*ml")):
        try:
            content = python_value(loader.load_from_file(str(file)))
        except (AnsibleError, RecursionError):
            where = file
            break
        has_variables = {"group_vars", "host_vars"} & set(file.relative_to(path).parts)
        if has_variables and content is not None and not isinstance(content, dict):
            where = file
            needed = "variables: a YAML mapping"
            found = f"{printable(repr(content))[:80]} in place of variables"
            break
    return Problem("inventory-unreadable", found, needed, "correct it", str(where))


def _filled_in(variables: dict[str, Any], templar: Any) -> dict[str, Any]:
    """The ``variables`` of Drafthouse with filled-in templates; one that cannot be filled in is left out."""
    from ansible.errors import AnsibleError  # noqa: PLC0415 (half a second, and a wheel may have none)

    filled: dict[str, Any] = {}
    for key, value in variables.items():
        if str(key).startswith("drafthouse_") or key in _OLDER_NAMES:
            try:
                filled[key] = python_value(templar.template(value))
            except AnsibleError as error:
                _report_left_out(f"{key}: {printable(str(error)).partition(chr(10))[0]}")
    return filled


def python_value(value: Any) -> Any:
    """An Ansible value as plain Python types, without Ansible's marks of its origin."""
    if isinstance(value, dict):
        return {str(key): python_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [python_value(item) for item in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _report_left_out(variable: str) -> None:
    """Name on standard error what is left out, with the reason if it has one."""
    print(f"left out, since only a run knows it: {variable}", file=sys.stderr)
