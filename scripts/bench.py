#!/usr/bin/env python3
"""Measure an OpenAI-compatible server: speed, latency, and how much of its speculation is accepted.

Example:
  scripts/bench.py --base-url http://127.0.0.1:8000 --model qwen --num-prompts 10 --max-concurrency 4 \
      --output-tokens 120 --result out.json

With --ladder 1,2,4,8 (or --rate, --time) it measures level after level, and the result is the ladder: kept after
every step, so that the same command goes on where it was stopped.

The table goes to standard output, progress to standard error, the result (field names of `vllm bench
serve`, and every raw request) to --result. The key is read from OPENAI_API_KEY or --api-key-file, never
from the command line.

Exit status: 0 when all requests were measured; 1 when some were not, which are named first and counted apart, or when
the second opinion failed; 2 when nothing was measured, or on a problem (found, needed, do); 3 when a program for the
second opinion is missing here; 130 on Ctrl-C. What had ended until then, or until the server or this program stood
still (2), is shown and written all the same, marked as incomplete (docs/exit-codes.md).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import _ladder
import _second_opinion
from _clone import parser_of

from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.result_types import ArmResult, StepResult
from drafthouse.bench.results import assemble, not_well, summary_lines
from drafthouse.bench.standstill import StoodStill
from drafthouse.bench.step import run_step
from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.core.exit_codes import DONE, FAILED, INTERRUPTED, WARNED, of_error
from drafthouse.core.kept_file import write_whole
from drafthouse.core.progress import Event
from drafthouse.prompts.formats import FORMATS
from drafthouse.prompts.loader import load_suite
from drafthouse.prompts.suite_types import Suite
from drafthouse.prompts.suites import only_kinds, pick, with_output_tokens

ROOT = Path(__file__).resolve().parent.parent

#: Seconds between two lines of progress where the output is no terminal.
QUIET_S = 5.0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = parser_of(__doc__)
    server = parser.add_argument_group("server")
    server.add_argument("--base-url", required=True, help="with or without /v1")
    server.add_argument("--model", required=True, help="the name under which it is served")
    server.add_argument("--metrics-url", help="where the engine's counters are (default: BASE-URL/metrics)")
    server.add_argument("--api-key-file", type=Path, help="a file with the key (default: OPENAI_API_KEY)")
    work = parser.add_argument_group("work")
    work.add_argument(
        "--suite",
        default="mixed",
        help="a suite's name, or a file of prompts: a suite in YAML, JSON lines "
        "or a JSON list (OpenAI messages, vLLM's custom {\"prompt\": ...}, ShareGPT, Spec-Bench's question.jsonl), or "
        "plain text, a prompt a line (default: mixed)",
    )
    work.add_argument(
        "--dataset-format", choices=FORMATS, help="what the file is (default: told by its content, not by its name)"
    )
    work.add_argument("--kind", action="append", default=[], help="only this kind of the suite (may be repeated)")
    work.add_argument(
        "--num-prompts",
        type=positive,
        help="take this many, evenly from the kinds, and send them as one group; where a suite of ours has fewer, "
        "synthetic ones of the same kinds fill up; without it each kind is measured by itself, with all of its prompts",
    )
    work.add_argument("--output-tokens", type=positive, help="for every prompt (default: each kind's own)")
    work.add_argument("--max-concurrency", type=positive, default=1, help="requests at a time (default: 1)")
    work.add_argument("--rounds", type=positive, default=1, help="how often everything is sent (default: 1)")
    work.add_argument("--num-warmups", type=count, help="unmeasured requests first (default: MAX-CONCURRENCY)")
    work.add_argument("--temperature", type=float, default=0.0, help="default: 0")
    work.add_argument("--seed", type=int, default=0, help="of the requests, and of synthetic prompts (default: 0)")
    work.add_argument("--ignore-eos", action="store_true", help="ask for the full output length (vLLM, llama.cpp)")
    work.add_argument("--timeout", type=float, default=600.0, help="seconds for one request (default: 600)")
    _ladder.add_options(parser)
    _second_opinion.add_options(parser)
    parser.add_argument("--result", type=Path, help="write the result here, as JSON")
    return parser.parse_args(argv)


def positive(text: str) -> int:
    """Return a whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def count(text: str) -> int:
    """Return a whole number, 0 or more."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return number


def read_key(path: Path | None) -> str | None:
    """Return the key from its file or the environment. Raises DrafthouseError when the file cannot be read."""
    if path is None:
        return os.environ.get("OPENAI_API_KEY") or None
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError as error:
        raise DrafthouseError(
            Problem(str(error), "a file with the key", "correct the path or the file's rights", "--api-key-file")
        ) from error


def check_before(options: argparse.Namespace) -> None:
    """Raise DrafthouseError with all that would only fail after the measurement, or fail unclearly."""
    problems = []
    if not options.base_url.startswith(("http://", "https://")):
        problems.append(Problem(options.base_url, "an address", "write it like http://127.0.0.1:8000", "--base-url"))
    if options.result and not options.result.parent.is_dir():
        problems.append(Problem(f"no folder {options.result.parent}", "a folder to write to", "create it", "--result"))
    if _ladder.wanted(options) and _second_opinion.wanted(options):
        problems.append(
            Problem("a second opinion beside a ladder", "one of them", "ask for it at one level", "--client")
        )
    if problems:
        raise DrafthouseError(problems)
    _second_opinion.check_before(options)


class Progress:
    """Shows how far it is: one changing line on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.next_s = 0.0

    def __call__(self, event: Event) -> None:
        """Show one event of `measure_step`."""
        now = time.monotonic()
        last = event["done"] == event["total"]
        if not (self.terminal or last or now >= self.next_s):
            return
        self.next_s = now + QUIET_S
        left = f", about {event['eta_s']:.0f} s left" if event["eta_s"] and not last else ""
        line = f"{event['phase']}: {event['done']}/{event['total']}  {event['text']}{left}"
        print(f"\r\x1b[K{line}" if self.terminal else line, end="" if self.terminal else "\n", file=sys.stderr)
        sys.stderr.flush()

    def close(self) -> None:
        """End the changing line."""
        if self.terminal:
            print(file=sys.stderr)


