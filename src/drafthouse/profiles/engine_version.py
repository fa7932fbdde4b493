"""Choose the engine's version, its plugin, and its installation: an environment (process) or an image (docker)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.errors import did_you_mean
from ..core.schema import Findings
from ..core.versions import NIGHTLY, is_version, ranges, releases
from ..engines.registry import engine_of
from .derived_image import Derived, derived_from

if TYPE_CHECKING:
    from drafthouse.engines.base import Executor
    from drafthouse.engines.entry_types import CatalogEngine, EngineEntry, Method, Plugin
    from drafthouse.engines.install_types import EngineInstall, Install, MethodPackages
    from drafthouse.profiles.profile_types import Profile, Runtime, Site
    from drafthouse.profiles.resolved_types import Hardware


@dataclass(frozen=True)
class Chosen:
    """An engine's version and its installation."""

    version: str  # '' if the profile asks for one that does not exist
    reason: str  # for this version, as text for people
    releases: list[str]  # all versions of the engine, oldest first
    plugin: str | None  # the plugin's version; None without a plugin
    install: EngineInstall | None  # None: it cannot run as a process
    image: str | None  # None: it cannot run in Docker
    runtimes: list[Runtime]  # in which the profile may run
    runtime: Runtime  # in which it runs
    derived: Derived | None = None  # image with packages that the method adds; None: the image runs as it is
    note: str = ""  # a warning about the runtime; '' for none


def choose_engine(
    findings: Findings,
    *,
    profile: Profile,
    engine: CatalogEngine,
    hardware: Hardware,
    site: Site,
    hashes: Mapping[str, list[str]] | None = None,
    images: Mapping[str, str] | None = None,
) -> Chosen:
    """The version of ``engine`` and its installation for ``profile`` on ``hardware``; problems go to ``findings``.

    ``hashes``: by ``name==version``, those of packages that the catalogue names without a lock file. ``images``: by
    engine, the images that serve the target where no release does. The image is, in this order: the site's own, the
    target's, the catalogue's.
    """
    all_releases = releases(engine)
    version = _version(findings, profile, engine, all_releases)
    plugin = _plugin(findings, profile, engine, version)
    method = engine["methods"].get(profile["speculation"]["method"])
    executor = engine_of(engine["id"]).executors.get(site.get("executor") or "")
    install = _engine_install(
        engine, version=version, plugin=plugin, kind=hardware["kind"], method=method, executor=executor
    )
    target_image = (images or {}).get(engine["id"], "")
    if target_image:
        install = None  # no package has what that image has
    # The site may name a mirror or an image of its own, which must hold exactly this version.
    image = site.get("engine_image") or target_image or _image(engine, version, plugin, hardware["kind"])
    runtimes: list[Runtime] = []
    if install:
        runtimes.append("process")
    if image:
        runtimes.append("docker")
    runtime = site["runtime"]
    note = ""
    if version:
        runtimes = _runtimes(findings, profile, engine, version, hardware=hardware, available=runtimes)
        runtime, note = _chosen_runtime(findings, site, runtimes, f"{engine['name']} {version} on {hardware['kind']}")
    derived = None
    if image and method and runtime == "docker":
        name = profile["speculation"]["method"]
        derived = derived_from(image, engine=engine["id"], version=version, method=name, adds=method, hashes=hashes)
    return Chosen(
        version=version,
        reason=_version_reason(engine, version),
        releases=all_releases,
        plugin=plugin,
        install=install,
        image=image,
        runtimes=runtimes,
        runtime=runtime,
        derived=derived,
        note=note,
    )


def _version_reason(engine: CatalogEngine, version: str) -> str:
    """Why this version runs: the catalogue's reason for a nightly build or for a version, else the profile's wish."""
    if version == NIGHTLY and "nightly" in engine:
        return engine["nightly"]["reason"]
    if version in engine["versions"]:
        return engine["versions"][version]["reason"]
    return "asked for by the profile"


