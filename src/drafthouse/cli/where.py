"""Print where the playbooks and what is kept lie, one path: for ansible-playbook, a backup, a look.

Examples:
  drafthouse where                  (site.yml)
  drafthouse where config           (its ansible.cfg, which ansible-playbook needs too)
  drafthouse where state            (the folder of the ledger of rentals, of API keys and pins)

For example: ANSIBLE_CONFIG="$(drafthouse where config)" ansible-playbook "$(drafthouse where)" -i box -e profile=NAME
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.exit_codes import DONE
from ..core.places import PLAYS, STATE
from .deployment import ansible_config
from .parser import Parser, parser_of


def options() -> Parser:
    """The argument parser of `drafthouse where`."""
    parser = parser_of(__doc__, "where")
    parser.add_argument("what", nargs="?", choices=("site", "config", "state"), default="site", help="what to find")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the path of site.yml, of ansible.cfg, or of the state folder."""
    what = options().parse_args(argv).what
    if what == "state":
        print(STATE)
        return DONE
    config = ansible_config()  # for a wheel this also creates the folder of site.yml
    if what == "config":
        print(config)
    else:
        print(PLAYS / "site.yml")
    return DONE
