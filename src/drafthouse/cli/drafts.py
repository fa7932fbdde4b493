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
from ..profiles.catalog import House
from ..profiles.expected_speed import expected_words
from ..profiles.model_names import find_model, model_named
from ..profiles.workspace import house_for
from .parser import Parser, parser_of, print_json, records

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import Hardware

_COLUMNS = ("kind", "draft", "why")


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
    house = house_for()  # the catalogue and the profiles
    key = model_named(args.model, house, "MODEL")
    if house.models[key]["kind"] == "head":
        found, do = f"'{key}', which is a head", f"drafthouse drafts {house.models[key].get('head_for', 'MODEL')}"
        raise one_problem("target-is-a-draft", found, "a model", do, "MODEL")
    rows = drafts_for(house, key)
    if args.gpu:
        gains = _gains(house, key, hardware_of_catalogue(args.gpu, house))
        rows = [(kind, draft, f"{why}{gains.get(draft, '')}") for kind, draft, why in rows]
    if args.json:
        print_json("drafts", {"target": key, "drafts": records(_COLUMNS, rows)})
    elif rows:
        print(table(_COLUMNS, rows))
    else:
        print(f"the catalogue has no draft for {key}: drafthouse model add adds one; n-gram needs none")
    return DONE


def _gains(house: House, target: str, card: str) -> dict[str, str]:
    """The expected speed-up on a card by draft, as text to append; only drafts with a published acceptance rate."""
    hardware: Hardware = {"id": card, **house.hardware[card]}
    gains: dict[str, str] = {}
    for profile in published(house, target):
        if draft := find_model(profile["speculation"].get("draft", ""), house.models):
            gains[draft] = f"; {expected_words(expected_there(house, profile, hardware))}"
    return gains
