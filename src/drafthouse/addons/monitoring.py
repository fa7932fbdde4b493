"""Build the files of a box's monitoring (Prometheus, exporters, Grafana) from its settings and the templates.

Prometheus scrapes the engine's counters and the exporters. The blackbox exporter checks that engine and gateway answer.
A workstation also has Debian's node exporter and, in the docker runtime, NVIDIA's DCGM exporter. They use five
consecutive ports on loopback; Prometheus and Grafana listen on another address only if the inventory names one.
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
from ..profiles.monitoring_settings import LOOPBACK, NOT_IN_A_PATH, local_address
from ..profiles.render import render_file, yaml_block
from .grafana import DATASOURCE, UID, dashboard
from .monitoring_ready import ENGINE, GATEWAY, GPU, HEALTH, NODE
from .prometheus_rules import Limits, Pace, Watched, duration_text, recorded_series, rules_file

if TYPE_CHECKING:
    from drafthouse.core.documents import Json
    from drafthouse.profiles.container import Container
    from drafthouse.profiles.resolved_types import File, Folder, Monitoring, Ports

NAME = "monitoring"
UNIT = "drafthouse-monitoring-"  # the name of a systemd unit, before the program's name
# Containers use the host's network, because the targets and their own ports are on loopback.
_NETWORK, _SECURITY = "host", ["no-new-privileges"]
_PROVISIONED = ("datasources", "dashboards")  # folders that Grafana reads at its start
_DESCRIPTIONS = {
    "prometheus": "Prometheus: collects the counters and raises alerts",
    "node": "node exporter: the machine's memory and processors",
    "blackbox": "blackbox exporter: checks that the engine and the gateway answer",
}
# The fields of DCGM's exporter; its default list lacks the reasons for lowered clocks. It exits if a line does not have
# exactly three comma-separated fields (`internal/pkg/counters/counter_config.go`), so no text may have a comma.
_DCGM_FIELDS = (
    ("DCGM_FI_DEV_FB_USED", "Memory used (MiB)."),
    ("DCGM_FI_DEV_FB_FREE", "Memory free (MiB)."),
    ("DCGM_FI_DEV_GPU_UTIL", "Share of time in which a kernel ran (percent)."),
    ("DCGM_FI_DEV_GPU_TEMP", "Temperature (degrees Celsius)."),
    ("DCGM_FI_DEV_POWER_USAGE", "Power drawn (watts)."),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Why the clocks are lowered (a mask)."),
)


def script_of(home: str) -> str:
    """The path of Prometheus's start script; if it exists, the box has or had monitoring."""
    return f"{home}/{NAME}/programs/prometheus/serve.sh"


# --- the files --------------------------------------------------------------------------------------


class MonitoringFiles(TypedDict):
    """What the role installs on the box: folders and files, systemd units, containers, and the programs' ports."""

    entries: list[Folder | File]
    units: list[File]
    programs: Ports
    containers: list[Container]


@dataclass(frozen=True)
class Settings:
    """The settings of a box's monitoring."""

    home: str  # Drafthouse's folder on the box
    keeper: str  # what keeps the programs running: systemd or supervisor
    box: str  # the box's name in labels
    key_file: str  # with the engine's API key; '' for none
    wished: Monitoring  # from `monitoring_of`
    binaries: Mapping[str, str]  # program -> path on the box
    digest: str = ""  # a hash of the binaries and of the API key; a new one restarts the programs
    pace: Pace = field(default_factory=Pace)
    limits: Limits = field(default_factory=Limits)
    images: Mapping[str, str] = field(default_factory=dict)  # program -> container image

    @property
    def folder(self) -> str:
        """The monitoring's folder on the box."""
        return f"{self.home}/{NAME}"

    @property
    def listens_at(self) -> str:
        """The address at which programs on the box reach Prometheus."""
        return local_address(self.wished["listen"])


def watched(wished: Monitoring) -> Watched:
    """What the rules of the box watch."""
    return Watched(wished["dialect"], wished["node"], wished["gpu"], bool(wished["gateway"]), wished["log"])


def jobs(wished: Monitoring) -> list[str]:
    """The jobs that Prometheus scrapes."""
    enabled = {ENGINE: wished["dialect"], HEALTH: True, NODE: wished["node"], GPU: wished["gpu"]}
    enabled[GATEWAY] = wished["gateway"]
    return [job for job, is_enabled in enabled.items() if is_enabled]


