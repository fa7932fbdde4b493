"""The options of drafthouse bench for a second opinion, and what they do."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TypedDict

from ..analysis.legacy_metrics import old_lines, old_tables
from ..bench.client import Endpoint
from ..bench.external.clients import SecondOpinion, comparison_lines, find_program, second_opinion, tool_named
from ..bench.external.formats import TOOLS
from ..bench.groups import StepOptions
from ..bench.result_types import ArmResult
from ..prompts.suite_types import Suite


class More(TypedDict, total=False):
    """What is kept beside a result because the options asked for it."""

    second_opinion: SecondOpinion
    old_columns: object


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("second opinion")
    group.add_argument("--client", choices=tuple(TOOLS), help="also send the same requests with this tool and compare")
    group.add_argument("--client-home", type=Path, help="environment that contains the tool (default: PATH)")
    group.add_argument("--client-tokenizer", help="tokenizer folder or Hub name, for a tool that counts tokens itself")
    group.add_argument("--client-keep", type=Path, help="keep the tool's result files in this folder")
    group.add_argument(
        "--old-columns",
        action="store_true",
        help="show the columns of llmperf and llm-speed-benchmark for these requests, with their known errors",
    )


def check_before(options: argparse.Namespace) -> None:
    """Raise DrafthouseError with what would only fail after the measurement."""
    if options.client:
        find_program(tool_named(options.client), options.client_home)
        if options.client_keep:
            options.client_keep.mkdir(parents=True, exist_ok=True)


def wanted(options: argparse.Namespace) -> bool:
    """Return whether any of the options was given."""
    return bool(options.client or options.old_columns)


def run(
    options: argparse.Namespace, result: ArmResult, more: More, endpoint: Endpoint, suite: Suite, step: StepOptions
) -> list[str]:
    """Do what the options ask for beside ``result``, add it to ``more``, and return the lines to print.

    Raises DrafthouseError.

    ``suite`` is what was sent to ``endpoint`` for ``result``, and ``step`` how.
    """
    lines: list[str] = []
    if options.client:
        opinion = second_opinion(
            tool_named(options.client),
            endpoint,
            [suite],
            step,
            result,
            home=options.client_home,
            tokenizer=options.client_tokenizer,
            keep=options.client_keep,
            tell=lambda text: print(f"second opinion: {text}", file=sys.stderr),
        )
        more["second_opinion"] = opinion
        lines += comparison_lines(opinion)
    if options.old_columns:
        more["old_columns"] = old_tables(result)
        lines += [*([""] if lines else []), *old_lines(result)]
    return lines
