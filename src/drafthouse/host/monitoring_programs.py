"""The programs of the monitoring: all of them packages of Debian's and Ubuntu's own."""

from __future__ import annotations

from dataclasses import replace

from .deb_unpack import Wanted


def _wanted(name: str, package: str, oldest: tuple[int, int], what: str) -> Wanted:
    do = f"set monitoring_binaries: {{{name}: PATH}} to one on the box ({oldest[0]}.{oldest[1]} or newer)"
    return Wanted(package, (package,), "--version", oldest, what, "Debian 12, Ubuntu 22.04 and newer", do)


# By the name under which each runs. The oldest are those of Ubuntu 22.04; what the configuration says, they know.
PROGRAMS = {
    "prometheus": _wanted("prometheus", "prometheus", (2, 31), "what collects and judges the counters"),
    "blackbox": _wanted("blackbox", "prometheus-blackbox-exporter", (0, 19), "what asks the engine and the gateway"),
    "node": _wanted("node", "prometheus-node-exporter", (1, 3), "what shows the machine's memory and processors"),
}
#: What checks rules; no box needs it. It is in Prometheus's own package up to Debian 13 and Ubuntu 24.04.
PROMTOOL = replace(PROGRAMS["prometheus"], programs=("promtool",), what="what checks rules", do="install prometheus")
