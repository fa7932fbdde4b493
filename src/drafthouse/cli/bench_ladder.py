"""The load sweep ("ladder") of `drafthouse bench`: its options, live table and run, for one server at rising load."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from ..bench.client import Endpoint
from ..bench.instruments import ladder_readers
from ..bench.sweep.ladder_types import LadderStep
from ..bench.sweep.plan import LadderPlan, heading
from ..bench.sweep.recovery import ServerWatch
from ..bench.sweep.run import run_ladder
from ..bench.sweep.store import BAD, OK, LadderFile
from ..bench.sweep.text import ladder_lines, live_lines, step_line
from ..core.errors import one_problem
from ..core.exit_codes import DONE, FAILED, INTERRUPTED
from ..core.progress import Event
from ..prompts.contexts import at_contexts
from ..prompts.load_levels import CLOSED, NARROW, OPEN, SECONDS, read_levels, read_rates
from ..prompts.suite_types import Suite

#: Seconds between two lines of progress where standard error is no terminal.
QUIET_S = 10.0

Parsed = TypeVar("Parsed")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the load sweep to the parser of `drafthouse bench`."""
    load = parser.add_argument_group("load", "any of these runs a load sweep; --result is then the sweep's file")
    levels = load.add_mutually_exclusive_group()
    levels.add_argument(
        "--ladder", type=_argument_type(read_levels), metavar="LEVELS", help="concurrency levels: 1,2,4,8 or to:16"
    )
    levels.add_argument(
        "--rate",
        type=_argument_type(read_rates),
        metavar="RATES",
        help="request rates per second at random arrival times (open loop): 0.5,1,2",
    )
    load.add_argument(
        "--contexts",
        type=_argument_type(read_levels),
        metavar="TOKENS",
        help="measure each kind behind texts of these lengths: 1024,8192",
    )
    load.add_argument("--time", type=_above_0, metavar="S", help=f"maximum seconds per step (default: {SECONDS:g})")
    load.add_argument(
        "--narrow",
        type=_above_0,
        metavar="SHARE",
        help=f"end a step once half its 95 %% interval is this share of the TPOT (default: {NARROW:g})",
    )
    load.add_argument(
        "--limit-ttft", type=_above_0, metavar="MS", help="maximum TTFT of a request that counts as goodput"
    )
    load.add_argument(
        "--limit-tpot", type=_above_0, metavar="MS", help="maximum TPOT of a request that counts as goodput"
    )
    load.add_argument(
        "--again",
        action="store_true",
        help="measure the broken and polluted steps of --result again",
    )


