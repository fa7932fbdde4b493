"""The monitoring of a box: what the inventory asks for, and the files that follow. No box is asked; templates are read.

Prometheus asks the engine for its counters, the blackbox exporter whether engine and gateway answer, and on a
workstation Debian's node exporter and, in the docker runtime, NVIDIA's DCGM exporter. They listen on five ports in a
row, on loopback; Prometheus and Grafana elsewhere only where the inventory says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ..core.addresses import in_brackets
from ..core.errors import DrafthouseError, Problem
from ..profiles.container import MONITORING_LABEL
from ..profiles.monitoring_settings import LOOPBACK, NOT_IN_A_PATH, near
from ..profiles.render import render_file, yaml_block
from .grafana import DATASOURCE, UID, dashboard
from .monitoring_ready import ENGINE, GATEWAY, GPU, HEALTH, NODE
from .prometheus_rules import Limits, Pace, Watched, duration, recorded, rules_file

if TYPE_CHECKING:
    from drafthouse.core.documents import Json
    from drafthouse.profiles.container import Container
    from drafthouse.profiles.resolved_types import File, Folder, Monitoring, Ports

NAME = "monitoring"
UNIT = "drafthouse-monitoring-"  # and the program's name
# What they ask and where they listen is the box's own loopback.
_NETWORK, _SECURITY = "host", ["no-new-privileges"]
_PROVISIONED = ("datasources", "dashboards")  # folders that Grafana reads at its start
_WHAT = {
    "prometheus": "Prometheus: collects the counters and raises alerts",
    "node": "node exporter: the machine's memory and processors",
    "blackbox": "blackbox exporter: checks that the engine and the gateway answer",
}
# What DCGM's exporter shall show; its own list has no reasons for lowered clocks. The exporter exits if a line has not
# exactly three comma-separated fields (`internal/pkg/counters/counter_config.go`), so no text may hold a comma.
_DCGM_FIELDS = (
    ("DCGM_FI_DEV_FB_USED", "Memory used (MiB)."),
    ("DCGM_FI_DEV_FB_FREE", "Memory free (MiB)."),
    ("DCGM_FI_DEV_GPU_UTIL", "Share of time in which a kernel ran (percent)."),
    ("DCGM_FI_DEV_GPU_TEMP", "Temperature (degrees Celsius)."),
    ("DCGM_FI_DEV_POWER_USAGE", "Power drawn (watts)."),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Why the clocks are lowered (a mask)."),
)


def script_of(home: str) -> str:
    """The script that starts Prometheus: where it lies, there is or was monitoring."""
    return f"{home}/{NAME}/programs/prometheus/serve.sh"


# --- the files --------------------------------------------------------------------------------------


class MonitoringFiles(TypedDict):
    """What is put on the box: folders and files, systemd's units, the programs' ports, and containers."""

    entries: list[Folder | File]
    units: list[File]
    programs: Ports
    containers: list[Container]


@dataclass(frozen=True)
class Settings:
    """What the monitoring of a box is made of.

    ``wished`` is what `monitoring_of` returned; ``keeper`` holds the programs running: systemd or supervisor.
    ``binaries``: program -> path on the box. ``digest`` stands for these and for the key, which systemd hands over at
    the start: when it changes, the programs are started again.
    """

    home: str
    keeper: str
    box: str
    key_file: str
    wished: Monitoring
    binaries: Mapping[str, str]
    digest: str = ""
    pace: Pace = field(default_factory=Pace)
    limits: Limits = field(default_factory=Limits)
    images: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The folder on the box of all that is the monitoring's."""
        return f"{self.home}/{NAME}"

    @property
    def listens_at(self) -> str:
        """Where Prometheus is asked on the box itself."""
        return near(self.wished["listen"])


def watched(wished: Monitoring) -> Watched:
    """What the rules of a box are about."""
    return Watched(wished["dialect"], wished["node"], wished["gpu"], bool(wished["gateway"]), wished["log"])