def problems(settings: Settings) -> list[Problem]:
    """The problems of the settings, by the names of the role's variables."""
    paths = {"monitoring_home": settings.home}
    if settings.key_file or _needs_key(settings):
        # An engine whose counters need no key may have no key file.
        paths["monitoring_key_file"] = settings.key_file
    result = []
    for variable, path in paths.items():
        if not path.startswith("/") or NOT_IN_A_PATH & set(path):
            needed = 'an absolute path without quotes, braces and backslashes: " ` { } \\ $ %'
            result.append(Problem("invalid-setting", f"'{path}'", needed, "correct it", variable))
    pace = settings.pace
    # A rate needs two scrapes in its window.
    if pace.interval_s < 1 or pace.window_s < 2 * pace.interval_s or pace.hold_s < 10:
        result.append(
            Problem(
                "invalid-setting",
                f"interval {pace.interval_s}, window {pace.window_s}, hold {pace.hold_s} seconds",
                "an interval of a second or more, a window of two intervals or more, a hold of 10 seconds or more",
                "correct it",
                "monitoring_pace",
            )
        )
    return result


def files(templates: Path, settings: Settings) -> MonitoringFiles:
    """What the role installs on the box. Raises DrafthouseError with all `problems` of the settings."""
    found = problems(settings)
    if found:
        raise DrafthouseError(found)
    folder, wished = settings.folder, settings.wished
    entries = _configuration(templates, settings)
    configuration_digest = _hash([*(entry["content"] for entry in entries), settings.digest])
    units: list[File] = []
    for name in wished["programs"]:
        data = {
            "what": _DESCRIPTIONS[name],
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
            unit_path = f"/etc/systemd/system/{UNIT}{name}.service"
            units.append(render_file(templates, "monitoring/program.service.j2", unit_path, "0644", unit))
    return {
        "entries": [*_folders(settings), *entries],
        "units": units,
        "programs": {name: wished["ports"][name] for name in wished["programs"]},
        "containers": _containers(settings, entries),
    }


def _folders(settings: Settings) -> list[Folder]:
    """The folders, parents first. Systemd's programs and containers run as other users, who must read them."""
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
    # Without a dialect the engine has no counters to read.
    return bool(settings.wished["key"] and settings.wished["dialect"])


def _key_file(settings: Settings) -> str:
    """The file from which Prometheus reads the API key; under systemd, the unit's copy of it (a credential)."""
    credential = f"/run/credentials/{UNIT}prometheus.service/api_key"
    return credential if settings.keeper == "systemd" else settings.key_file


def _yaml_file(settings: Settings, name: str, data: Json) -> File:
    head = "# Written by Drafthouse (role monitoring); the next run overwrites changes made here.\n"
    return {"path": f"{settings.folder}/{name}", "mode": "0644", "content": f"{head}{yaml_block(data)}\n"}


def _configuration(templates: Path, settings: Settings) -> list[File]:
    """The configuration files of all programs."""
    wished, path = settings.wished, f"{settings.folder}/rules.yml"
    rules = rules_file(templates, path, watched(wished), settings.pace, settings.limits)
    configuration: list[File] = [
        _yaml_file(settings, "prometheus.yml", prometheus(settings)),
        rules,
        _yaml_file(settings, "blackbox.yml", blackbox(settings)),
    ]
    if wished["gpu"]:
        lines = "".join(f"{name}, gauge, {text}\n" for name, text in _DCGM_FIELDS)
        configuration.append({"path": f"{settings.folder}/dcgm.csv", "mode": "0644", "content": lines})
    # The dashboard is written even without Grafana on the box: another Grafana can import it.
    board = dashboard(templates, recorded_series(rules["content"]), f"Drafthouse: {settings.box}")
    text = json.dumps(board, indent=1) + "\n"
    configuration.append({"path": f"{settings.folder}/grafana/boards/{UID}.json", "mode": "0644", "content": text})
    if wished["grafana"]:
        configuration += _provisioned(settings)
    return configuration


def prometheus(settings: Settings) -> dict[str, Json]:
    """Prometheus's configuration."""
    wished, interval = settings.wished, duration_text(settings.pace.interval_s)
    configuration: dict[str, Json] = {
        "global": {
            "scrape_interval": interval,
            # Prometheus refuses a timeout that is longer than the interval.
            "scrape_timeout": duration_text(min(10, settings.pace.interval_s)),
            "evaluation_interval": interval,
            "external_labels": {"box": settings.box},
        },
        "rule_files": [f"{settings.folder}/rules.yml"],
        "scrape_configs": [_scrape_config(settings, job) for job in jobs(wished)],
    }
    if wished["alertmanager"]:
        configuration["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [wished["alertmanager"]]}]}]}
    return configuration


def _scrape_config(settings: Settings, job: str) -> Json:
    wished, ports = settings.wished, settings.wished["ports"]
    if job == ENGINE:
        scraped = _target(job, wished["target"], wished["profile"])
        scraped["metrics_path"] = wished["path"]
        if wished["key"]:
            # Without redirects, the key is sent to no other server.
            scraped |= {"authorization": {"credentials_file": _key_file(settings)}, "follow_redirects": False}
        return scraped
    if job in (HEALTH, GATEWAY):
        # Prometheus scrapes the blackbox exporter, which probes what the parameter `target` names.
        if wished["gateway"] and job == GATEWAY:
            probed, profile = f"{LOOPBACK}:{wished['gateway']['port']}", ""
        else:
            probed, profile = f"http://{wished['target']}{wished['health']}", wished["profile"]
        scraped = _target(job, f"{LOOPBACK}:{ports['blackbox']}", profile)
        return {**scraped, "metrics_path": "/probe", "params": {"module": [job], "target": [probed]}}
    exporter = "node" if job == NODE else "dcgm"
    return _target(job, f"{LOOPBACK}:{ports[exporter]}")


def _target(job: str, address: str, profile: str = "") -> dict[str, Json]:
    targets: dict[str, Json] = {"targets": [address]}
    if profile:
        targets["labels"] = {"profile": profile}
    return {"job_name": job, "static_configs": [targets]}


def blackbox(settings: Settings) -> Json:
    """The blackbox exporter's configuration: an HTTP probe of the engine, a TLS probe of the gateway."""
    wished = settings.wished
    modules: dict[str, Json] = {
        HEALTH: {
            "prober": "http",
            "timeout": "5s",
            "http": {"valid_status_codes": [200], "preferred_ip_protocol": "ip4"},
        }
    }
    if wished["gateway"]:
        # The probe reads the certificate, for its end date, and does not verify it: clients do that.
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
    address = f"--web.listen-address={LOOPBACK}:{wished['ports'][name]}"
    if name == "blackbox":
        return [f"--config.file={folder}/blackbox.yml", address, "--log.level=warn"]
    return [address, "--log.level=warn", "--collector.disable-defaults", "--collector.meminfo", "--collector.cpu"]


def _provisioned(settings: Settings) -> list[File]:
    """The files with which Grafana configures itself at its start: the data source and the dashboards' folder."""
    source: Json = {
        "name": "Prometheus", "uid": DATASOURCE, "type": "prometheus", "access": "proxy", "isDefault": True,
        "url": f"http://{settings.listens_at}:{settings.wished['ports']['prometheus']}", "editable": False,
        "jsonData": {"timeInterval": duration_text(settings.pace.interval_s)},
    }  # fmt: skip
    boards: Json = {
        "name": "drafthouse", "type": "file", "disableDeletion": True, "allowUiUpdates": False,
        "options": {"path": "/etc/drafthouse/boards"},
    }  # fmt: skip
    return [
        _yaml_file(settings, "grafana/datasources/drafthouse.yml", {"apiVersion": 1, "datasources": [source]}),
        _yaml_file(settings, "grafana/dashboards/drafthouse.yml", {"apiVersion": 1, "providers": [boards]}),
    ]


def _containers(settings: Settings, entries: Iterable[File]) -> list[Container]:
    """The containers that the role runs; a label has the hash of the files among ``entries`` that a container reads."""
    wished, folder, ports = settings.wished, settings.folder, settings.wished["ports"]
    containers: list[Container] = []
    if wished["gpu"]:
        containers.append(
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
                "labels": {MONITORING_LABEL: _hash(f"{name} {text}" for name, text in _DCGM_FIELDS)},
            }
        )
    if wished["grafana"]:
        contents = [file["content"] for file in entries if file["path"].startswith(f"{folder}/grafana/")]
        containers.append(
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
                # Grafana stores nothing: it reads the provisioned files at each start.
                "tmpfs": ["/var/lib/grafana", "/var/log/grafana", "/tmp"],  # noqa: S108
                "labels": {MONITORING_LABEL: _hash(contents)},
            }
        )
    return containers


def _grafana(wished: Monitoring) -> dict[str, str]:
    """Grafana's settings: read-only without login, no accounts, no requests to the internet."""
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
