"""Show a report as one small row to paste into an issue: Markdown, with the same as JSON folded below it.

Examples:
  drafthouse share                       (the newest of all)
  drafthouse share cpu-smollm2-ngram~1 --json

The row holds numbers, words of the shipped catalogue, versions and names of cards. Of hosts, users, paths, profiles,
keys, commands, prompts and answers it holds nothing. Models that you added are "not in the catalogue".
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..analysis.gates import TITLES
from ..core.exit_codes import DONE
from ..core.places import ROOT
from ..core.yaml_documents import read_yaml
from ..profiles.catalog import MODELS_FILE, load_house
from ..profiles.catalog_types import ModelEntry
from ..prompts.loader import load_suite
from ..report.archive import find, newest_of_all, read_kept
from ..report.share import Known, markdown, row_of
from .main import version
from .parser import Parser, parser_of, reports_option

#: The suites of this release; a person's own may lie beside them.
SUITES = (
    *("agents", "articles", "conversation", "creative", "gates", "load", "long", "math", "mixed"),
    *("published", "tune"),
)


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "share")
    parser.add_argument("report", nargs="?", help="a folder, or a name as for compare (default: the newest of all)")
    reports_option(parser)
    parser.add_argument(
        "--hub-names",
        action="store_true",
        help="name models that the catalogue lacks by their repository on the Hugging Face Hub",
    )
    parser.add_argument("--json", action="store_true", help="print the row alone, as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the row."""
    given = options().parse_args(argv)
    folder = find(given.reports, given.report, "REPORT") if given.report else newest_of_all(given.reports)
    row = row_of(read_kept(folder), known_words(), version(), hub_names=given.hub_names)
    print(json.dumps(row, indent=1) if given.json else markdown(row), end="\n" if given.json else "")
    return DONE


def known_words() -> Known:
    """Return what the shipped catalogue says, without the models that a person added."""
    models: dict[str, ModelEntry] = read_yaml(ROOT / MODELS_FILE, "the catalogue's models", "restore the file")
    engines = load_house(ROOT).engines
    suites = [load_suite(name, ROOT / "benchmarks", filled=False) for name in SUITES]
    return Known(
        {name: model["name"] for name, model in models.items()},
        {name: engine["name"] for name, engine in engines.items()},
        frozenset(method for engine in engines.values() for method in engine["methods"]),
        frozenset(kind for suite in suites for kind in suite["kinds"]),
        frozenset(TITLES),
    )
