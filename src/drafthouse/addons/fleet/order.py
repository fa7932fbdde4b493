"""What a replica's prober is told, and the files it consists of: the controller's part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.box_archive import archive_file
from ...core.errors import one_problem
from ...profiles.render import render_file
from .replica import FOLDER, ORDER

if TYPE_CHECKING:
    from drafthouse.addons.fleet.replica import Order
    from drafthouse.profiles.resolved_types import File, Folder, ResolvedProfile


def order_for(resolved: ResolvedProfile) -> Order:
    """Return the order for a box. Raises DrafthouseError where its site has no fleet."""
    site, fleet = resolved["site"], resolved["fleet"]
    if fleet is None:
        needed, do = "a box that is a replica of a fleet", "set drafthouse_fleet in its inventory"
        raise one_problem("not-a-replica", "no drafthouse_fleet", needed, do, "site.fleet")
    return {
        "base_url": f"http://{site['host']}:{site['port']}",
        "health": resolved["engine"]["health"],
        "metrics_path": resolved["engine"]["metrics"].get("path", "/metrics"),
        "model": resolved["target"]["served_name"],
        "key_file": resolved["key_file"],
        "probe_s": fleet["probe_s"],
    }


def entries(templates: Path, resolved: ResolvedProfile) -> list[Folder | File]:
    """Return the prober's folders and files as `lay_out` takes them; the order is read before each probe."""
    home = resolved["site"]["home"]
    folder = f"{home}/{FOLDER}"
    folders: list[Folder] = [{"path": path, "mode": "0750"} for path in (folder, f"{folder}/logs")]
    data = {"home": home, "archive": archive_file(home)}
    order = json.dumps(order_for(resolved), indent=1) + "\n"
    files: list[File] = [
        {"path": f"{folder}/{ORDER}", "mode": "0600", "content": order},
        render_file(templates, "fleet/replica.sh.j2", f"{folder}/serve.sh", "0755", data),
    ]
    return [*folders, *files]
