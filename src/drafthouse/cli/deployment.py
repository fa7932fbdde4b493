"""The folder in which an installed wheel runs its playbooks: symbolic links to its data, as a wheel has no links."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from pathlib import Path

from ..core.errors import NotHere, Problem
from ..core.files import replace_file
from ..core.places import CODE, INSTALLED, PLAYS, ROOT, STATE


def need_ansible(verb: str) -> None:
    """Raise NotHere where a wheel was installed without its extra `deploy`, which brings Ansible."""
    if INSTALLED and find_spec("ansible") is None:
        needed = "Ansible: the extra 'deploy' of the package"
        do = "pip install 'drafthouse[deploy]'"
        raise NotHere(Problem("ansible-missing", f"drafthouse {verb} without Ansible", needed, do))


def ansible_config() -> Path:
    """The path of ansible.cfg: the clone's, or for a wheel one in `PLAYS`, where links to its data are made too."""
    if not INSTALLED:
        return ROOT / "ansible.cfg"
    core = PLAYS / "collections" / "ansible_collections" / "drafthouse" / "core"
    shipped = ROOT / "collection"
    links = {PLAYS / name: ROOT / name for name in ("site.yml", "roles", "templates", "inventory")}
    for path in (ROOT / "playbooks").iterdir():
        links[PLAYS / "playbooks" / path.name] = path
    for path in (shipped / "plugins").iterdir():
        links[core / "plugins" / path.name] = path
    links |= {core / "meta": shipped / "meta", core / "plugins" / "module_utils": CODE}
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():  # there is none, or it leads to a wheel that was removed
            link.unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):  # another command has just made it
                link.symlink_to(target)
    # Ansible resolves this path against the working directory, the others against the folder of ansible.cfg.
    text = (ROOT / "ansible.cfg").read_text("utf-8").replace(".drafthouse/cp", str(STATE / "cp"))
    replace_file(PLAYS / "ansible.cfg", text, 0o644)
    return PLAYS / "ansible.cfg"
