#!/usr/bin/env python3
r"""Write src/drafthouse/core/gitleaks_rules.py from gitleaks' own config/gitleaks.toml.

The file comes from a clone of https://github.com/gitleaks/gitleaks:

    scripts/gitleaks_rules.py ../gitleaks/config/gitleaks.toml --version v8.30.1 --commit b58d3f10 --date 2026-07-22

gitleaks' patterns are RE2's, as Go has it; Python's `re` reads them otherwise in five places, which are rewritten:
flags in the middle of a group ((?i), which hold to the group's end), [[:alnum:]], \z, $ (the very end, not the last
line's), and \s, \w and \b (ASCII). Two things are made to suit a text from which secrets go, rather than a look for
them: what stands before a vendor's name is not matched, and a token ends where no letter of one follows, not only at
a blank or quote.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomllib
from _clone import parser_of, run

from drafthouse.core.errors import DrafthouseError, Problem, one_problem
from drafthouse.core.exit_codes import DONE
from drafthouse.profiles.workspace import ROOT

TARGET = ROOT / "src/drafthouse/core/gitleaks_rules.py"
#: Rules that are not taken over, and why.
LEFT_OUT = {
    "generic-api-key": "redact.py reads names itself; this one takes counts of tokens and tokenizers",
    "private-key": "redact.py has it, with keys that a log's end cut through",
    "jwt": "redact.py has it, with shorter ones",
    "curl-auth-header": "redact.py has it; a step over five lines takes re quadratic time",
    "curl-auth-user": "redact.py has it; a step over five lines takes re quadratic time",
    "kubernetes-secret-yaml": "redact.py has it, with every value of the block",
    "nuget-config-password": "redact.py has it: a value beside a name in XML",
    "hashicorp-tf-password": "redact.py has it: a name with a value",
    "freemius-secret-key": "redact.py has it: a name with a value",
    "sidekiq-sensitive-url": "redact.py has it: a password in a URL",
    "sourcegraph-access-token": "40 hexadecimal digits are every commit's name; redact.py has its prefix",
    "pkcs12-file": "a file's name, and no text",
}
_LEAD = r"[\w.-]{0,50}?"
_TAIL = r"""(?:[ \t\w.-]{0,20})[\s'"]{0,3}"""
_IS = r"""(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}"""
_ENDS = (
    r"""(?:[\x60'"\s;]|\\[nr]|$)""",
    r"""(?:[\x60'"\s;]|\\[nr]|$|\b)""",
    r"(?:[^\w-]|\z)",
    r"(?:[^a-zA-Z0-9+/]|\z)",
)
_WIDTH = 110  # of a line's pattern


def main() -> int:
    """Read the rules, and write those that can run."""
    parser = parser_of(__doc__)
    parser.add_argument("file", type=Path, help="gitleaks.toml")
    for name in ("version", "commit", "date"):
        parser.add_argument(f"--{name}", required=True, help=f"the {name} that it is of")
    given = parser.parse_args()
    try:
        rules = tomllib.loads(given.file.read_text("utf-8"))["rules"]
    except (OSError, ValueError, KeyError) as error:
        problem = Problem(
            "file-malformed", f"no rules in {given.file}: {error}", "gitleaks' config/gitleaks.toml", "name that file"
        )
        raise DrafthouseError(problem) from None
    TARGET.write_text(_page(rules, given), "utf-8")
    print(f"written: {TARGET.relative_to(ROOT)}")
    return DONE


def _page(rules: list[Mapping[str, Any]], given: argparse.Namespace) -> str:
    taken = [rule for rule in rules if rule["id"] not in LEFT_OUT]
    lines = [
        f'"""gitleaks\' rules as data: {len(taken)} of its {len(rules)}, as Python\'s re reads them.',
        "",
        "Written by scripts/gitleaks_rules.py, which says what it rewrites and leaves out; change that instead.",
        f"Source: https://github.com/gitleaks/gitleaks, config/gitleaks.toml, {given.version},",
        f"commit {given.commit} of {given.date}. Licence: MIT, Copyright (c) 2019 Zachary Rice:",
        "",
        *textwrap.wrap(_LICENSE, 110),
        '"""',
        "",
        "# fmt: off",
        "#: The rule, the least entropy of what it finds (bits a character; 0: any), the words of which one",
        "#: must be there, and its pattern, in which vendor_tokens.py fills in {START}, {TAIL}, {IS} and {END}.",
        "RULES: tuple[tuple[str, float, str, str], ...] = (",
    ]
    for rule in taken:
        words = " ".join(rule["keywords"])
        if any(" " in word for word in rule["keywords"]):
            raise one_problem("file-malformed", f"a keyword with a blank: {rule['id']}", "words", "leave the rule out")
        lines.append(f'    ("{rule["id"]}", {float(rule.get("entropy", 0))}, "{words}",')
        lines += _literals(converted(rule["regex"], rule.get("secretGroup", 1)))
    return "\n".join([*lines, ")", ""])


def _literals(pattern: str) -> Iterator[str]:
    r"""Yield a pattern as raw literals, none of which ends with a backslash, and the end of its rule."""
    while len(pattern) > _WIDTH:
        at = _WIDTH
        while pattern[at - 1] == "\\":
            at -= 1
        yield f'     r"""{pattern[:at]}"""' if '"' in pattern[:at] else f'     r"{pattern[:at]}"'
        pattern = pattern[at:]
    # A quote at a literal's end would end it.
    yield f"     r'''{pattern}''')," if '"' in pattern else f'     r"{pattern}"),'


def converted(pattern: str, group: int = 1) -> str:
    """Return a pattern of RE2 as Python's `re` takes it; ``group`` is the number of the one that holds the secret."""
    pattern = pattern.replace(_LEAD, "").replace(_TAIL, "{TAIL}").replace(_IS, "{IS}")
    for end in _ENDS:
        pattern = pattern.replace(end, "{END}")
    body, at = _body(pattern, 0, iter([*[False] * (group - 1), *[True] * pattern.count("(")]))
    if at != len(pattern):
        raise one_problem("file-malformed", f"an unbalanced pattern: {pattern}", "one of RE2", "leave the rule out")
    return re.sub(r"(^|\||^\(\?i:|\|\(\?i:)\\b", r"\1{START}", body)


def _body(pattern: str, at: int, wanted: Iterator[bool]) -> tuple[str, int]:
    """Return what stands to the end of the group in which ``at`` is, and where that is.

    ``wanted``: of each group that is counted, whether it stays one; of those before the secret's own nothing is wanted.
    """
    said: list[str] = []
    flags: list[str] = []
    while at < len(pattern) and pattern[at] != ")":
        if inline := re.compile(r"\(\?(-?[a-z]+)\)").match(pattern, at):
            flags.append(f"(?{inline[1]}:")
            said.append(flags[-1])
            at = inline.end()
        elif pattern[at] == "(":
            opened = re.compile(r"\((?:\?P<\w+>|\?[a-z-]*:)?").match(pattern, at)
            assert opened
            dropped = "P<" in opened[0] or (opened[0] == "(" and not next(wanted))
            inner, at = _body(pattern, opened.end(), wanted)
            said += ["(?:" if dropped else opened[0], inner, ")"]
            at += 1
        elif pattern[at] == "[":
            found = re.compile(r"\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\]").match(pattern, at)
            assert found
            inner = found[0][1:-1].replace("[:alnum:]", "A-Za-z0-9").replace("[", r"\[")
            said.append(f"[{inner}]")
            at = found.end()
        elif pattern[at] == "\\":
            said.append({"\\z": r"\Z"}.get(pattern[at : at + 2], pattern[at : at + 2]))
            at += 2
        elif pattern[at] == "|":
            said.append(")" * len(flags) + "|" + "".join(flags))
            at += 1
        else:
            said.append(r"\Z" if pattern[at] == "$" else pattern[at])
            at += 1
    return "".join(said) + ")" * len(flags), at


_LICENSE = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without
limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the
Software, and to permit persons to whom the Software is furnished to do so, subject to the following
conditions: The above copyright notice and this permission notice shall be included in all copies or
substantial portions of the Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS
OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE
AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR
OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""

if __name__ == "__main__":
    run(main)
