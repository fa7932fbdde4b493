"""The logs of the boxes of an inventory: which there are, and the command that shows or follows them there. Pure.

Who bounds them: supervisord each file of the process runtime (20 MB and two before it), Docker each container's (three
of 20 MB, whatever its daemon.json says), supervisord its own (5 MB and one before it), systemd its journal. The doctor
sees that the engines' are bounded.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .support_facts import LABELS, LOG_FILES, UNITS
from .tunnel import HostVars, Way, options, way_to


@dataclass(frozen=True)
class Wish:
    """What shall be shown: the last ``lines`` of each log, and what comes; ``only`` is a part of the log's name."""

    lines: int = 100
    follow: bool = False
    only: str = ""


def script(home: str, wish: Wish) -> str:
    """The shell lines that show a box's logs, each line behind the name of its log.

    Of both runtimes what is there: a rental that is a whole VM has containers, whatever its inventory says.
    """
    follow_file, follow_container, behind = ("-F", "-f", " &") if wish.follow else ("", "", "")
    patterns = " ".join(f"{shlex.quote(home)}/{pattern}" for pattern in LOG_FILES)
    names = "; ".join(
        f"docker ps --all --filter label={label} --format '{{{{.Names}}}}' 2>/dev/null" for label in LABELS
    )
    return f"""\
only={shlex.quote(wish.only)}
named() {{ case "$1" in *"$only"*) return 0 ;; esac; return 1; }}
prefixed() {{ sed -u "s|^|$1: |"; }}
for file in {patterns}; do
  [ -f "$file" ] || continue
  name=$(basename "$file" .log)
  case "$file" in
    */fleet/gateway/*) name="fleet-$name" ;;
    */gateway/supervisor/*) name="gateway-$name" ;;
    */monitoring/supervisor/*) name="monitoring-$name" ;;
    */watchdog/supervisor/*) name="watchdog-$name" ;;
  esac
  named "$name" || continue
  [ -r "$file" ] || {{ echo "$file may not be read: set ansible_become, or connect as its owner" >&2; continue; }}
  {{ tail -n {wish.lines} {follow_file} "$file" 2>/dev/null | prefixed "$name"; }}{behind}
done
if [ -d /run/systemd/system ]; then
  for unit in $(systemctl list-unit-files --plain --no-legend '{UNITS}' 2>/dev/null | cut -d ' ' -f 1); do
    name=${{unit%.service}}
    if named "$name"; then
      {{ journalctl --quiet --no-pager --output cat --lines {wish.lines} {follow_container} --unit "$unit" |
         prefixed "$name"; }}{behind}
    fi
  done
fi
if [ -S /var/run/docker.sock ]; then
  for name in $({names}); do
    if named "$name"; then
      {{ docker logs --tail {wish.lines} {follow_container} "$name" 2>&1 | prefixed "$name"; }}{behind}
    fi
  done
fi
wait
"""


@dataclass(frozen=True)
class Source:
    """One box: its name, and the command that prints its logs."""

    name: str
    command: list[str]


def source(name: str, hosts: Mapping[str, HostVars], home: str, wish: Wish, known_hosts: Path) -> Source:
    """Where the logs of a host come from: this machine, or over SSH. Raises DrafthouseError."""
    text = script(home, wish)
    if hosts[name].get("ansible_connection") == "local":
        return Source(name, ["/bin/sh", "-c", text])
    return Source(name, remote(way_to(hosts, name, name), known_hosts, text, terminal=wish.follow))


def remote(way: Way, known_hosts: Path, text: str, *, terminal: bool) -> list[str]:
    """Ssh's command line. With a terminal the box ends what follows when we go, also where nothing is logged.

    Logs are their owner's alone: who becomes root there for Ansible reads them as root.
    """
    _, *login, target = way.ssh()
    return [
        *("ssh", "-tt" if terminal else "-T"),
        *options(way, known_hosts),
        *login,
        *("--", target, f"{'sudo -n ' * way.sudo}/bin/sh -c {shlex.quote(text)}"),
    ]