def jobs(wished: Monitoring) -> list[str]:
    """The jobs whose targets Prometheus must reach."""
    found = {ENGINE: wished["dialect"], HEALTH: True, NODE: wished["node"], GPU: wished["gpu"]}
    found[GATEWAY] = wished["gateway"]
    return [job for job, wanted in found.items() if wanted]


def problems(settings: Settings) -> list[Problem]:
    """All that is wrong with the settings."""
    paths = {"monitoring_home": settings.home}
    if settings.key_file or _needs_key(settings):
        # Where nobody asks for a key there may be none.
        paths["monitoring_key_file"] = settings.key_file
    found = []
    for at, path in paths.items():
        if not path.startswith("/") or NOT_IN_A_PATH & set(path):
            needed = 'an absolute path without quotes, braces and backslashes: " ` { } \\ $ %'
            found.append(Problem("invalid-setting", f"'{path}'", needed, "correct it", at))
    pace = settings.pace
    if pace.interval_s < 1 or pace.window_s < 2 * pace.interval_s or pace.hold_s < 10:
        found.append(
            Problem(
                "invalid-setting",
                f"interval {pace.interval_s}, window {pace.window_s}, hold {pace.hold_s} seconds",
                "an interval of a second or more, a window of two intervals or more, a hold of 10 seconds or more",
                "correct it",
                "monitoring_pace",
            )
        )
    return found


def files(templates: Path, settings: Settings) -> MonitoringFiles:
    """What is put on the box. Raises DrafthouseError with all that is wrong."""
    wrong = problems(settings)
    if wrong:
        raise DrafthouseError(wrong)
    folder, wished = settings.folder, settings.wished
    entries = _configuration(templates, settings)
    configuration_digest = _hash([*(entry["content"] for entry in entries), settings.digest])
    units: list[File] = []
    for name in wished["programs"]:
        data = {
            "what": _WHAT[name],
            "words": [settings.binaries[name], *_flags(settings, name)],
            "data": f"{folder}/data" if name == "prometheus" else "",
            "digest": configuration_digest,
        }
        path = f"{folder}/programs/{name}/serve.sh"
        entries.append(render_file(templates, "monitoring/serve.sh.j2", path, "0755", data))
        if settings.keeper == "systemd":
            unit = {
                **data,
                "script": path,
                "digest": _hash([entries[-1]["content"]]),
                "key_file": settings.key_file if name == "prometheus" and _needs_key(settings) else "",
            }
            at = f"/etc/systemd/system/{UNIT}{name}.service"
            units.append(render_file(templates, "monitoring/program.service.j2", at, "0644", unit))
    return {
        "entries": [*_folders(settings), *entries],
        "units": units,
        "programs": {name: wished["ports"][name] for name in wished["programs"]},
        "containers": _containers(settings, entries),
    }


def _folders(settings: Settings) -> list[Folder]:
    """The folders, each before what lies in it; the programs of systemd and containers are other users."""
    folder = settings.folder
    names = ["", "/programs", *(f"/programs/{name}" for name in settings.wished["programs"])]
    names += ["/grafana", "/grafana/boards"]
    if settings.wished["grafana"]:
        names += [f"/grafana/{name}" for name in _PROVISIONED]
    folders: list[Folder] = [{"path": f"{folder}{name}", "mode": "0755"} for name in names]
    return [*folders, {"path": f"{folder}/logs", "mode": "0700"}]


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _needs_key(settings: Settings) -> bool:
    return bool(settings.wished["key"] and settings.wished["dialect"])


def _key_file(settings: Settings) -> str:
    """Where Prometheus reads the key: from a file, so that it stands in no configuration."""
    handed = f"/run/credentials/{UNIT}prometheus.service/api_key"
    return handed if settings.keeper == "systemd" else settings.key_file


def _written(settings: Settings, name: str, data: Json) -> File:
    head = "# Written by Drafthouse (role monitoring); the next run overwrites changes made here.\n"
    return {"path": f"{settings.folder}/{name}", "mode": "0644", "content": f"{head}{yaml_block(data)}\n"}


