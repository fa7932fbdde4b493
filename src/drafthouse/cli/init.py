"""Write an inventory of your own: a folder with your box in hosts.yml, and its settings in group_vars/all.yml.

Examples:
  drafthouse init box                                 (this machine)
  drafthouse init box --ssh root@203.0.113.7:40022    (a box that you reach by SSH)
  drafthouse init box --profile rtx4090-gptoss20b-peagle

Both files are yours to change; their comments name what is set most often. Nothing that is there is overwritten. Every
verb takes the folder as --inventory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import jinja2

from ..core.errors import one_problem
from ..core.exit_codes import DONE
from ..core.files import replace_file
from ..core.places import ROOT
from ..core.plain_text import printable
from ..core.shell import shell_words
from .parser import Parser, parser_of
from .profile_arguments import inventory_of

_ADDRESS = re.compile(
    r"""(?:(?P<user>[A-Za-z_][\w.-]*)@)?
    (?P<host>[A-Za-z0-9][\w.-]*|\[[0-9A-Fa-f:.]+\])  # a name, an IPv4 address, or an IPv6 address in brackets
    (?::(?P<port>[0-9]{1,5}))?""",
    re.ASCII | re.VERBOSE,
)


def options() -> Parser:
    """The argument parser of `drafthouse init`."""
    parser = parser_of(__doc__, "init")
    parser.add_argument("folder", type=Path, help="folder to write, which is then the inventory's name")
    parser.add_argument(
        "--profile", default="cpu-smollm2-ngram", help="profile that the box serves (default: %(default)s, the demo)"
    )
    parser.add_argument("--ssh", metavar="USER@HOST:PORT", help="the box, by SSH (default: this machine)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write hosts.yml and group_vars/all.yml of the inventory."""
    args = options().parse_args(argv)
    folder: Path = args.folder.expanduser()
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        needed = "a name that is free, or an empty folder"
        do = "choose another name, or edit what is there"
        raise one_problem("file-exists", "something of this name", needed, do, str(folder))
    address = _address(args.ssh)
    inventory_of(args.profile)  # raises DrafthouseError for an unknown or broken profile
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT / "templates" / "init"),
        trim_blocks=True, keep_trailing_newline=True, autoescape=False,  # noqa: S701 (YAML; the values are quoted there)
    )  # fmt: skip
    for path in (folder / "hosts.yml", folder / "group_vars" / "all.yml"):
        replace_file(path, templates.get_template(f"{path.name}.j2").render(address, profile=args.profile), 0o644)
        print(path)
    named = shell_words([str(args.folder)])
    print(f"next: drafthouse run {args.profile} --inventory {named}")
    return DONE


def _address(text: str | None) -> dict[str, str | None]:
    """The groups of `_ADDRESS` in --ssh, None for a missing one; {} for this machine (``text`` is None).

    Raises DrafthouseError for a text of another form, or a port out of range.
    """
    if text is None:
        return {}
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"] or 22) < 65536:
        needed = "USER@HOST, HOST or USER@HOST:PORT"
        raise one_problem("invalid-option", f"'{printable(text)}'", needed, "correct it", "--ssh")
    return {**match.groupdict(), "host": match["host"].strip("[]")}
