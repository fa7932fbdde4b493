"""Show what may draft for a model: draft models, heads, and the head inside it, best evidence first.

Example:
  drafthouse drafts gpt-oss-120b

Methods without a draft (n-gram, suffix) work for every model and are not listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.errors import one_problem
from ..core.exit_codes import DONE
from ..core.table import table
from ..models.fits import drafts_for
from ..profiles.model_names import model_named
from ..profiles.workspace import house_for
from .parser import Parser, parser_of, print_json


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "drafts")
    parser.add_argument("model", metavar="MODEL", help="an entry of the catalogue, or its repository")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    given = options().parse_args(argv)
    house = house_for()
    key = model_named(given.model, house, "MODEL")
    if house.models[key]["kind"] == "head":
        found, do = f"'{key}', which is a head", f"drafthouse drafts {house.models[key].get('head_for', 'MODEL')}"
        raise one_problem("target-is-a-draft", found, "a model", do, "MODEL")
    rows = drafts_for(house, key)
    if given.json:
        names = ("kind", "draft", "why")
        print_json("drafts", {"target": key, "drafts": [dict(zip(names, row, strict=True)) for row in rows]})
    elif rows:
        print(table(["kind", "draft", "why"], rows))
    else:
        print(f"the catalogue has no draft for {key}: drafthouse model add adds one; n-gram needs none")
    return DONE
