"""Show what may draft for a model: draft models, heads, and the head inside it, best evidence first.

Examples:
  drafthouse drafts gpt-oss-120b
  drafthouse drafts qwen3-32b --gpu rtx6000     (with what each is expected to gain there)

Methods without a draft (n-gram, suffix) work for every model and are not listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.errors import one_problem
from ..core.exit_codes import DONE
from ..core.table import table
from ..models.fits import drafts_for, expected_there, hardware_of_catalogue, published
from ..profiles.catalog import Catalog
from ..profiles.expected_speed import expected_words
from ..profiles.model_names import find_model, model_named
from ..profiles.workspace import catalog_for
from .parser import Parser, parser_of, print_json, records

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import Hardware

# Kinds of drafts: a smaller model; a head (a draft network made for one target); "builtin", a head inside the target.
_COLUMNS = ("kind", "draft", "why")
_CONTEXT = 2048  # tokens: the least with which `drafthouse new` writes a profile


def options() -> Parser:
    """The argument parser of `drafthouse drafts`."""
    parser = parser_of(__doc__, "drafts")
    parser.add_argument("model", metavar="MODEL", help="an entry of the catalogue, or its repository")
    parser.add_argument(
        "--gpu", help="hardware of the catalogue: adds the speed-up to expect, where an acceptance is known"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the drafts of the model as a table or as JSON."""
    args = options().parse_args(argv)
    catalog = catalog_for()  # the catalogue and the profiles
    target = model_named(args.model, catalog, "MODEL")
    if catalog.models[target]["kind"] == "head":
        do = f"drafthouse drafts {catalog.models[target].get('head_for', 'MODEL')}"
        raise one_problem("target-is-a-draft", f"'{target}', which is a head", "a model", do, "MODEL")
    rows = drafts_for(catalog, target)
    if args.gpu:
        gains = _expected_gains(catalog, target, hardware_of_catalogue(args.gpu, catalog))
        rows = [(kind, draft, f"{why}{gains.get(draft, '')}") for kind, draft, why in rows]
    if args.json:
        print_json("drafts", {"target": target, "drafts": records(_COLUMNS, rows)})
    elif rows:
        print(table(_COLUMNS, rows))
    else:
        print(f"the catalogue has no draft for {target}: drafthouse model add adds one; n-gram needs none")
    return DONE


def _expected_gains(catalog: Catalog, target: str, hardware_id: str) -> dict[str, str]:
    """By draft, the expected speed-up on a hardware, as text to append to the reason why the draft is listed.

    Only of drafts with a published acceptance rate: without one, no speed-up can be computed.
    """
    hardware: Hardware = {"id": hardware_id, **catalog.hardware[hardware_id]}
    gains: dict[str, str] = {}
    # Where several profiles have the same draft, the last one counts, as in `drafts_for`.
    for profile in published(catalog, target):
        if draft := find_model(profile["speculation"].get("draft", ""), catalog.models):
            expected = expected_there(catalog, profile, hardware, _CONTEXT)
            gains[draft] = f"; {expected_words(expected)}" if expected else "; no room for both there"
    return gains
