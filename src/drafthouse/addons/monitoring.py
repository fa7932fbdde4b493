"""Build the files of a box's monitoring (Prometheus, exporters, Grafana) for the Ansible role `monitoring`.

Prometheus scrapes the engine's counters and the exporters. The blackbox exporter checks that engine and gateway answer.
A box whose host Drafthouse manages also has Debian's node exporter and, in the docker runtime, NVIDIA's DCGM exporter.
With Grafana these are five programs at most, at consecutive ports (`monitoring_settings.PROGRAMS`). The exporters
listen on loopback; Prometheus and Grafana do too, unless the inventory names another address.
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

# The monitoring's folder, below the box's home.
FOLDER_NAME = "monitoring"
# A systemd unit is named by this and the program's name.
UNIT_PREFIX = "drafthouse-monitoring-"
# The containers use the host's network, because their targets and their own ports are on loopback.
_NETWORK = "host"
# Docker's security options of the containers.
_SECURITY = ["no-new-privileges"]
# Folders that Grafana reads at its start. `dashboards` holds the provider, which loads the dashboard in `boards`.
_PROVISIONED = ("datasources", "dashboards")
# Descriptions of the systemd units, by program.
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


def prometheus_script_path(home: str) -> str:
    """The path of Prometheus's start script, which exists if the box has or had monitoring."""
    return f"{home}/{FOLDER_NAME}/programs/prometheus/serve.sh"


# --- the files --------------------------------------------------------------------------------------


class MonitoringFiles(TypedDict):
    """What the role installs on the box."""

    entries: list[Folder | File]  # folders, parents first, then files
    units: list[File]  # of systemd; [] if supervisord keeps the programs running
    programs: Ports  # those that a unit or supervisord runs, with their ports
    containers: list[Container]  # the DCGM exporter and Grafana


@dataclass(frozen=True)
class Settings:
    """The settings of a box's monitoring; the field names are the arguments of the Ansible module `monitoring`."""

    home: str  # Drafthouse's folder on the box
    process_manager: str  # what keeps the programs running: systemd or supervisor
    box: str  # the box's name in labels
    key_file: str  # with the engine's API key; '' for none
    requested: Monitoring  # what the site and its profile ask for, by `monitoring_settings.monitoring_of`
    binaries: Mapping[str, str]  # program -> path on the box
    binaries_digest: str = ""  # of the binaries and the API key, computed by the role; a change restarts the programs
    pace: Pace = field(default_factory=Pace)
    limits: Limits = field(default_factory=Limits)
    images: Mapping[str, str] = field(default_factory=dict)  # dcgm and grafana -> container image

    @property
    def folder(self) -> str:
        """The monitoring's folder on the box."""
        return f"{self.home}/{FOLDER_NAME}"

    @property
    def listens_at(self) -> str:
        """The address at which programs on the box reach Prometheus."""
        return local_address(self.requested["listen"])


def watched_of(monitoring: Monitoring) -> Watched:
    """What the rules of the box watch."""
    return Watched(
        dialect=monitoring["dialect"],
        node=monitoring["node"],
        gpu=monitoring["gpu"],
        gateway=bool(monitoring["gateway"]),
        log=monitoring["log"],
    )


def jobs(monitoring: Monitoring) -> list[str]:
    """The jobs (kinds of targets) that Prometheus scrapes."""
    enabled = {
        ENGINE: monitoring["dialect"], HEALTH: True, NODE: monitoring["node"], GPU: monitoring["gpu"],
        GATEWAY: monitoring["gateway"],
    }  # fmt: skip
    return [job for job, is_enabled in enabled.items() if is_enabled]


def settings_problems(settings: Settings) -> list[Problem]:
    """What is wrong with the settings; each problem names the variable of the role."""
    paths = {"monitoring_home": settings.home}
    # Without a key for the counters there may be no key file, and '' is valid.
    if settings.key_file or _metrics_need_key(settings):
        paths["monitoring_key_file"] = settings.key_file
    result = []
    for variable, path in paths.items():
        if not path.startswith("/") or NOT_IN_A_PATH & set(path):
            # Line breaks are refused too, but the message cannot show one.
            needed = 'an absolute path without quotes, braces and backslashes: " ` { } \\ $ %'
            result.append(Problem("invalid-setting", f"'{path}'", needed, "correct it", variable))
    pace = settings.pace
    # A rate needs two scrapes in its window, and the shortest hold of an alert is a tenth of ``hold_s``, in seconds.
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


