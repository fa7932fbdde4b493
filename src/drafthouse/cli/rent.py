"""Rent the cheapest vast.ai box that satisfies a profile and wait until it runs. It destroys itself at its deadline.

Examples:
  drafthouse rent h100-llama33-draft3b --max-price 2.50 --hours 3
  drafthouse rent h100-llama33-draft3b --dry-run          (show offers, prices and the request; rent nothing)

The price that is compared with --max-price includes the box, its disk, and the plan's downloads spread over the hours.
The account key comes from VAST_API_KEY, ~/.config/vastai/vast_api_key or ~/.vast_api_key and is not sent to the box.
make destroy ends the rental. docs/vast.md describes what happens when something fails.

Exit status: 0 a box runs, or a dry run; 1 not confirmed; 2 no box (where, found, needed, do), with what still bills, if
anything does; 130 stopped by Ctrl-C or a signal, with nothing left billing. A second Ctrl-C while a box is being
destroyed is ignored; the next one leaves it and says so.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..cloud.vast.body import body_of
from ..cloud.vast.client import DEFAULT_URL, NO_KEY, VastClient, key_of_environment
from ..cloud.vast.destroy import StillBilling
from ..cloud.vast.instances import ssh_address
from ..cloud.vast.ledger import FILE, label_of, rentals
from ..cloud.vast.local_state import state_folder
from ..cloud.vast.offers import Limits, choices, none_fits, query_of
from ..cloud.vast.rent import Rented, Waits, World, rent, summary
from ..cloud.vast.run_and_destroy import by_the_ledger
from ..core.errors import DrafthouseError, one_problem
from ..core.exit_codes import DONE, FAILED, INTERRUPTED
from ..core.plain_text import printable
from ..profiles.workspace import resolved_profile, site_of_inventory
from .parser import Parser, parser_of
from .profile_arguments import have_entries, overrides, set_option
from .say import put, said_yes, say

if TYPE_CHECKING:
    from ..profiles.resolved_types import ResolvedProfile

PUBLIC_KEYS = ("id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub")
# A line of progress where the output is no terminal.
_QUIET_S = 30.0


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "rent")
    parser.add_argument("profile", help="profile name (listed by drafthouse profiles)")
    parser.add_argument("--max-price", type=positive, metavar="USD", help="maximum price per hour, everything included")
    parser.add_argument("--hours", type=positive, default=3.0, help="lifetime of the box (default: %(default)g)")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="show offers, prices and the request; rent nothing")
    parser.add_argument(
        "--inventory", default="vastai", help="inventory that defines the box's site (default: %(default)s)"
    )
    set_option(parser)
    parser.add_argument("--ssh-key", type=Path, metavar="FILE", help="public SSH key (default: from ~/.ssh)")
    parser.add_argument("--download-mbps", type=positive, default=Limits.download_mbps, help="minimum download rate")
    parser.add_argument(
        "--reliability", type=share, default=Limits.reliability, help="minimum, 0 to 1 (default: %(default)g)"
    )
    parser.add_argument("--unverified", action="store_true", help="also machines that vast.ai has not verified")
    parser.add_argument(
        "--wait-min", type=positive, default=Waits.boot_s / 60, help="maximum start time (default: %(default)g min)"
    )
    parser.add_argument(
        "--poll-s", type=positive, default=Waits.poll_s, help="polling interval (default: %(default)g s)"
    )
    parser.add_argument(
        "--look-s",
        type=positive,
        default=Waits.look_s,
        help="wait for the instance of an unanswered request (default: %(default)g s)",
    )
    return parser


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = options()
    given = parser.parse_args(argv)
    if given.max_price is None and not given.dry_run:
        parser.error("give --max-price (make rent PROFILE=... MAX_PRICE=2.50)")
    return given


def positive(text: str) -> float:
    """Return a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def share(text: str) -> float:
    """Return a number from 0 to 1."""
    value = positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 1")
    return value


def public_key(named: Path | None, home: Path) -> str:
    """Return the public key that the box is to let in.

    DrafthouseError where there is none, or a private one is named.
    """
    files = [named] if named else [home / ".ssh" / name for name in PUBLIC_KEYS]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise one_problem(
            "no-ssh-key",
            "no SSH public key",
            " or ".join(map(str, files)),
            "ssh-keygen -t ed25519, or name one: ARGS='--ssh-key FILE.pub'",
        )
    text = file.read_text("utf-8", errors="replace").strip()
    if "PRIVATE" in text or len(text.splitlines()) != 1 or not text.startswith(("ssh-", "ecdsa-", "sk-")):
        raise one_problem("no-ssh-key", "not a public key", "one line: ssh-ed25519 ...", "name the .pub", str(file))
    return text


class Show:
    """Prints lines that stay, and on a terminal one that changes."""

    def __init__(self) -> None:
        self._terminal, self._next = sys.stderr.isatty(), 0.0

    def line(self, text: str) -> None:
        """Print what stays."""
        lines = "\n".join(map(printable, text.splitlines()))
        put(("\r\x1b[K" if self._terminal else "") + lines + "\n", sys.stderr)

    def passing(self, text: str) -> None:
        """Show what the next line replaces; without a terminal a line every half minute."""
        if self._terminal:
            put(f"\r\x1b[K{printable(text)[:110]}", sys.stderr)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + _QUIET_S
            self.line(text)


