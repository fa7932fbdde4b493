"""What a site says: the inventory's `drafthouse_*` as the resolver takes them."""

from __future__ import annotations

from ..core.schema import List, Map, Value
from . import fleet_settings as fleet
from . import monitoring_settings as monitoring
from . import several_hosts
from . import watchdog_settings as watchdog
from .forms import FOLDER, GPU, HOST, IMAGE

SITE = Map(
    {
        # Whether driver, container engine and firewall of the box are ours to install.
        "manage_host": Value(bool, required=True),
        "runtime": Value(str, required=True, choices=("process", "docker")),
        # Whether the command line names it. What the inventory says gives way where a profile has only one runtime.
        "runtime_asked": Value(bool),
        "home": Value(str, required=True, form=FOLDER),
        "models_dir": Value(str, required=True, form=FOLDER),
        "host": Value(str, required=True, form=HOST),
        "port": Value(int, required=True, low=1, high=65534),
        "allow_cidrs": List(Value(str)),
        # TLS and the API key in front of the engine, which then stays on loopback.
        "gateway": Value(bool),
        "gateway_port": Value(int, low=1, high=65535),
        "gateway_name": Value(str),
        # Several boxes of this inventory behind one address (docs/fleet.md).
        "fleet": fleet.SITE,
        # Where the other boxes of the fleet reach this one; without it where Ansible does.
        "address": Value(str, form=HOST),
        # Whether speculation still pays on real traffic, and what to do where it does not.
        "watchdog": watchdog.SETTINGS,
        # Prometheus with rules and alerts for the engine, and a dashboard (docs/monitoring.md).
        "monitoring": monitoring.SITE,
        "engine_image": Value(str, form=IMAGE),
        # A server of the engine that was built on the box, for the process runtime; nothing is installed in its place.
        "engine_program": Value(str, form=FOLDER),
        # The GPUs that are ours, as nvidia-smi -L lists them: indices or UUIDs. Without it CUDA_VISIBLE_DEVICES of the
        # box, otherwise all of them.
        "gpus": List(Value(str, form=GPU)),
        "price_per_hour": Value(float, low=0),
        # Of the price, as a report writes it: EUR, $.
        "currency": Value(str),
        # Where weights may lie already, asked before the hub: a folder or mount of the box, or a host of the inventory.
        "weights_from": Value(str),
        "weights_from_box": Value(str),
        # A file of the controller (make bundle); packages and weights then come from it and from nowhere else.
        "bundle": Value(str),
        **several_hosts.SETTINGS,
    }
)