def _argument_type(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """``parse`` as the type of an argument: a ValueError is raised in the form whose text argparse shows."""

    def parse_argument(text: str) -> Parsed:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse_argument


def _above_0(text: str) -> float:
    """A finite number above 0, as an argument's type."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def is_ladder(options: argparse.Namespace) -> bool:
    """True if an option of the load sweep is given, which makes this run a ladder."""
    names = ("ladder", "rate", "contexts", "time", "narrow", "limit_ttft", "limit_tpot")
    return any(getattr(options, name) is not None for name in names)


def plan_from(options: argparse.Namespace, kinds: tuple[str, ...]) -> LadderPlan:
    """The plan of the ladder. Without --ladder and --rate its one level is --max-concurrency.

    ``kinds``: the prompts' categories. Raises DrafthouseError where the levels are given twice.
    """
    if (options.ladder or options.rate) and options.max_concurrency != 1:
        raise one_problem(
            "conflicting-options",
            f"{options.max_concurrency} together with --ladder or --rate",
            "one definition of the levels",
            "leave it out",
            "--max-concurrency",
        )
    limits = {"ttft_ms": options.limit_ttft, "tpot_ms": options.limit_tpot}
    return LadderPlan(
        load=OPEN if options.rate else CLOSED,
        levels=tuple(options.rate or options.ladder or [options.max_concurrency]),
        kinds=tuple(at_contexts(kinds, options.contexts or ())),
        rounds=tuple(range(1, options.rounds + 1)),
        of_rounds=options.rounds,
        seconds=options.time or SECONDS,
        narrow=options.narrow or NARROW,
        limits={name: limit for name, limit in limits.items() if limit is not None},
        temperature=options.temperature,
        seed=options.seed,
        ignore_eos=options.ignore_eos,
        timeout_s=options.timeout,
    )


def key_of(endpoint: Endpoint, suite: Suite, plan: LadderPlan) -> str:
    """A hash of server, model, prompts and settings, without the API key; only a ladder with this key is resumed."""
    inputs = [endpoint.root, endpoint.model, suite, sorted(vars(plan).items())]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()[:16]


class LiveTable:
    """The growing table on standard error: redrawn in place on a terminal, else a line for each finished step.

    ``load``: CLOSED or OPEN, as in the plan.
    """

    def __init__(self, file: LadderFile, load: str) -> None:
        self.file = file
        self.load = load
        self.terminal = sys.stderr.isatty()
        self.drawn_lines = 0  # on the terminal
        self.next_s = time.monotonic() + QUIET_S

    def progress(self, event: Event) -> None:
        """Show the running step and the time left; without a terminal only every `QUIET_S` seconds."""
        if self.terminal:
            size = shutil.get_terminal_size()
            lines = live_lines(self.file.data, event, size.columns, size.lines)
            self.clear()
            print("\n".join(lines), file=sys.stderr, flush=True)
            self.drawn_lines = len(lines)
        elif time.monotonic() >= self.next_s:
            self.next_s = time.monotonic() + QUIET_S
            # Without the finished steps, which were printed already; 400 columns, so that no line is broken.
            lines = live_lines(self.file.data | {"steps": []}, event, 400, 24)
            print("; ".join(lines), file=sys.stderr, flush=True)

    def step(self, step: LadderStep) -> None:
        """Print a finished step; on a terminal the next redraw shows it in the table."""
        if not self.terminal:
            print(step_line(step, self.load), file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Erase the drawn table from the terminal."""
        if self.drawn_lines:
            print(f"\x1b[{self.drawn_lines}F\x1b[J", end="", file=sys.stderr, flush=True)
            self.drawn_lines = 0


def run(options: argparse.Namespace, endpoint: Endpoint, suite: Suite) -> int:
    """Measure, save and print the ladder; return the exit status, FAILED where no step was measured."""
    plan = plan_from(options, tuple(suite["kinds"]))
    with ExitStack() as stack:
        # Without --result too, the ladder needs a file: it is kept until the table was printed.
        path = options.result or Path(stack.enter_context(tempfile.TemporaryDirectory()), "ladder.json")
        head = heading(plan, profile=None, key=key_of(endpoint, suite, plan))  # a single server has no profile
        file = LadderFile(path, head, BAD if options.again else ())
        for note in suite.get("notes", []):
            file.note(note)
        live = LiveTable(file, plan.load)
        stopped = False
        try:
            readers = stack.enter_context(ladder_readers([endpoint]))
            run_ladder(
                [endpoint],
                [suite],
                plan,
                file,
                watch=ServerWatch([endpoint]),
                readers=readers,
                on_progress=live.progress,
                on_step=live.step,
            )
        except KeyboardInterrupt:
            stopped = True
        finally:
            live.clear()
        table_stream = sys.stderr if options.json else sys.stdout
        print("\n".join(ladder_lines(file.data)), file=table_stream)
        if options.json:
            print(json.dumps(file.data, indent=1))
        advice = ""
        if options.result and path.exists():
            print(f"\nresult: {options.result}", file=table_stream)
            advice = "; the same command measures what is missing"
        if stopped:
            print(f"stopped; what was measured is above{advice}", file=sys.stderr)
            return INTERRUPTED
        if any(step["status"] == OK for step in file.data["steps"]):
            return DONE
        return FAILED
