"""Rent the cheapest vast.ai boxes that satisfy a profile and wait until they run. Each destroys itself at its deadline.

Examples:
  drafthouse rent h100-llama33-draft3b --max-price 2.50 --hours 3
  drafthouse rent h100-llama33-draft3b --dry-run          (show offers, prices and the request; rent nothing)
  drafthouse rent h100-llama33-draft3b --boxes 4 --max-total 9 --region same --all-or-nothing

The price that is compared with --max-price (each box) and --max-total (all of this run) includes the box, its disk, and
the plan's downloads spread over the hours. Several boxes are always on different machines.
The account key comes from VAST_API_KEY, ~/.config/vastai/vast_api_key or ~/.vast_api_key and is not sent to the box.
make destroy ends all rentals. docs/vast.md describes what happens when something fails.

Exit status: 0 all boxes run, or a dry run; 1 not confirmed; 2 no box, or fewer than asked for (where, found, needed,
do), with what bills, if anything does; 130 stopped by Ctrl-C or a signal, with nothing left billing. A second Ctrl-C
while boxes are being destroyed is ignored; the next one leaves them and says so.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..cloud.vast.attempt import Rented, RentSetup, Waits
from ..cloud.vast.body import body_of
from ..cloud.vast.client import DEFAULT_URL, NO_KEY, VastClient, key_of_environment
from ..cloud.vast.destroy import StillBilling
from ..cloud.vast.first_contact import ssh_answers
from ..cloud.vast.fleet import Fleet, caps_text, summary
from ..cloud.vast.instances import ssh_address
from ..cloud.vast.ledger import FILE, label_of, rentals
from ..cloud.vast.local_state import state_folder
from ..cloud.vast.offers import MOST_OFFERS, Limits, query_of
from ..cloud.vast.rent import offers_to_rent, rent
from ..cloud.vast.run_and_destroy import by_the_ledger
from ..core.errors import DrafthouseError, one_problem
from ..core.exit_codes import DONE, FAILED, INTERRUPTED
from ..core.foreground import signals_as_ctrl_c
from ..core.places import INSTALLED
from ..core.plain_text import printable
from ..profiles.inventory_variables import NEW, site_on
from ..profiles.workspace import resolved_profile
from .parser import Parser, parser_of
from .profile_arguments import add_missing_entries, overrides, set_option
from .say import confirmed, say, write_now

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile

PUBLIC_KEYS = ("id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub")  # in ~/.ssh; the first that exists is used
# Seconds between two lines of progress where standard error is no terminal.
_QUIET_S = 30.0
SAME = ("same",)  # of --region: all boxes in one country, whichever that is


def options() -> Parser:
    """The argument parser of `drafthouse rent`."""
    parser = parser_of(__doc__, "rent")
    parser.add_argument("profile", help="profile name (listed by drafthouse profiles)")
    parser.add_argument(
        "--max-price", type=positive, metavar="USD", help="maximum price per hour of each box, everything included"
    )
    parser.add_argument(
        "--max-total", type=positive, metavar="USD", help="maximum price per hour of all boxes together"
    )
    parser.add_argument("--boxes", type=quantity, default=1, metavar="N", help="number of boxes (default: %(default)s)")
    parser.add_argument(
        "--region",
        type=countries,
        default=(),
        metavar="CODES",
        help="two-letter country codes (SE or SE,NO), or 'same': all boxes in one country",
    )
    parser.add_argument(
        "--all-or-nothing", action="store_true", help="destroy all boxes of this run if one cannot be rented"
    )
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
        "--reliability", type=fraction, default=Limits.reliability, help="minimum, 0 to 1 (default: %(default)g)"
    )
    parser.add_argument("--unverified", action="store_true", help="also machines that vast.ai has not verified")
    parser.add_argument(
        "--wait-min", type=positive, default=Waits.boot_s / 60, help="maximum start time (default: %(default)g min)"
    )
    parser.add_argument(
        "--ssh-wait-min",
        type=minutes_or_0,
        default=Waits.ssh_s / 60,
        help="maximum wait for SSH on a running box, 0: do not wait (default: %(default)g min)",
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
    """The parsed arguments, with a price limit unless nothing is rented."""
    parser = options()
    args = parser.parse_args(argv)
    if args.max_price is None and args.max_total is None and not args.dry_run:
        parser.error("give --max-price or --max-total (make rent PROFILE=... MAX_PRICE=2.50)")
    return args


def positive(text: str) -> float:
    """A number above 0 and below a million, as an argument's type; inf and nan are refused too."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def minutes_or_0(text: str) -> float:
    """A number of minutes, 0 included, as an argument's type."""
    return 0.0 if text == "0" else positive(text)


def fraction(text: str) -> float:
    """A fraction above 0 and up to 1, as an argument's type."""
    value = positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 1")
    return value