def _chosen_runtime(findings: Findings, site: Site, runtimes: Sequence[Runtime], engine: str) -> tuple[Runtime, str]:
    """The runtime to use, and a note on it or ''.

    It is the site's, if the profile has it, or if the profile has none (another problem says why). It is the only one
    of the profile, with a note, unless the command line names the runtime. Otherwise it is the site's, and a problem is
    added. ``engine``: name, version and kind of hardware, for the problem.
    """
    runtime = site["runtime"]
    if runtime in runtimes or not runtimes:
        return runtime, ""
    if len(runtimes) == 1 and not site.get("runtime_asked"):
        return runtimes[0], f"runtime: {runtimes[0]} (the only one this profile has; the inventory says {runtime})"
    do = f"set drafthouse_runtime: {runtimes[0]} in the inventory (scripts: --runtime {runtimes[0]})"
    if len(runtimes) == 1:
        do = f"leave it out (RUNTIME, -e drafthouse_runtime): {runtimes[0]} is chosen automatically"
    needed = f"a runtime of this profile: {', '.join(runtimes)}"
    findings.add("runtime-unavailable", "site.runtime", f"{runtime}, for {engine}", needed, do)
    return runtime, ""


def _version(findings: Findings, profile: Profile, engine: EngineEntry, all_releases: list[str]) -> str:
    """The version that the profile asks for, else the engine's default; NIGHTLY for a nightly build.

    '' if there is no such version, or no nightly builds; a problem says so.
    """
    nightly = profile.get("channel") == NIGHTLY
    if nightly and "nightly" not in engine:
        findings.add(
            "no-nightly-builds",
            "channel",
            f"nightly, which {engine['name']} does not have here",
            "an engine whose entry in the catalogue has nightly builds",
            "remove the key",
        )
        return ""
    if nightly and "engine_version" in profile:
        findings.add(
            "conflicting-keys",
            "engine_version",
            f"{profile['engine_version']} and channel: nightly",
            "one of the two: a nightly build has no version number",
            "remove one of them",
        )
    if nightly:
        return NIGHTLY
    version = str(profile.get("engine_version", engine["default_version"]))
    if version in all_releases:
        return version
    plugin = engine.get("plugin")
    what = "which does not exist"
    needed = ranges(all_releases, all_releases)
    if plugin:
        what = "which its plugin does not patch"
        needed = _working_pairs(plugin)
    do = f"use one of: {', '.join(all_releases)}"
    if is_version(version):
        do = did_you_mean(version, all_releases)
    findings.add("unknown-engine-version", "engine_version", f"{engine['name']} {version}, {what}", needed, do)
    return ""


def pairs(plugin: Plugin) -> str:
    """A plugin's versions, each with the engine version that it fits, in one line, newest first."""
    return ", ".join(f"{plugin_version} with {version}" for version, plugin_version in plugin["versions"].items())


def _working_pairs(plugin: Plugin) -> str:
    """Field `needed` of a problem with a plugin's version."""
    return f"a pair that works: {pairs(plugin)} ({plugin['reason']})"


def _plugin(findings: Findings, profile: Profile, engine: EngineEntry, version: str) -> str | None:
    """The version of the engine's plugin that fits this engine version; a problem if the profile names another.

    None for an engine without a plugin, or a version that the plugin does not fit.
    """
    plugin = engine.get("plugin")
    wanted = profile.get("plugin_version")
    if plugin is None:
        if wanted is not None:
            needed = f"nothing: {engine['name']} has no plugin"
            findings.add("plugin-version", "plugin_version", f"{wanted}", needed, "remove the key")
        return None
    pair: str | None = plugin["versions"].get(version)
    if version and wanted is not None and str(wanted) != pair:
        findings.add(
            "plugin-version",
            "plugin_version",
            f"{plugin['package']} {wanted} with {engine['name']} {version}",
            _working_pairs(plugin),
            f"set plugin_version: {pair}, or remove the key",
        )
    return pair


