"""Builds the command that shows or follows the logs of a box. The functions are pure: they run nothing.

Every log has a size limit: supervisord keeps 20 MB and two older files per program, and 5 MB and one older file of its
own log; Docker keeps three files of 20 MB per container; systemd limits its journal. The doctor checks the limits.
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
    """What the user wants to see of a box's logs."""

    lines: int = 100  # the last so many of each log
    follow: bool = False  # then new lines, until the user stops it
    only: str = ""  # part of a log's name: other logs are left out; '' leaves out none


def script(home: str, wish: Wish) -> str:
    """The shell script that prints a box's logs, each line with the name of its log in front.

    It shows log files, the journals of Drafthouse's systemd units, and containers, whichever exist: a rented VM runs
    containers, a rented container does not. To follow several logs at once, each runs in the background; the script
    waits for them at its end.
    """
    follow_file, follow_container, in_background = ("-F", "-f", " &") if wish.follow else ("", "", "")
    patterns = " ".join(f"{shlex.quote(home)}/{pattern}" for pattern in LOG_FILES)
    list_containers = "; ".join(
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
  {{ tail -n {wish.lines} {follow_file} "$file" 2>/dev/null | prefixed "$name"; }}{in_background}
done
if [ -d /run/systemd/system ]; then
  for unit in $(systemctl list-unit-files --plain --no-legend '{UNITS}' 2>/dev/null | cut -d ' ' -f 1); do
    name=${{unit%.service}}
    if named "$name"; then
      {{ journalctl --quiet --no-pager --output cat --lines {wish.lines} {follow_container} --unit "$unit" |
         prefixed "$name"; }}{in_background}
    fi
  done
fi
if [ -S /var/run/docker.sock ]; then
  for name in $({list_containers}); do
    if named "$name"; then
      {{ docker logs --tail {wish.lines} {follow_container} "$name" 2>&1 | prefixed "$name"; }}{in_background}
    fi
  done
fi
wait
"""


@dataclass(frozen=True)
class Source:
    """A box: its name, and the command that prints its logs."""

    name: str
    command: list[str]


def source(name: str, hosts: Mapping[str, HostVars], home: str, wish: Wish, known_hosts: Path) -> Source:
    """The command for a host's logs: a local shell, or ssh. Raises DrafthouseError for invalid ssh variables."""
    text = script(home, wish)
    if hosts[name].get("ansible_connection") == "local":
        return Source(name, ["/bin/sh", "-c", text])
    return Source(name, remote(way_to(hosts, name, name), known_hosts, text, terminal=wish.follow))


def remote(way: Way, known_hosts: Path, text: str, *, terminal: bool) -> list[str]:
    """The ssh command line that runs the shell script ``text`` on a box.

    With a terminal the script ends with the connection. It runs under sudo where Ansible becomes root, as logs are
    readable by their owner only.
    """
    # Drafthouse's own options stand before those of the host, as ssh takes the first value of each.
    _, *login, target = way.ssh()
    return [
        *("ssh", "-tt" if terminal else "-T"),
        *options(way, known_hosts),
        *login,
        *("--", target, f"{'sudo -n ' * way.sudo}/bin/sh -c {shlex.quote(text)}"),
    ]