def build_files(templates: Path, settings: Settings) -> MonitoringFiles:
    """Build all that the role installs on the box. Raises DrafthouseError with all `settings_problems`."""
    problems = settings_problems(settings)
    if problems:
        raise DrafthouseError(problems)
    monitoring = settings.requested
    configuration = _configuration(templates, settings)
    # Each script holds one digest of all configuration files, so that any change restarts all programs.
    inputs_digest = _digest_of([*(file["content"] for file in configuration), settings.binaries_digest])
    scripts: list[File] = []
    units: list[File] = []
    for name in monitoring["programs"]:
        script, unit = _program_files(templates, settings, name, inputs_digest)
        scripts.append(script)
        if settings.process_manager == "systemd":
            units.append(unit)
    return {
        "entries": [*_folders(settings), *configuration, *scripts],
        "units": units,
        "programs": {name: monitoring["ports"][name] for name in monitoring["programs"]},
        "containers": _containers(settings, configuration),
    }


def _program_files(templates: Path, settings: Settings, name: str, inputs_digest: str) -> tuple[File, File]:
    """The start script of a program, and its systemd unit. ``inputs_digest``: of all configuration files."""
    is_prometheus = name == "prometheus"
    data = {
        "what": _DESCRIPTIONS[name],
        "words": [settings.binaries[name], *_flags(settings, name)],
        "data": f"{settings.folder}/data" if is_prometheus else "",
        "digest": inputs_digest,
    }
    path = f"{settings.folder}/programs/{name}/serve.sh"
    script = render_file(templates, "monitoring/serve.sh.j2", path, "0755", data)
    data |= {
        "script": path,
        "digest": _digest_of([script["content"]]),  # a new script changes the unit, and so restarts it
        "key_file": settings.key_file if is_prometheus and _metrics_need_key(settings) else "",
    }
    unit_path = f"/etc/systemd/system/{UNIT_PREFIX}{name}.service"
    return script, render_file(templates, "monitoring/program.service.j2", unit_path, "0644", data)


def _folders(settings: Settings) -> list[Folder]:
    """The folders, parents first. Systemd units and containers, which are other users, can read all but `logs`."""
    folder = settings.folder
    names = ["", "/programs", *(f"/programs/{name}" for name in settings.requested["programs"])]
    names += ["/grafana", "/grafana/boards"]
    if settings.requested["grafana"]:
        names += [f"/grafana/{name}" for name in _PROVISIONED]
    folders: list[Folder] = [{"path": f"{folder}{name}", "mode": "0755"} for name in names]
    return [*folders, {"path": f"{folder}/logs", "mode": "0700"}]


def _digest_of(texts: Iterable[str]) -> str:
    """A hash of the texts (16 hex digits), which changes if one of them does."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _metrics_need_key(settings: Settings) -> bool:
    """True if Prometheus needs the API key: the engine has metrics (``dialect`` names it) and asks for the key."""
    return bool(settings.requested["key"] and settings.requested["dialect"])


def _key_file(settings: Settings) -> str:
    """The file from which Prometheus reads the API key; under systemd, the unit's copy of it (a credential)."""
    credential = f"/run/credentials/{UNIT_PREFIX}prometheus.service/api_key"
    return credential if settings.process_manager == "systemd" else settings.key_file


def _yaml_file(settings: Settings, name: str, data: Json) -> File:
    """A file in the monitoring's folder that holds ``data`` as YAML, readable for all users."""
    head = "# Written by Drafthouse (role monitoring); the next run overwrites changes made here.\n"
    return {"path": f"{settings.folder}/{name}", "mode": "0644", "content": f"{head}{yaml_block(data)}\n"}