def _installs_by_kind(engine: EngineEntry, version: str) -> dict[str, Install]:
    """By kind of hardware, how a version is installed for the process runtime."""
    if version == NIGHTLY and "nightly" in engine:
        return {**engine["nightly"]["install"]}
    installs = {**engine["install"]}
    if version in engine["versions"]:
        installs |= engine["versions"][version].get("install") or {}
    return installs


def _engine_install(
    engine: EngineEntry,
    *,
    version: str,
    plugin: str | None,
    kind: str,
    method: Method | None,
    executor: Executor | None,
) -> EngineInstall | None:
    """The installation for the process runtime, with the packages that ``method`` and ``executor`` add.

    ``kind``: of hardware. None if the version ('' for none) has no installation for it.
    """
    install = _installs_by_kind(engine, version).get(kind)
    if install is None or not version:
        return None
    packages = [_fill_in(text, version, plugin) for text in install["python_packages"]]
    method_packages: MethodPackages = {}
    if method and "source_packages" in method:
        method_packages["source_packages"] = list(method["source_packages"])
    if method and "build_packages" in method:
        method_packages["build_packages"] = list(method["build_packages"])
    chosen: EngineInstall = {**install, "python_packages": packages, **method_packages}
    if executor:
        chosen["no_deps_packages"] = [*install.get("no_deps_packages", []), *executor.packages]
        chosen["tools"] = [*install.get("tools", []), *executor.tools]
    return chosen


def _image(engine: EngineEntry, version: str, plugin: str | None, kind: str) -> str | None:
    """The container image ``name:tag``, with its digest if one is pinned; None without an image, a version or a GPU.

    It is that of the version's own entry, else that of nightly builds or the engine. ``kind``: of hardware.
    """
    source = engine.get("nightly") if version == NIGHTLY else engine
    pinned = engine["versions"].get(version) or source
    image = (pinned.get("image") if pinned else None) or (source.get("image") if source else None)
    if image is None or kind != "gpu" or not version:
        return None
    name = f"{image['name']}:{_fill_in(image['tag'], version, plugin)}"
    if digest := image.get("digest"):
        return f"{name}@{digest}"
    return name


def gpu_image_of(engine: EngineEntry, version: str) -> str | None:
    """The catalogue's container image of an engine's version for GPUs; None if it has none."""
    plugin_version: str | None = None
    if plugin := engine.get("plugin"):
        plugin_version = plugin["versions"].get(version)
    return _image(engine, version, plugin_version, "gpu")


def _fill_in(text: str, version: str, plugin: str | None) -> str:
    """A text of the catalogue with the versions filled in; ``{build}`` is the last part of the engine's version."""
    build = version.rpartition(".")[2]
    return text.replace("{version}", version).replace("{build}", build).replace("{plugin}", plugin or "")


def _runtimes(
    findings: Findings,
    profile: Profile,
    engine: EngineEntry,
    version: str,
    *,
    hardware: Hardware,
    available: list[Runtime],
) -> list[Runtime]:
    """The profile's runtimes, by default all ``available`` ones; a problem is added for each that is not available.

    [] and a problem if none is available: the version cannot be installed for this hardware.
    """
    kind = hardware["kind"]
    if not available:
        fitting = [release for release in releases(engine) if kind in _installs_by_kind(engine, release)]
        do = "choose another engine or other hardware"
        if fitting:
            do = f"set engine_version: {fitting[-1]}"
        findings.add(
            "hardware-unsupported",
            "hardware",
            f"{hardware['name']} ({kind})",
            f"hardware that {engine['name']} {version} is installed for: "
            + (", ".join(_installs_by_kind(engine, version)) or "gpu"),
            do,
        )
        return []
    wanted = profile.get("runtimes", available)
    for index, name in enumerate(wanted):
        if name not in available:
            found = f"{name}, for {engine['name']} {version} on {kind}"
            needed = f"what the catalogue has for it: {', '.join(available)}"
            findings.add("runtime-unavailable", f"runtimes[{index}]", found, needed, "remove it")
    return list(wanted)
