"""What the watchdog is told, and the files it consists of: the controller's part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...analysis.batch_k_schedule import offer
from ...analysis.break_even_results import points_of
from ...core.box_archive import archive_file
from ...core.errors import one_problem
from ...profiles.render import render_file
from ...profiles.watchdog_settings import AGAIN_S, DRAIN_S, EVERY_S, PATIENCE_S, REPORT, SCHEDULE
from ..gateway_door import door_folder
from .decision import Rules
from .journal import FOLDER, ORDER
from .switch import SCHEDULED, SPECULATIVE

if TYPE_CHECKING:
    from drafthouse.addons.watchdog.journal import Order
    from drafthouse.bench.result_types import ArmResult
    from drafthouse.bench.sweep.ladder_types import Ladder
    from drafthouse.engines.entry_types import Options
    from drafthouse.profiles.profile_types import WatchdogRules, WatchdogSettings
    from drafthouse.profiles.resolved_types import File, Folder, ResolvedProfile


def door_of(resolved: ResolvedProfile) -> str:
    """Return the folder of the gateway's door, '' where no gateway stands in front."""
    return door_folder(resolved["site"]["home"]) if resolved.get("gateway") else ""


def order_of(
    resolved: ResolvedProfile,
    results: Mapping[str, ArmResult],
    ladder: Ladder | None,
) -> Order:
    """Return the order for a box, from its profile, its site's settings and what was measured on it.

    Raises DrafthouseError where nothing measured says what a drafted token costs.
    """
    site = resolved["site"]
    settings: WatchdogSettings = site.get("watchdog") or {}
    tokens = int(resolved["method"]["num_speculative_tokens"])
    points = points_of(results["baseline"], results[SPECULATIVE], ladder, tokens)
    words = dict(settings)
    rules = {name: words[name] for name in Rules.__dataclass_fields__ if name in words}
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


def schedule_overrides(resolved: ResolvedProfile, ladder: Ladder | None, overrides: Options) -> Options:
    """Return the overrides with which the profile has the switch by batch size that its ladder offers.

    Raises DrafthouseError where there is none to offer.
    """
    offered = offer(ladder, resolved) if ladder and ladder.get("crossover") else None
    if not offered or not offered["overrides"]:
        switch = resolved["batch_schedule"]
        no_ladder = "the profile has no ladder (experiment.ladder), which finds where speculation stops paying off"
        why = offered["why"] if offered else switch["why"] or no_ladder
        raise one_problem(
            "no-draft-length-schedule",
            str(why),
            "an engine and a method that switch by batch size, and a ladder with a crossover",
            "set drafthouse_watchdog.mode to restart or report",
            "site.watchdog.mode",
        )
    speculation = dict(overrides.get("speculation") or {})
    options = {**(speculation.get("options") or {}), **offered["overrides"]["speculation"]["options"]}
    return {
        **overrides,
        "engine_version": resolved["engine"]["version"],
        "speculation": {**speculation, "options": options},
    }


def entries(
    templates: Path, resolved: ResolvedProfile, order: Order, scheduled: ResolvedProfile | None
) -> list[Folder | File]:
    """Return the watchdog's folders and files as `lay_out` takes them.

    The order is read at every look; another archive is another script, which whoever holds it running starts again.
    """
    home = resolved["site"]["home"]
    folder = f"{home}/{FOLDER}"
    data = {"home": home, "archive": archive_file(home)}
    folders: list[Folder] = [{"path": path, "mode": "0750"} for path in (folder, f"{folder}/logs")]
    files: list[File] = [
        {"path": f"{folder}/{ORDER}", "mode": "0600", "content": json.dumps(order, indent=1) + "\n"},
        render_file(templates, "watchdog/serve.sh.j2", f"{folder}/serve.sh", "0755", data),
    ]
    if order["mode"] == SCHEDULE and scheduled is not None:
        kept = {name: value for name, value in scheduled.items() if name not in ("suites", "extras")}
        files.append({"path": f"{folder}/{SCHEDULED}", "mode": "0600", "content": json.dumps(kept, indent=1) + "\n"})
    return [*folders, *files]