def _configuration(templates: Path, settings: Settings) -> list[File]:
    """What the programs read."""
    wished, path = settings.wished, f"{settings.folder}/rules.yml"
    rules = rules_file(templates, path, watched(wished), settings.pace, settings.limits)
    written: list[File] = [
        _written(settings, "prometheus.yml", prometheus(settings)),
        rules,
        _written(settings, "blackbox.yml", blackbox(settings)),
    ]
    if wished["gpu"]:
        lines = "".join(f"{name}, gauge, {says}\n" for name, says in _DCGM_FIELDS)
        written.append({"path": f"{settings.folder}/dcgm.csv", "mode": "0644", "content": lines})
    # Also where no Grafana of ours runs: one elsewhere can read it.
    board = dashboard(templates, recorded(rules["content"]), f"Drafthouse: {settings.box}")
    text = json.dumps(board, indent=1) + "\n"
    written.append({"path": f"{settings.folder}/grafana/boards/{UID}.json", "mode": "0644", "content": text})
    if wished["grafana"]:
        written += _provisioned(settings)
    return written


def prometheus(settings: Settings) -> dict[str, Json]:
    """Prometheus's configuration."""
    wished, interval = settings.wished, duration(settings.pace.interval_s)
    found: dict[str, Json] = {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": duration(min(10, settings.pace.interval_s)),
            "evaluation_interval": interval,
            "external_labels": {"box": settings.box},
        },
        "rule_files": [f"{settings.folder}/rules.yml"],
        "scrape_configs": [_scraped(settings, job) for job in jobs(wished)],
    }
    if wished["alertmanager"]:
        found["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [wished["alertmanager"]]}]}]}
    return found


def _scraped(settings: Settings, job: str) -> Json:
    wished, ports = settings.wished, settings.wished["ports"]
    if job == ENGINE:
        scraped = _target(job, wished["target"], wished["profile"])
        scraped["metrics_path"] = wished["path"]
        if wished["key"]:
            # To nobody whom a redirect names.
            scraped |= {"authorization": {"credentials_file": _key_file(settings)}, "follow_redirects": False}
        return scraped
    if job in (HEALTH, GATEWAY):
        # Prometheus reads the blackbox exporter, which asks what is named in `target`.
        if wished["gateway"] and job == GATEWAY:
            asked, profile = f"{LOOPBACK}:{wished['gateway']['port']}", ""
        else:
            asked, profile = f"http://{wished['target']}{wished['health']}", wished["profile"]
        scraped = _target(job, f"{LOOPBACK}:{ports['blackbox']}", profile)
        return {**scraped, "metrics_path": "/probe", "params": {"module": [job], "target": [asked]}}
    exporter = "node" if job == NODE else "dcgm"
    return _target(job, f"{LOOPBACK}:{ports[exporter]}")


def _target(job: str, address: str, profile: str = "") -> dict[str, Json]:
    targets: dict[str, Json] = {"targets": [address]}
    if profile:
        targets["labels"] = {"profile": profile}
    return {"job_name": job, "static_configs": [targets]}


def blackbox(settings: Settings) -> Json:
    """The blackbox exporter's configuration: how each of its modules asks."""
    wished = settings.wished
    modules: dict[str, Json] = {
        HEALTH: {
            "prober": "http",
            "timeout": "5s",
            "http": {"valid_status_codes": [200], "preferred_ip_protocol": "ip4"},
        }
    }
    if wished["gateway"]:
        # It looks at the certificate that is presented; whether it can be trusted, who calls it must know.
        tls: dict[str, Json] = {"insecure_skip_verify": True}
        if wished["gateway"]["name"]:
            tls["server_name"] = wished["gateway"]["name"]
        modules[GATEWAY] = {"prober": "tcp", "timeout": "5s", "tcp": {"tls": True, "tls_config": tls}}
    return {"modules": modules}


def _flags(settings: Settings, name: str) -> list[str]:
    wished, folder = settings.wished, settings.folder
    if name == "prometheus":
        return [
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.retention.time={wished['retention_days']}d",
            f"--storage.tsdb.retention.size={wished['retention_gb']}GB",
            f"--web.listen-address={in_brackets(wished['listen'])}:{wished['ports'][name]}",
            "--log.level=warn",
        ]
    at = f"--web.listen-address={LOOPBACK}:{wished['ports'][name]}"
    if name == "blackbox":
        return [f"--config.file={folder}/blackbox.yml", at, "--log.level=warn"]
    return [at, "--log.level=warn", "--collector.disable-defaults", "--collector.meminfo", "--collector.cpu"]


# --- containers -------------------------------------------------------------------------------------


def _provisioned(settings: Settings) -> list[File]:
    """What Grafana reads at its start: where the series are, and where its dashboard lies."""
    source: Json = {
        "name": "Prometheus", "uid": DATASOURCE, "type": "prometheus", "access": "proxy", "isDefault": True,
        "url": f"http://{settings.listens_at}:{settings.wished['ports']['prometheus']}", "editable": False,
        "jsonData": {"timeInterval": duration(settings.pace.interval_s)},
    }  # fmt: skip
    boards: Json = {
        "name": "drafthouse", "type": "file", "disableDeletion": True, "allowUiUpdates": False,
        "options": {"path": "/etc/drafthouse/boards"},
    }  # fmt: skip
    return [
        _written(settings, "grafana/datasources/drafthouse.yml", {"apiVersion": 1, "datasources": [source]}),
        _written(settings, "grafana/dashboards/drafthouse.yml", {"apiVersion": 1, "providers": [boards]}),
    ]


def _containers(settings: Settings, entries: Iterable[File]) -> list[Container]:
    """The containers that are wanted, as the role runs them; ``entries`` has the files that they read."""
    wished, folder, ports = settings.wished, settings.folder, settings.wished["ports"]
    found: list[Container] = []
    if wished["gpu"]:
        found.append(
            {
                "name": "drafthouse-dcgm",
                "image": settings.images["dcgm"],
                "environment": {
                    "DCGM_EXPORTER_LISTEN": f"{LOOPBACK}:{ports['dcgm']}",
                    "DCGM_EXPORTER_COLLECTORS": "/etc/drafthouse/dcgm.csv",
                },
                "mounts": [f"{folder}/dcgm.csv:/etc/drafthouse/dcgm.csv:ro"],
                "network": _NETWORK,
                "gpus": ["all"],
                "security": _SECURITY,
                "labels": {MONITORING_LABEL: _hash(f"{name} {says}" for name, says in _DCGM_FIELDS)},
            }
        )
    if wished["grafana"]:
        read_by_it = [file["content"] for file in entries if file["path"].startswith(f"{folder}/grafana/")]
        found.append(
            {
                "name": "drafthouse-grafana",
                "image": settings.images["grafana"],
                "environment": _grafana(wished),
                "mounts": [
                    *(f"{folder}/grafana/{name}:/etc/grafana/provisioning/{name}:ro" for name in _PROVISIONED),
                    f"{folder}/grafana/boards:/etc/drafthouse/boards:ro",
                ],
                "network": _NETWORK,
                "security": _SECURITY,
                "read_only": True,
                # It keeps nothing: what it shows is made of these files at each start.
                "tmpfs": ["/var/lib/grafana", "/var/log/grafana", "/tmp"],  # noqa: S108
                "labels": {MONITORING_LABEL: _hash(read_by_it)},
            }
        )
    return found


def _grafana(wished: Monitoring) -> dict[str, str]:
    """Grafana's settings: anybody who reaches it looks, nobody logs in, and it calls nobody."""
    return {
        "GF_SERVER_HTTP_ADDR": wished["listen"],
        "GF_SERVER_HTTP_PORT": str(wished["ports"]["grafana"]),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        "GF_AUTH_BASIC_ENABLED": "false",
        "GF_AUTH_DISABLE_LOGIN_FORM": "true",
        "GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",
        "GF_NEWS_NEWS_FEED_ENABLED": "false",
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": f"/etc/drafthouse/boards/{UID}.json",
        "GF_LOG_LEVEL": "warn",
    }
