"""List the models of the catalogue: targets and what may draft for them, or only those that fit a card.

Examples:
  drafthouse models
  drafthouse models --gpu 2x3090

Another model is added with `drafthouse model add`. Memory is that of `drafthouse fits`, for a context of 8,192 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.exit_codes import DONE
from ..core.table import table
from ..models.fits import drafts_for, engine_for, fitting
from ..profiles.catalog import Catalog
from ..profiles.memory_fit import GB
from ..profiles.workspace import catalog_for
from .fits import cards_for
from .parser import Parser, parser_of, print_json, records

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import HardwareEntry

_CONTEXT = 8192  # tokens: the default of `drafthouse fits`


def options() -> Parser:
    """The argument parser of `drafthouse models`."""
    parser = parser_of(__doc__, "models")
    parser.add_argument("--gpu", help="only targets that fit: hardware of the catalogue (rtx6000, 2x3090), or 24GB")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the models as a table or as JSON, without heads: a head is a draft network made for one target."""
    args = options().parse_args(argv)
    catalog = catalog_for()  # the catalogue and the profiles
    cards = cards_for(args.gpu, catalog) if args.gpu else {}
    rows = []
    for name, entry in sorted(catalog.models.items()):
        if entry["kind"] != "head" and _fits(catalog, name, cards):
            rows.append((name, *_row(catalog, name)))
    if args.json:
        print_json("models", {"models": records(("name", "model", "gb", "context", "drafts"), rows)})
        return DONE
    cells = [
        [name, model, f"{gb:.1f} GB", f"{context:,}", ", ".join(drafts)] for name, model, gb, context, drafts in rows
    ]
    print(table(["name", "model", "weights", "context", "drafts"], cells))
    print("\nnext: drafthouse fits NAME, or drafthouse new --target NAME --gpu CARD; any other: drafthouse model add")
    return DONE


def _row(catalog: Catalog, name: str) -> tuple[str, float, int, list[str]]:
    """A model's full name, weights (GB), longest context (tokens), and the two drafts with the best evidence."""
    model = catalog.models[name]
    drafts = []
    for kind, draft, _reason in drafts_for(catalog, name)[:2]:
        drafts.append("its own head" if kind == "builtin" else draft)  # builtin: a head inside the target
    return model["name"], round(model["weight_bytes"] / GB, 1), model["context"], drafts


def _fits(catalog: Catalog, name: str, cards: dict[str, HardwareEntry]) -> bool:
    """True if the model fits one of the cards with `_CONTEXT` tokens, or its own limit; without cards always."""
    if not cards:
        return True
    model = catalog.models[name]
    engine = engine_for(catalog, model)
    context = min(_CONTEXT, model["context"])
    return any(fitting(model, engine, key, card, context).longest >= context for key, card in cards.items())
