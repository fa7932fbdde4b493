"""Judge two result files, without and with speculation, of any benchmark client.

BASELINE and SPECULATIVE are a file, a folder, or several runs (a1.json,a2.json). A file that holds several arms takes
the name of one: results.json#ngram. Read by content: vllm bench serve, SGLang's bench_serving, GuideLLM, AIPerf,
llama.cpp's server (answers with timings), llama-bench, llama-benchy, drafthouse bench, and CSV or JSON lines with named
columns (docs/judge.md).

Examples:
  drafthouse judge without.json with.json
  drafthouse judge a1.json,a2.json b1.json,b2.json --kinds code,chat
  drafthouse judge table.csv#baseline table.csv#draft --html verdict.html

Exit status: 0 pays or does not pay; 1 the same with warnings; 2 invalid, or a file has no result; 4 cannot say
(docs/exit-codes.md).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ..core.errors import one_problem
from ..core.files import replace_file
from ..core.places import ROOT
from ..core.table import terminal_columns
from ..report.data.build import exit_code_of
from ..report.from_files import judge_files
from ..report.terminal import NARROWEST, WIDEST, verdict_table
from .parser import Parser, coloured, parser_of


def options() -> Parser:
    """The argument parser of `drafthouse judge`."""
    parser = parser_of(__doc__, "judge")
    parser.add_argument("baseline", metavar="BASELINE", help="results without speculation")
    parser.add_argument("speculative", metavar="SPECULATIVE", help="results with speculation")
    parser.add_argument("--kinds", default="", metavar="KIND,…", help="kinds of prompt that the verdict is about")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", nargs="?", type=Path, const=Path("judge.html"), metavar="FILE",
                      help="write the report as one page (default: judge.html)")  # fmt: skip
    form.add_argument("--markdown", action="store_true", help="print the report as Markdown")
    form.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the two files, and print or write the report; return the exit status."""
    args = options().parse_args(argv)
    kinds = [kind.strip() for kind in args.kinds.split(",") if kind.strip()]
    report = judge_files(args.baseline, args.speculative, kinds)
    if args.json:
        print(json.dumps(report, indent=1, ensure_ascii=False))
        return exit_code_of(report)
    if args.markdown or args.html:
        from ..report.writer import render_html, render_markdown  # noqa: PLC0415 (jinja2, for these forms alone)

        if args.markdown:
            print(render_markdown(report, ROOT / "templates"), end="")
            return exit_code_of(report)
        try:
            replace_file(args.html, render_html(report, ROOT / "templates").encode("utf-8", "replace"), 0o644)
        except OSError as error:
            found = error.strerror or str(error)
            do = "choose another --html"
            raise one_problem("file-unwritable", found, "a writable folder", do, str(args.html)) from error
    width = terminal_columns(NARROWEST, WIDEST)
    print(verdict_table(report, width=width, colour=coloured(sys.stdout)), end="")
    if args.html:
        print(f"report: {args.html}")
    return exit_code_of(report)
