r"""Measure an OpenAI-compatible server: speed, latency and acceptance of speculative tokens.

Example:
  drafthouse bench --base-url http://127.0.0.1:8000 --model qwen --num-prompts 10 --max-concurrency 4 \
      --output-tokens 120 --result out.json

--ladder 1,2,4,8 (or --rate, --time) runs a load sweep. Its result is saved after every step, and the same command
resumes a stopped sweep.

The table goes to standard output, progress to standard error, the result (field names of `vllm bench serve`, and
every raw request) to --result. The key is read from OPENAI_API_KEY or --api-key-file, never from the command line.

Exit status: 0 all requests were measured; 1 some failed (they are listed and counted separately), or the server's
token counts contradict the text; 2 nothing was measured, the server or this program was stopped, or an error occurred
(found, needed, do); 130 Ctrl-C. Requests that finished before 130 or 2 are shown and written, marked as incomplete
(docs/exit-codes.md).
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..analysis.legacy_metrics import old_lines, old_table
from ..bench.client import Endpoint
from ..bench.groups import StepOptions
from ..bench.result_types import ArmResult, StepResult
from ..bench.results import assemble, not_ok_count, summary_lines
from ..bench.standstill import StoodStill
from ..bench.step import run_step
from ..bench.usage_check import arm_contradictions
from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.exit_codes import DONE, FAILED, INTERRUPTED, WARNED
from ..core.kept_file import write_whole
from ..core.places import ROOT
from ..core.plain_text import without_passwords
from ..core.progress import Event
from ..prompts.formats import FORMATS
from ..prompts.loader import load_suite
from ..prompts.suite_types import Suite
from ..prompts.suites import only_kinds, pick, with_output_tokens
from . import bench_ladder
from .parser import Parser, parser_of, positive

#: Seconds between two lines of progress where standard error is no terminal.
QUIET_S = 5.0
#: The server's name in results. An experiment has two arms here: "baseline" and "speculative".
ARM = "single"


def options() -> Parser:
    """The argument parser of `drafthouse bench`."""
    parser = parser_of(__doc__, "bench")
    server = parser.add_argument_group("server")
    server.add_argument("--base-url", required=True, help="server URL, with or without /v1")
    server.add_argument("--model", required=True, help="served model name")
    server.add_argument("--metrics-url", metavar="URL", help="URL of the engine's counters (default: BASE-URL/metrics)")
    server.add_argument("--ca", type=Path, metavar="FILE", help="trust only the certificates of this PEM file")
    server.add_argument("--api-key-file", type=Path, help="file with the API key (default: OPENAI_API_KEY)")
    work = parser.add_argument_group("work")
    work.add_argument(
        "--suite",
        default="mixed",
        help="suite name, or a file of prompts: a suite in YAML, JSON lines or a JSON list (OpenAI messages, vLLM's "
        'custom {"prompt": ...}, ShareGPT, Spec-Bench\'s question.jsonl), or plain text with one prompt per line '
        "(default: mixed)",
    )
    work.add_argument(
        "--dataset-format", choices=FORMATS, help="format of the file (default: detected from its content)"
    )
    work.add_argument("--kind", action="append", default=[], help="only this category of the suite (repeatable)")
    work.add_argument(
        "--num-prompts",
        type=positive,
        help="send this many prompts, evenly from the categories, as one group; if one of our suites has fewer, "
        "synthetic prompts of the same categories are added (default: all prompts, each category separately)",
    )
    work.add_argument("--output-tokens", type=positive, help="output length of every prompt (default: the category's)")
    work.add_argument("--max-concurrency", type=positive, default=1, help="concurrent requests (default: 1)")
    work.add_argument("--rounds", type=positive, default=1, help="number of rounds (default: 1)")
    work.add_argument(
        "--num-warmups", type=count, help="number of unmeasured warm-up requests (default: MAX-CONCURRENCY)"
    )
    work.add_argument("--temperature", type=float, default=0.0, help="sampling temperature (default: 0)")
    work.add_argument("--seed", type=int, default=0, help="seed of the requests and of synthetic prompts (default: 0)")
    work.add_argument(
        "--ignore-eos", action="store_true", help="always generate the full output length (vLLM, llama.cpp)"
    )
    work.add_argument("--timeout", type=float, default=600.0, help="timeout of a request in seconds (default: 600)")
    bench_ladder.add_options(parser)
    parser.add_argument(
        "--old-columns",
        action="store_true",
        help="show the columns of llm-speed-benchmark for these requests, with their known errors",
    )
    parser.add_argument("--result", type=Path, help="write the result to this file as JSON")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and the table to standard error")
    return parser


def count(text: str) -> int:
    """A whole number of 0 or more, as an argument's type."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return number


def read_key(path: Path | None) -> str | None:
    """The API key from the file ``path``, or without one from OPENAI_API_KEY; None if it is empty.

    Raises DrafthouseError for a file that cannot be read.
    """
    if path is None:
        return os.environ.get("OPENAI_API_KEY") or None
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError as error:
        raise one_problem(
            "api-key-unreadable",
            str(error),
            "a file with the key",
            "correct the path or the file's permissions",
            "--api-key-file",
        ) from error


def read_ca(path: Path | None) -> str | None:
    """The text of a PEM file of certificates; None without a file. Raises DrafthouseError (certificate-unreadable)."""
    if path is None:
        return None
    try:
        text = path.read_text("ascii")
        ssl.create_default_context(cadata=text)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise one_problem(
            "certificate-unreadable",
            str(error),
            "a PEM file with the server's certificate",
            "name the file that the gateway's setup printed",
            "--ca",
        ) from error
    return text