def _configuration(templates: Path, settings: Settings) -> list[File]:
    """The configuration files of all programs and containers."""
    monitoring = settings.requested
    rules_path = f"{settings.folder}/rules.yml"
    rules = rules_file(templates, rules_path, watched_of(monitoring), settings.pace, settings.limits)
    configuration: list[File] = [
        _yaml_file(settings, "prometheus.yml", prometheus_config(settings)),
        rules,
        _yaml_file(settings, "blackbox.yml", blackbox_config(settings)),
    ]
    if monitoring["gpu"]:
        lines = "".join(f"{name}, gauge, {text}\n" for name, text in _DCGM_FIELDS)
        configuration.append({"path": f"{settings.folder}/dcgm.csv", "mode": "0644", "content": lines})
    # The dashboard is written even without Grafana on the box: another Grafana can import it.
    board = dashboard(templates, recorded_series(rules["content"]), f"Drafthouse: {settings.box}")
    text = json.dumps(board, indent=1) + "\n"
    configuration.append({"path": f"{settings.folder}/grafana/boards/{UID}.json", "mode": "0644", "content": text})
    if monitoring["grafana"]:
        configuration += _provisioned(settings)
    return configuration


def prometheus_config(settings: Settings) -> dict[str, Json]:
    """Prometheus's configuration: the rules, the targets, and the Alertmanager if there is one."""
    monitoring = settings.requested
    interval = duration_text(settings.pace.interval_s)
    configuration: dict[str, Json] = {
        "global": {
            "scrape_interval": interval,
            # Prometheus refuses a timeout that is longer than the interval.
            "scrape_timeout": duration_text(min(10, settings.pace.interval_s)),
            "evaluation_interval": interval,
            "external_labels": {"box": settings.box},
        },
        "rule_files": [f"{settings.folder}/rules.yml"],
        "scrape_configs": [_scrape_config(settings, job) for job in jobs(monitoring)],
    }
    if monitoring["alertmanager"]:
        configuration["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [monitoring["alertmanager"]]}]}]}
    return configuration


def _scrape_config(settings: Settings, job: str) -> Json:
    """How Prometheus scrapes a job.

    It reads the engine's counters directly, health and gateway through the blackbox exporter, and everything else from
    an exporter.
    """
    monitoring = settings.requested
    ports = monitoring["ports"]
    if job == ENGINE:
        scraped = _scraped_address(job, monitoring["target"], monitoring["profile"])
        scraped["metrics_path"] = monitoring["path"]
        if monitoring["key"]:
            # Without redirects, the key is sent to no other server.
            scraped |= {"authorization": {"credentials_file": _key_file(settings)}, "follow_redirects": False}
        return scraped
    if job in (HEALTH, GATEWAY):
        # Prometheus scrapes the blackbox exporter, which probes what the parameter `target` names.
        probed = f"http://{monitoring['target']}{monitoring['health']}"
        profile = monitoring["profile"]
        if job == GATEWAY and monitoring["gateway"]:  # the job exists only with a gateway
            probed = f"{LOOPBACK}:{monitoring['gateway']['port']}"
            profile = ""  # the gateway's series have no profile
        scraped = _scraped_address(job, f"{LOOPBACK}:{ports['blackbox']}", profile)
        return {**scraped, "metrics_path": "/probe", "params": {"module": [job], "target": [probed]}}
    exporter = "node" if job == NODE else "dcgm"
    return _scraped_address(job, f"{LOOPBACK}:{ports[exporter]}")


def _scraped_address(job: str, address: str, profile: str = "") -> dict[str, Json]:
    """The scrape configuration of one address; its series get the label ``profile`` if that is not ''."""
    targets: dict[str, Json] = {"targets": [address]}
    if profile:
        targets["labels"] = {"profile": profile}
    return {"job_name": job, "static_configs": [targets]}


def blackbox_config(settings: Settings) -> Json:
    """The blackbox exporter's configuration: an HTTP probe of the engine, a TLS probe of the gateway."""
    monitoring = settings.requested
    modules: dict[str, Json] = {
        HEALTH: {
            "prober": "http",
            "timeout": "5s",
            "http": {"valid_status_codes": [200], "preferred_ip_protocol": "ip4"},
        }
    }
    if monitoring["gateway"]:
        # The probe reads the certificate, for its end date, and does not verify it: clients do that.
        tls: dict[str, Json] = {"insecure_skip_verify": True}
        if monitoring["gateway"]["name"]:
            tls["server_name"] = monitoring["gateway"]["name"]
        modules[GATEWAY] = {"prober": "tcp", "timeout": "5s", "tcp": {"tls": True, "tls_config": tls}}
    return {"modules": modules}


def _flags(settings: Settings, name: str) -> list[str]:
    """The flags of the program ``name``: prometheus, blackbox or node; prometheus's data folder is in the template."""
    monitoring = settings.requested
    folder = settings.folder
    if name == "prometheus":
        return [
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.retention.time={monitoring['retention_days']}d",
            f"--storage.tsdb.retention.size={monitoring['retention_gb']}GB",
            f"--web.listen-address={in_brackets(monitoring['listen'])}:{monitoring['ports'][name]}",
            "--log.level=warn",
        ]
    address = f"--web.listen-address={LOOPBACK}:{monitoring['ports'][name]}"
    if name == "blackbox":
        return [f"--config.file={folder}/blackbox.yml", address, "--log.level=warn"]
    return [address, "--log.level=warn", "--collector.disable-defaults", "--collector.meminfo", "--collector.cpu"]


def _provisioned(settings: Settings) -> list[File]:
    """The files with which Grafana configures itself at its start: the data source and the dashboards' folder."""
    source: Json = {
        "name": "Prometheus", "uid": DATASOURCE, "type": "prometheus", "access": "proxy", "isDefault": True,
        "url": f"http://{settings.listens_at}:{settings.requested['ports']['prometheus']}", "editable": False,
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


def _containers(settings: Settings, configuration: Iterable[File]) -> list[Container]:
    """The containers that the role runs.

    Each has a label with a hash of what it reads, so that Ansible recreates it after a change: the fields of the DCGM
    exporter, and Grafana's files in ``configuration``.
    """
    containers: list[Container] = []
    if settings.requested["gpu"]:
        containers.append(_dcgm_container(settings))
    if settings.requested["grafana"]:
        containers.append(_grafana_container(settings, configuration))
    return containers


def _dcgm_container(settings: Settings) -> Container:
    """NVIDIA's DCGM exporter, which shows the GPUs."""
    return {
        "name": "drafthouse-dcgm",
        "image": settings.images["dcgm"],
        "environment": {
            "DCGM_EXPORTER_LISTEN": f"{LOOPBACK}:{settings.requested['ports']['dcgm']}",
            "DCGM_EXPORTER_COLLECTORS": "/etc/drafthouse/dcgm.csv",
        },
        "mounts": [f"{settings.folder}/dcgm.csv:/etc/drafthouse/dcgm.csv:ro"],
        "network": _NETWORK,
        "gpus": ["all"],
        "security": _SECURITY,
        "labels": {MONITORING_LABEL: _digest_of(f"{name} {text}" for name, text in _DCGM_FIELDS)},
    }


def _grafana_container(settings: Settings, configuration: Iterable[File]) -> Container:
    """Grafana, with the data source and the dashboard among the files of the ``configuration``."""
    folder = f"{settings.folder}/grafana"
    contents = [file["content"] for file in configuration if file["path"].startswith(f"{folder}/")]
    return {
        "name": "drafthouse-grafana",
        "image": settings.images["grafana"],
        "environment": _grafana_environment(settings.requested),
        "mounts": [
            *(f"{folder}/{name}:/etc/grafana/provisioning/{name}:ro" for name in _PROVISIONED),
            f"{folder}/boards:/etc/drafthouse/boards:ro",
        ],
        "network": _NETWORK,
        "security": _SECURITY,
        "read_only": True,
        # Grafana stores nothing: it reads the provisioned files at each start.
        "tmpfs": ["/var/lib/grafana", "/var/log/grafana", "/tmp"],  # noqa: S108
        "labels": {MONITORING_LABEL: _digest_of(contents)},
    }


def _grafana_environment(monitoring: Monitoring) -> dict[str, str]:
    """Grafana's settings: read-only without login, no accounts, no requests to the internet."""
    return {
        "GF_SERVER_HTTP_ADDR": monitoring["listen"],
        "GF_SERVER_HTTP_PORT": str(monitoring["ports"]["grafana"]),
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