def quantity(text: str) -> int:
    """A number of boxes, not more than the offers of one search, as an argument's type."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_OFFERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MOST_OFFERS}")
    return int(text)


def countries(text: str) -> tuple[str, ...]:
    """Two-letter country codes, or `SAME`, as an argument's type."""
    if text.strip().lower() == SAME[0]:
        return SAME
    codes = tuple(map(str.strip, text.upper().split(",")))
    if not all(len(code) == 2 and code.isascii() and code.isalpha() for code in codes):
        raise argparse.ArgumentTypeError(f"{text!r} is neither 'same' nor two-letter country codes (SE,NO)")
    return codes


def public_key(named: Path | None, home: Path) -> str:
    """The public SSH key that the box will accept: the text of the file ``named``, else the first in ~/.ssh.

    Raises DrafthouseError where no file exists, or where the file holds no public key.
    """
    files = [home / ".ssh" / name for name in PUBLIC_KEYS]
    if named:
        files = [named]
    file = next(filter(Path.is_file, files), None)
    if file is None:
        raise one_problem(
            "no-ssh-key",
            "no SSH public key",
            " or ".join(map(str, files)),
            "ssh-keygen -t ed25519, or name one: ARGS='--ssh-key FILE.pub'",
        )
    text = file.read_text("utf-8", errors="replace").strip()
    # The text is sent to vast.ai, so a private key that was named by mistake must be recognised.
    if "PRIVATE" in text or len(text.splitlines()) != 1 or not text.startswith(("ssh-", "ecdsa-", "sk-")):
        raise one_problem("no-ssh-key", "not a public key", "one line: ssh-ed25519 ...", "name the .pub", str(file))
    return text


