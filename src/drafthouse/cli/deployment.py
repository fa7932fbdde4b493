"""The folder in which an installed wheel plays: links to what it carries, and what it cannot hold itself."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from pathlib import Path

from ..core.errors import NotHere, Problem
from ..core.files import replace_file
from ..core.places import CODE, INSTALLED, PLAYS, ROOT, STATE


def need_ansible(verb: str) -> None:
    """Raise NotHere where a wheel was installed without what its verbs that play need."""
    if INSTALLED and find_spec("ansible") is None:
        needed, do = "Ansible: the extra 'deploy' of the package", "pip install 'drafthouse[deploy]'"
        raise NotHere(Problem("ansible-missing", f"drafthouse {verb} without Ansible", needed, do))


def ansible_config() -> Path:
    """The ansible.cfg for our playbooks: the clone's own, or one beside links to all that a wheel carries."""
    if not INSTALLED:
        return ROOT / "ansible.cfg"
    core, shipped = PLAYS / "collections" / "ansible_collections" / "drafthouse" / "core", ROOT / "collection"
    links = {PLAYS / name: ROOT / name for name in ("site.yml", "roles", "templates", "inventory")}
    for path in (ROOT / "playbooks").iterdir():
        links[PLAYS / "playbooks" / path.name] = path
    for path in (shipped / "plugins").iterdir():
        links[core / "plugins" / path.name] = path
    links |= {core / "meta": shipped / "meta", core / "plugins" / "module_utils": CODE}
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):  # another command was quicker
                link.symlink_to(target)
    # Ansible takes this one path from where it is started; the others from the file's folder.
    text = (ROOT / "ansible.cfg").read_text("utf-8").replace(".drafthouse/cp", str(STATE / "cp"))
    replace_file(PLAYS / "ansible.cfg", text, 0o644)
    return PLAYS / "ansible.cfg"
