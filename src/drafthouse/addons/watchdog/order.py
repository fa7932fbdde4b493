"""Build the watchdog's order (settings and measured costs) and its files for a box; runs on the controller."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...analysis.break_even_results import points_of
from ...core.box_archive import archive_file
from ...profiles.render import program_entries
from ...profiles.watchdog_settings import AGAIN_S, DRAIN_S, EVERY_S, PATIENCE_S, REPORT
from ..gateway_door import door_folder
from .decision import Rules
from .journal import FOLDER
from .switch import SPECULATIVE

if TYPE_CHECKING:
    from drafthouse.addons.watchdog.journal import Order
    from drafthouse.bench.result_types import ArmResult
    from drafthouse.bench.sweep.ladder_types import Ladder
    from drafthouse.profiles.profile_types import WatchdogRules, WatchdogSettings
    from drafthouse.profiles.resolved_types import File, Folder, ResolvedProfile


def door_of(resolved: ResolvedProfile) -> str:
    """The folder of the gateway's door (`switch.Door`), '' without a gateway."""
    return door_folder(resolved["site"]["home"]) if resolved.get("gateway") else ""


def order_of(
    resolved: ResolvedProfile,
    results: Mapping[str, ArmResult],
    ladder: Ladder | None,
) -> Order:
    """The order for a box, from its profile, its inventory's settings and the results of both arms on it.

    ``ladder``: the load sweep, with the costs at further loads; None if none was run. Raises DrafthouseError if the
    results do not tell the cost of a draft token.
    """
    site = resolved["site"]
    settings: WatchdogSettings = site.get("watchdog") or {}
    tokens = int(resolved["method"]["num_speculative_tokens"])
    points = points_of(results["baseline"], results[SPECULATIVE], ladder, tokens)
    given = dict(settings)  # a plain mapping: a TypedDict takes no variable as a key
    rules = {name: given[name] for name in Rules.__dataclass_fields__ if name in given}
    return {
        "mode": settings.get("mode", REPORT),
        "rules": cast("WatchdogRules", rules),
        "points": [point.as_dict() for point in points],
        "tokens": tokens,
        "every_s": float(settings.get("every_s", EVERY_S)),
        "drain_s": float(settings.get("drain_s", DRAIN_S)),
        "again_s": AGAIN_S,
        "patience_s": PATIENCE_S,
        "profile": resolved["profile"],
        "runtime": site["runtime"],
        "base_url": f"http://{site['host']}:{site['port']}",
        "model": resolved["target"]["served_name"],
        "key_file": resolved["key_file"],
        "metrics_path": resolved["engine"]["metrics"].get("path", "/metrics"),
        "door": door_of(resolved),
    }


def entries(templates: Path, resolved: ResolvedProfile, order: Order) -> list[Folder | File]:
    """The watchdog's folders and files as `lay_out` takes them; its start script names the archive of its program."""
    home = resolved["site"]["home"]
    data = {"home": home, "archive": archive_file(home)}
    return program_entries(templates, f"{home}/{FOLDER}", "watchdog/serve.sh.j2", data, order)