class Show:
    """Progress on standard error: lines that stay, and on a terminal one status line that is overwritten."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._next_status = 0.0  # the next status line is printed from then on, on `time.monotonic`

    def line(self, text: str) -> None:
        """Print lines that stay."""
        lines = "\n".join(map(printable, text.splitlines()))
        if self._terminal:
            lines = f"\r\x1b[K{lines}"
        write_now(f"{lines}\n", sys.stderr)

    def status(self, text: str) -> None:
        """Overwrite the status line of a terminal; elsewhere print a line, but at most one in `_QUIET_S` seconds."""
        if self._terminal:
            write_now(f"\r\x1b[K{printable(text)[:110]}", sys.stderr)  # cut: a line that wraps is not overwritten
        elif time.monotonic() >= self._next_status:
            self._next_status = time.monotonic() + _QUIET_S
            self.line(text)


def ask(question: str) -> bool:
    """True if the user confirms. Raises DrafthouseError where stdin is no terminal, so that nobody can."""
    answer = confirmed(question)
    if answer is None:
        raise one_problem(
            "not-confirmed",
            "stdin is not a terminal",
            "a confirmation, because this spends money",
            "make rent ... YES=1",
        )
    return answer


def dry_run(setup: RentSetup, resolved: ResolvedProfile, limits: Limits, fleet: Fleet) -> None:
    """Print the offers, and the request that would rent the cheapest; rent nothing."""
    client = setup.client
    offers = offers_to_rent(setup, resolved, limits, fleet)
    deadline = int(client.clock.now() + limits.hours * 3600)
    placeholder_id = "0" * 10  # the rental's id is drawn only when one is rented
    body = body_of(resolved, label_of(placeholder_id, deadline), deadline, limits.hours, client.url)
    say(summary(offers, resolved, limits, fleet))
    print()
    for offer in offers[: fleet.boxes]:
        print(f"would send: PUT {client.url}/api/v0/asks/{offer.number}/")
    if fleet.boxes > 1:
        print("each with its own label:")
    print(json.dumps({**body, "onstart": "(below)"}, indent=2))
    print(f"\non start, the box runs:\n{body['onstart']}")
    print("nothing was rented")


def dry_run_without_key(
    resolved: ResolvedProfile, limits: Limits, fleet: Fleet, url: str, why: DrafthouseError
) -> None:
    """Print the search that would be sent, and from ``why`` how to give the key that vast.ai requires for it."""
    rental = resolved["rental"]
    (problem,) = why.problems
    boxes = f"{fleet.boxes} boxes of " if fleet.boxes > 1 else ""
    filters = ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in query_of(resolved, limits).items()
    )
    lines = [
        f"would look for: {boxes}{rental['devices']} x {' or '.join(rental['vast_names'])}, {caps_text(limits, fleet)},"
        f" for {limits.hours:g} h",
        f"for {resolved['profile']}: disk {rental['disk_gb']} GB, download {rental['download_gb']:g} GB,"
        f" driver {rental['driver'] or 'any'} or newer, image {rental['image']}",
        f"\nwould send: POST {url}/api/v0/bundles/",
        f"{{\n{filters}\n}}",
        f"\nvast.ai shows offers and prices only to accounts; no key is in {problem.needed}",
        f"to see them: {problem.do}",
        "no request was sent, and nothing was rented",
    ]
    say("\n".join(lines))


def rented_text(boxes: Sequence[Rented], profile: str) -> str:
    """The rented boxes, their cost ($), and the commands to measure on them and to destroy them, as text."""
    hour = math.fsum(box.price.hour for box in boxes)
    total = math.fsum(box.price.total for box in boxes)
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(max(box.deadline for box in boxes)))
    ending = "it ends itself (if its own key may only stop it, its disk stays billed)"
    which = "this one"
    if len(boxes) > 1:
        ending = "they end themselves (if their own keys may only stop them, their disks stay billed)"
        which = "one"
    measure = f"ansible-playbook site.yml -i vastai -e profile={profile}"
    if INSTALLED:
        measure = f"drafthouse run {profile}"
    return "\n".join(
        [
            *map(_box_lines, boxes),
            f"costs      ${hour:.3f} an hour with disk and traffic, ${total:.2f} until {until}, when {ending}",
            f"measure    {measure}",
            f"end        make destroy   (only {which}: make destroy ARGS={boxes[0].instance})",
        ]
    )


def _box_lines(box: Rented) -> str:
    """A box as two lines of text: what it is and costs, and how to reach it by SSH."""
    host, port = ssh_address(box.row) or ("?", "?")
    return (
        f"instance {box.instance} runs: {box.row.get('num_gpus')} x {box.row.get('gpu_name')},"
        f" ${box.price.hour:.3f} an hour, label {box.label}\nSSH        ssh -p {port} root@{host}"
    )


def status_of_stop(announced: Sequence[str]) -> int:
    """The exit status after Ctrl-C. Raises StillBilling where a rental with one of these ids is still open.

    ``announced``: the rental ids of this run. `rent` has already destroyed what it could when this is called.
    """
    ledger = state_folder() / FILE
    by_id = rentals(ledger) if announced else {}
    still_open = [by_id[rental] for rental in announced if rental in by_id and by_id[rental].is_open]
    if still_open:
        raise StillBilling(by_the_ledger(ledger, still_open))
    write_now("stopped; nothing of this run is billing (make destroy ARGS=--list shows what else does)\n", sys.stderr)
    return INTERRUPTED


def main(argv: Sequence[str] | None = None) -> int:
    """Rent boxes, or show what would be rented."""
    args = arguments(argv)
    announced: list[str] = []
    try:
        with signals_as_ctrl_c():
            return act(args, announced)
    except KeyboardInterrupt:
        return status_of_stop(announced)


def _conditions(args: argparse.Namespace) -> tuple[Fleet, Limits]:
    """What the arguments ask of all boxes together, and of each offer."""
    one_country = args.region == SAME
    fleet = Fleet(
        boxes=args.boxes,
        max_total=args.max_total or math.inf,
        one_country=one_country,
        all_or_nothing=args.all_or_nothing,
    )
    limits = Limits(
        # One box may not cost more than all boxes together may.
        max_price=min(args.max_price or math.inf, fleet.max_total),
        hours=args.hours,
        download_mbps=args.download_mbps,
        reliability=args.reliability,
        verified=not args.unverified,
        countries=() if one_country else args.region,
    )
    return fleet, limits


def act(args: argparse.Namespace, announced: list[str]) -> int:
    """Rent, or make a dry run; return the exit status.

    The ids of the rentals written to the ledger are added to ``announced``. A dry run needs no key: without one it
    shows the search alone.
    """
    add_missing_entries(args.profile, args.set, args.inventory)
    site, inventory_overrides = site_on(args.inventory, NEW)  # NEW: a host that the inventory does not have yet
    # --set replaces the overrides of the inventory, as for all verbs (`profile_arguments.resolved`).
    resolved = resolved_profile(args.profile, site, overrides(args.set) or inventory_overrides)
    fleet, limits = _conditions(args)
    show = Show()
    query_of(resolved, limits)  # an error of the profile is raised before a key is required
    url = os.environ.get("VAST_URL") or DEFAULT_URL
    try:
        key = key_of_environment(os.environ, Path.home())
    except DrafthouseError as error:
        if not args.dry_run or error.problems[0].code != NO_KEY:
            raise
        dry_run_without_key(resolved, limits, fleet, url, error)
        return DONE
    setup = RentSetup(
        VastClient(key, url, tell=show.line),
        ledger=state_folder() / FILE,
        tell=show.line,
        show_progress=show.status,
        ask=(lambda question: True) if args.yes else ask,
        ssh_answers=partial(ssh_answers, state_folder() / "known_hosts"),
        announced=announced,
    )
    if args.dry_run:
        dry_run(setup, resolved, limits, fleet)
        return DONE
    waits = Waits(boot_s=args.wait_min * 60, ssh_s=args.ssh_wait_min * 60, poll_s=args.poll_s, look_s=args.look_s)
    key_text = public_key(args.ssh_key, Path.home())
    outcome = rent(setup, resolved, limits, public_key=key_text, waits=waits, fleet=fleet)
    if outcome is None:
        show.line("nothing was rented")
        return FAILED
    say(rented_text(outcome.boxes, args.profile))
    if outcome.short:
        raise outcome.short
    return DONE
