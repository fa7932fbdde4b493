"""What an inventory says of a host, read by Ansible as in a run, for commands that play nothing: plan, render, rent."""

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

#: A rental that is not there yet has what its inventory says of all hosts.
NEW = "new"
# Beside `drafthouse_*`: the names that inventories had before.
_OLD = ("overrides", "engine_version")
_KEYS_TWICE = "ANSIBLE_DUPLICATE_YAML_DICT_KEY"
# The rentals of an account: plan asks nobody, and rent is about a box that is not among them.
_NOT_ASKED = r"vastai\.ya?ml$"


def site_on(inventory: str, host: str = "") -> tuple[Site, dict[str, Any]]:
    """The site of a host of ``inventory`` (a name below inventory/, or a path), and its overrides of the profile.

    Without ``host`` the only one's; of several, that of the first, which is said. Raises DrafthouseError.
    """
    path = inventory_path(inventory)
    variables = variables_on(path, host)
    overrides = variables.get("drafthouse_overrides", variables.get("overrides")) or {}
    if version := variables.get("drafthouse_engine_version", variables.get("engine_version")):
        overrides = {**overrides, "engine_version": str(version)}
    return checked_site({name: variables[name] for name in variables if name not in _OLD}, str(path)), overrides


def variables_on(path: Path, host: str = "") -> dict[str, Any]:
    """The variables of ours that the inventory at ``path`` has for a host, templates filled in.

    What only a box or a password can tell is left out and said on standard error. A wheel without Ansible reads
    group_vars/all.yml alone.
    """
    try:
        from ansible import constants  # noqa: PLC0415 (half a second, and a wheel may have none)

        # Before the next import, which makes one pattern of them.
        constants.INVENTORY_IGNORE_PATTERNS.append(_NOT_ASKED)
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
        hosts = [] if host == NEW else [one.name for one in inventory.get_hosts()]
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
    """Ansible's reader of files, bounded, with the password of the vault where one is set."""
    from ansible import constants  # noqa: PLC0415
    from ansible.errors import AnsibleError  # noqa: PLC0415
    from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415
    from ansible.parsing.vault import get_file_vault_secret  # noqa: PLC0415

    class Loader(DataLoader):  # type: ignore[misc]  # Ansible has no types
        """Ansible's reader of files of at most 1 MiB, but for one whose vault's password was not given.

        Ansible's own takes 10 s for a MiB of short lines.
        """

        def load_from_file(self, file_name: str, *given: Any, **named: Any) -> Any:
            try:
                content = bytes_of(Path(file_name), MIB)
            except BadDocument as error:
                raise AnsibleError(f"{file_name}: {error}") from error
            if not self._vault.secrets and self._vault.is_encrypted(content):
                _say(f"{file_name} is encrypted (ANSIBLE_VAULT_PASSWORD_FILE opens it)")
                return {}
            if is_too_deep(content.decode("utf-8", "replace")):
                raise AnsibleError(f"{file_name}: nested too deeply")
            with _without_warnings_of_keys():
                return super().load_from_file(file_name, *given, **named)

    loader = Loader()
    if password := constants.DEFAULT_VAULT_PASSWORD_FILE:
        secret = get_file_vault_secret(filename=password, loader=loader)
        secret.load()
        loader.set_vault_secrets([("default", secret)])
    return loader


@contextmanager
def _without_warnings_of_keys() -> Iterator[None]:
    """Without Ansible's warnings of keys that stand twice: for each it reads the file anew. The run itself warns."""
    before = os.environ.get(_KEYS_TWICE)
    os.environ[_KEYS_TWICE] = before or "ignore"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_KEYS_TWICE]


def _unreadable(path: Path, loader: Any, said: str) -> Problem:
    """The file below ``path`` that Ansible cannot read, or ``path`` itself; ``said``: Ansible's own words."""
    from ansible.errors import AnsibleError  # noqa: PLC0415 (half a second, and a wheel may have none)

    where, found, needed = path, said, "an inventory"
    for file in sorted(path.rglob("*.y*ml")):
        try:
            content = plain(loader.load_from_file(str(file)))
        except (AnsibleError, RecursionError):
            where = file
            break
        of_variables = {"group_vars", "host_vars"} & set(file.relative_to(path).parts)
        if of_variables and content is not None and not isinstance(content, dict):
            where, needed = file, "variables: a YAML mapping"
            found = f"{printable(repr(content))[:80]} in place of variables"
            break
    return Problem("inventory-unreadable", found, needed, "correct it", str(where))


def _filled_in(variables: dict[str, Any], templar: Any) -> dict[str, Any]:
    """Ours of ``variables`` with their templates filled in; what cannot be, is said and left out."""
    from ansible.errors import AnsibleError  # noqa: PLC0415 (half a second, and a wheel may have none)

    found: dict[str, Any] = {}
    for key, value in variables.items():
        if str(key).startswith("drafthouse_") or key in _OLD:
            try:
                found[key] = plain(templar.template(value))
            except AnsibleError as error:
                _say(f"{key}: {printable(str(error)).partition(chr(10))[0]}")
    return found


def plain(value: Any) -> Any:
    """A value of Ansible's as Python's own types: no marks of where it comes from."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _say(what: str) -> None:
    print(f"left out, since only a run knows it: {what}", file=sys.stderr)
