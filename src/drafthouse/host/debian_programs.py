"""The programs of gateway and monitoring on a box without containers: all of them packages of Debian's and Ubuntu's."""

from __future__ import annotations

from dataclasses import replace

from .deb_unpack import Wanted


def _of_monitoring(name: str, package: str, oldest: tuple[int, int], what: str) -> Wanted:
    do = f"set monitoring_binaries: {{{name}: PATH}} to one on the box ({oldest[0]}.{oldest[1]} or newer)"
    return Wanted(package, (package,), "--version", oldest, what, "Debian 12, Ubuntu 22.04 and newer", do)


# By the name under which each runs. The oldest of the monitoring's are those of Ubuntu 22.04; what the configuration
# says, they know.
PROGRAMS = {
    "blackbox": _of_monitoring(
        "blackbox", "prometheus-blackbox-exporter", (0, 19), "what asks the engine and the gateway"
    ),
    "caddy": Wanted(
        package="caddy",
        programs=("caddy",),
        ask="version",
        oldest=(2, 6),  # the oldest that distributions have, and the one the tests run
        what="the program of the gateway",
        since="Debian 12, Ubuntu 24.04 and newer",
        do=(
            "set gateway_binary to a caddy 2.6 or newer on the box"
            " (one file: https://github.com/caddyserver/caddy/releases), or use the docker runtime"
        ),
    ),
    "node": _of_monitoring(
        "node", "prometheus-node-exporter", (1, 3), "what shows the machine's memory and processors"
    ),
    "prometheus": _of_monitoring("prometheus", "prometheus", (2, 31), "what collects and judges the counters"),
}
#: What checks rules; no box needs it. It is in Prometheus's own package up to Debian 13 and Ubuntu 24.04.
PROMTOOL = replace(PROGRAMS["prometheus"], programs=("promtool",), what="what checks rules", do="install prometheus")