def ask(question: str) -> bool:
    """Return whether a person at a terminal says yes."""
    said = said_yes(question)
    if said is None:
        raise one_problem(
            "not-confirmed",
            "stdin is not a terminal",
            "a confirmation, because this spends money",
            "make rent ... YES=1",
        )
    return said


def heed_signals() -> None:
    """Let a hang-up or a termination end like Ctrl-C: what was rented is ended first.

    Ctrl-C itself too: whoever starts a background job may have had it ignored.
    """

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, stop)


def dry_run(client: VastClient, resolved: ResolvedProfile, limits: Limits) -> None:
    """Print the offers and the request for the cheapest; rent nothing."""
    offers = client.offers(query_of(resolved, limits))
    found = choices(offers, resolved, limits)
    if not found:
        raise none_fits(offers, resolved, limits)
    deadline = int(client.clock.now() + limits.hours * 3600)
    body = body_of(resolved, label_of("0" * 10, deadline), deadline, limits.hours, client.url)
    say(summary(found, resolved, limits))
    print(f"\nwould send: PUT {client.url}/api/v0/asks/{found[0].number}/")
    print(json.dumps({**body, "onstart": "(below)"}, indent=2))
    print(f"\non start, the box runs:\n{body['onstart']}")
    print("nothing was rented")


def dry_run_without_key(resolved: ResolvedProfile, limits: Limits, url: str, why: DrafthouseError) -> None:
    """Print what the search would ask for, and how to give the key without which vast.ai shows no offers."""
    rental, (problem,) = resolved["rental"], why.problems
    cap = f"at most ${limits.max_price:g} an hour" if math.isfinite(limits.max_price) else "no cap was given"
    filters = ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in query_of(resolved, limits).items()
    )
    lines = [
        f"would look for: {rental['devices']} x {' or '.join(rental['vast_names'])}, {cap}, for {limits.hours:g} h",
        f"for {resolved['profile']}: disk {rental['disk_gb']} GB, download {rental['download_gb']:g} GB,"
        f" driver {rental['driver'] or 'any'} or newer, image {rental['image']}",
        f"\nwould send: POST {url}/api/v0/bundles/",
        f"{{\n{filters}\n}}",
        f"\nvast.ai shows offers and prices to accounts alone; no key stands in {problem.needed}",
        f"to see them: {problem.do}",
        "nothing was asked, and nothing was rented",
    ]
    say("\n".join(lines))


def rented(box: Rented, profile: str) -> str:
    """Return what to do with a box that runs."""
    row = box.row
    host, port = ssh_address(row) or ("?", "?")
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(box.deadline))
    return "\n".join(
        [
            f"instance {box.instance} runs: {row.get('num_gpus')} x {row.get('gpu_name')}, label {box.label}",
            f"costs      ${box.price.hour:.3f} an hour with disk and traffic, ${box.price.total:.2f} until {until},"
            " when it ends itself (where its own key may only stop it, its disk stays billed)",
            f"SSH        ssh -p {port} root@{host}",
            f"measure    ansible-playbook site.yml -i vastai -e profile={profile}",
            f"end it     make destroy   (only this one: make destroy ARGS={box.id})",
        ]
    )


def stopped(asked: Sequence[str]) -> int:
    """Return the exit status of a run that was stopped; StillBilling where something of it is open in the ledger."""
    ledger = state_folder() / FILE
    known = rentals(ledger) if asked else {}
    left = [known[one] for one in asked if one in known and known[one].is_open]
    if left:
        raise StillBilling(by_the_ledger(ledger, left))
    put("stopped; nothing of this run bills (make destroy ARGS=--list shows what else does)\n", sys.stderr)
    return INTERRUPTED


def main(argv: Sequence[str] | None = None) -> int:
    """Rent, or show what would be rented."""
    given = arguments(argv)
    heed_signals()
    asked: list[str] = []
    try:
        return act(given, asked)
    except KeyboardInterrupt:
        return stopped(asked)


def act(given: argparse.Namespace, asked: list[str]) -> int:
    """Do what is asked for; the ids of what was announced at the ledger go to ``asked``."""
    have_entries(given.profile, given.set)
    resolved = resolved_profile(given.profile, site_of_inventory(given.inventory), overrides(given.set))
    limits = Limits(
        math.inf if given.max_price is None else given.max_price,
        given.hours,
        given.download_mbps,
        given.reliability,
        verified=not given.unverified,
    )
    show = Show()
    query_of(resolved, limits)  # what is wrong with the profile is said before a key is asked for
    url = os.environ.get("VAST_URL") or DEFAULT_URL
    try:
        key = key_of_environment(os.environ, Path.home())
    except DrafthouseError as error:
        if not given.dry_run or error.problems[0].code != NO_KEY:
            raise
        dry_run_without_key(resolved, limits, url, error)
        return DONE
    client = VastClient(key, url, tell=show.line)
    if given.dry_run:
        dry_run(client, resolved, limits)
        return DONE
    world = World(
        client,
        state_folder() / FILE,
        show.line,
        show.passing,
        (lambda question: True) if given.yes else ask,
        asked=asked,
    )
    waits = Waits(boot_s=given.wait_min * 60, poll_s=given.poll_s, look_s=given.look_s)
    box = rent(world, resolved, limits, public_key(given.ssh_key, Path.home()), waits)
    if box is None:
        show.line("nothing was rented")
        return FAILED
    say(rented(box, given.profile))
    return DONE
