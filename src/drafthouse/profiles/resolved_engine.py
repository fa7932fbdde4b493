"""The engine of a resolved profile: its version, its installation, and the paths at which it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .arms import Parts, own_program, takes_key
from .several_hosts import EXECUTOR, executor_of

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogMethod
    from drafthouse.profiles.engine_version import Chosen
    from drafthouse.profiles.resolved_types import ResolvedEngine


def resolved_engine(parts: Parts, chosen: Chosen, method: CatalogMethod) -> ResolvedEngine:
    """The engine as it runs: installed for the profile, or the site's own program."""
    engine = parts.engine
    program = own_program(parts.site)
    resolved: ResolvedEngine = {
        "id": engine["id"],
        "name": engine["name"],
        "version": parts.version,
        "version_reason": chosen.reason,
        "plugin": chosen.plugin,
        "runtime": parts.site["runtime"],
        "runtimes": chosen.runtimes,
        "home": _home(parts, method),
        "install": chosen.install,
        "image": parts.image,
        "template": engine["template"],
        "offline_template": engine.get("offline_template"),
        "health": engine["health"],
        "ready_timeout_s": engine["ready_timeout_s"],
        "metrics": engine["metrics"],
        "key_environment": engine["launch"].get("key_environment"),
        "has_key": takes_key(engine["launch"]),
    }
    if program:
        resolved["install"] = None
        resolved["program"] = program
    return resolved


def _home(parts: Parts, method: CatalogMethod) -> str:
    """The folder of the engine's environment, or of the site's own program.

    Hardware without a GPU, and a method or an executor that adds packages, each have a separate environment.
    """
    if program := own_program(parts.site):
        return program.rpartition("/")[0] or "/"
    kind = "-cpu" if parts.hardware["kind"] == "cpu" else ""
    extra = f"-{method['id']}" if "source_packages" in method else ""
    extra += f"-{executor}" if (executor := executor_of(parts.site)) != EXECUTOR else ""
    return f"{parts.site['home']}/engines/{parts.engine['id']}-{parts.version}{kind}{extra}"