def check_before(args: argparse.Namespace) -> None:
    """Raise DrafthouseError for options that would fail only after the measurement, or with an unclear error."""
    problems = []
    if not args.base_url.startswith(("http://", "https://")):
        found = without_passwords(f"://{args.base_url}").removeprefix("://")  # passwords are recognised behind ://
        do = "write it like http://127.0.0.1:8000"
        problems.append(Problem("invalid-option", found, "an address", do, "--base-url"))
    if args.result and not args.result.parent.is_dir():
        problems.append(
            Problem("no-such-file", f"no folder {args.result.parent}", "a folder to write to", "create it", "--result")
        )
    if bench_ladder.is_ladder(args) and args.old_columns:
        problems.append(
            Problem(
                "conflicting-options",
                "the columns of older benchmarks together with a load sweep",
                "one of them",
                "request them for one level",
                "--old-columns",
            )
        )
    if problems:
        raise DrafthouseError(problems)


class Progress:
    """Progress on standard error: one line that is overwritten on a terminal, else a line every `QUIET_S` seconds."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.next_s = 0.0  # the next line is printed from then on, on `time.monotonic`

    def __call__(self, event: Event) -> None:
        """Show one event of `run_step`; the last event is always shown."""
        now = time.monotonic()
        is_last = event["done"] == event["total"]
        if not (self.terminal or is_last or now >= self.next_s):
            return
        self.next_s = now + QUIET_S
        line = f"{event['phase']}: {event['done']}/{event['total']}  {event['text']}"
        if event["eta_s"] and not is_last:
            line += f", about {event['eta_s']:.0f} s left"
        if self.terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Move to the next line of a terminal."""
        if self.terminal:
            print(file=sys.stderr)


def what_is_sent(args: argparse.Namespace) -> tuple[Endpoint, Suite]:
    """The server, and the suite of prompts to send to it. Raises DrafthouseError for invalid options."""
    check_before(args)
    endpoint = Endpoint(
        ARM,
        args.base_url,
        args.model,
        api_key=read_key(args.api_key_file),
        metrics_url=args.metrics_url,
        ca_pem=read_ca(args.ca),
    )
    # Without --num-prompts only the prompts of the suite's own file are sent, not those of the files it names.
    with_files = args.num_prompts is not None
    full_suite = load_suite(args.suite, ROOT / "benchmarks", form=args.dataset_format, with_files=with_files)
    suite = only_kinds(full_suite, args.kind)
    if args.output_tokens:
        suite = with_output_tokens(suite, args.output_tokens)
    if args.num_prompts:
        suite = pick(suite, args.num_prompts, args.seed)
    return endpoint, suite


def step_from(args: argparse.Namespace) -> StepOptions:
    """The measurement options of the single step."""
    return StepOptions(
        concurrency=args.max_concurrency,
        rounds=args.rounds,
        temperatures=(args.temperature,),
        seed=args.seed,
        timeout_s=args.timeout,
        warmups=args.num_warmups,
        ignore_eos=args.ignore_eos,
    )


def measure(args: argparse.Namespace, endpoint: Endpoint, suite: Suite) -> tuple[ArmResult, int]:
    """The result and DONE; for a stopped measurement the result so far, marked incomplete, and the exit status.

    That status is INTERRUPTED after Ctrl-C, FAILED where the server or this program was suspended.
    """
    progress = Progress()
    stopped: list[StepResult] = []
    notes = list(suite.get("notes", []))
    status = DONE
    try:
        # A step that is stopped is put into ``stopped`` before its exception is raised.
        step = run_step([endpoint], [suite], step_from(args), progress, stopped.append)
    except (KeyboardInterrupt, StoodStill) as error:
        if not stopped or not stopped[0]["arms"][endpoint.arm]["requests"]:
            raise  # no request had ended: there is nothing to show
        step = stopped[0]
        status = INTERRUPTED
        if isinstance(error, StoodStill):
            status = FAILED
            notes.append(error.problems[0].found)
    finally:
        progress.close()
    result = assemble([step], endpoint.arm)
    return result | {"notes": [*result["notes"], *notes]}, status


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, then print and save the result; return the exit status."""
    args = options().parse_args(argv)
    table_stream = sys.stderr if args.json else sys.stdout
    try:
        endpoint, suite = what_is_sent(args)
        if bench_ladder.is_ladder(args):
            return bench_ladder.run(args, endpoint, suite)
        result, stop_status = measure(args, endpoint, suite)
    except KeyboardInterrupt:
        print("stopped before the first request had ended; nothing was written", file=sys.stderr)
        return INTERRUPTED
    print("\n".join(summary_lines(result)), file=table_stream)
    for note in result["notes"]:
        print(f"Note: {note}.", file=table_stream)
    document: dict[str, object] = {**result}
    if args.old_columns:
        document["old_columns"] = old_table(result)
        print("\n".join(["", *old_lines(result)]), file=table_stream)
    text = json.dumps(document, indent=1)
    if args.json:
        print(text)
    if args.result:
        write_whole(args.result, f"{text}\n")
        print(f"\nresult: {args.result}", file=table_stream)
    if result["incomplete"]:
        print("stopped; what had ended by then is above, marked as incomplete", file=sys.stderr)
        return stop_status
    return status_of(result)


def status_of(result: ArmResult) -> int:
    """The exit status of a measurement that was not stopped."""
    if not result["completed"]:
        return FAILED
    if not_ok_count(result) or arm_contradictions(result):
        return WARNED
    return DONE