def what_is_sent(options: argparse.Namespace) -> tuple[Endpoint, Suite]:
    """Return the server and the prompts. Raises DrafthouseError."""
    check_before(options)
    endpoint = Endpoint("single", options.base_url, options.model, read_key(options.api_key_file), options.metrics_url)
    suite = only_kinds(load_suite(options.suite, ROOT / "benchmarks", form=options.dataset_format), options.kind)
    if options.output_tokens:
        suite = with_output_tokens(suite, options.output_tokens)
    if options.num_prompts:
        suite = pick(suite, options.num_prompts, options.seed)
    return endpoint, suite


def step_from(options: argparse.Namespace) -> StepOptions:
    """Return how the one step is measured."""
    return StepOptions(
        concurrency=options.max_concurrency,
        rounds=options.rounds,
        temperatures=(options.temperature,),
        seed=options.seed,
        timeout_s=options.timeout,
        warmups=options.num_warmups,
        ignore_eos=options.ignore_eos,
    )


def measure(options: argparse.Namespace, endpoint: Endpoint, suite: Suite) -> tuple[ArmResult, int]:
    """Measure, and return the result and DONE; of what had ended, marked as incomplete, and why it is not all.

    That is INTERRUPTED after Ctrl-C, FAILED where something stood still.
    """
    progress = Progress()
    stopped: list[StepResult] = []
    notes, ended = list(suite.get("notes", [])), DONE
    try:
        step = run_step(
            [endpoint],
            [suite],
            step_from(options),
            progress,
            stopped.append,
        )
    except (KeyboardInterrupt, StoodStill) as error:
        if not stopped or not stopped[0]["arms"][endpoint.arm]["requests"]:
            raise
        step = stopped[0]
        ended = INTERRUPTED
        if isinstance(error, StoodStill):
            ended = FAILED
            notes.append(error.problems[0].found)
    finally:
        progress.close()
    result = assemble([step], endpoint.arm)
    return result | {"notes": [*result["notes"], *notes]}, ended


def second_opinion(
    options: argparse.Namespace, result: ArmResult, more: _second_opinion.More, endpoint: Endpoint, suite: Suite
) -> int:
    """Print what other tools say beside ``result``, and add it to ``more``; return the exit code."""
    if not _second_opinion.wanted(options):
        return DONE
    try:
        print("\n".join(["", *_second_opinion.run(options, result, more, endpoint, suite, step_from(options))]))
    except DrafthouseError as error:
        print(error, file=sys.stderr)
        return WARNED
    except KeyboardInterrupt:
        print("stopped; the result has no second opinion", file=sys.stderr)
        return INTERRUPTED
    return DONE


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, show and write the result; return the exit code."""
    options = parse(argv)
    try:
        endpoint, suite = what_is_sent(options)
        if _ladder.wanted(options):
            return _ladder.run(options, endpoint, suite)
        result, ended = measure(options, endpoint, suite)
    except DrafthouseError as error:
        print(error, file=sys.stderr)
        return of_error(error)
    except KeyboardInterrupt:
        print("stopped before the first request had ended; nothing was written", file=sys.stderr)
        return INTERRUPTED
    print("\n".join([*summary_lines(result), *(f"Note: {note}." for note in result["notes"])]))
    more: _second_opinion.More = {}
    if result["incomplete"]:
        code = ended
    elif not result["completed"]:
        code = FAILED
    else:
        asked = second_opinion(options, result, more, endpoint, suite)
        code = asked or (WARNED if not_well(result) else DONE)
    if options.result:
        try:
            write_whole(options.result, json.dumps({**result, **more}, indent=1) + "\n")
        except DrafthouseError as error:
            print(error, file=sys.stderr)
            return of_error(error)
        print(f"\nresult: {options.result}")
    if result["incomplete"]:
        print("stopped; what had ended until then is above, marked as incomplete", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
