#!/usr/bin/env python3
"""Counts of the code's size and density, and a refusal of what grew.

    scripts/structure.py              the counts beside their limits, which may only fall
    scripts/structure.py --rooms      the same, room by room
    scripts/structure.py --worst 20   the statements that hold the most comprehensions and conditional expressions

Size is counted in lines of every tracked text file outside tests, docs and data, and in Python tokens without comments:
both are blind to folding and to width. `make lint` calls it. That no file but its own names an engine is held by
tests/unit/repository/test_engine_names.py.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from _clone import parser_of, run

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.core.exit_codes import DONE
from drafthouse.core.table import aligned
from drafthouse.profiles.workspace import ROOT

#: The most lines of a Python file, so that it can be read in one sitting.
MOST_LINES = 600
#: The most that there may be of each count. They fall; a new feature raises them in a commit that says so.
LIMITS = {
    "product lines": 104_192,
    "Python tokens": 540_665,
    "Python test lines": 86_990,
    "untyped mappings": 144,
    "comprehensions": 1_497,
    "conditional expressions": 809,
    "statements holding three or more of the two": 0,
    "functions of more than 15 branches": 0,
    "functions of more than 60 lines": 0,
}
#: Files that do not count as product: tests, docs, and data, which nobody writes or reads as code.
TESTS = "tests/*"
DOCS = ("docs/*", "*.md", "LICENSE", "*.png", "*.svg")
DATA = (
    "benchmarks/*",  # prompts
    "profiles/catalog/models.yml",
    "profiles/catalog/published.yml",
    "profiles/catalog/flags/*",  # what engines accept, written by scripts/engine_flags.py
    "profiles/catalog/old_flags*",
    "*packages.txt",  # locks, written by scripts/lock.py
    "*requirements*",
    "*/uv.txt",
    "*.lock",
    "*dashboard.json",  # Grafana's own format
    "*schema.json",
    "community/*",  # readings of other machines
    "evidence/*",
    "*.tar.gz",
    "*.whl",
)
#: Tokens that do not count, such as line ends and indentation. A docstring counts as one token.
SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
UNTYPED = re.compile(r"\b(?:dict|Mapping|MutableMapping)\[str, (?:Any|object)\]")
#: Relative imports for type checkers. Ansible packs whatever a relative import names into a module, even these.
SENT_FOR_NOTHING = re.compile(r"^if TYPE_CHECKING:\n(?:(?:    .*)?\n)*?    from \.", re.MULTILINE)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
BRANCHES = (
    ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.BoolOp, ast.comprehension, ast.match_case,
)  # fmt: skip


def main() -> int:
    """Print the counts. Raises DrafthouseError if one is above its limit."""
    parser = parser_of(__doc__)
    parser.add_argument("--rooms", action="store_true", help="show the counts of each room too")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="show the N statements that hold the most")
    given = parser.parse_args()
    files = tracked_files()
    for name, count in counts_of(files).items():
        print(f"{count:9,} of {LIMITS[name]:9,}  {name}")
    if given.rooms:
        print("\n" + rooms_table(files))
    if given.worst:
        for held, place in worst_statements(files)[: given.worst]:
            print(f"{held:3} {place}")
    if problems := problems_of(files):
        raise DrafthouseError(problems)
    return DONE


def tracked_files() -> dict[str, str]:
    """Texts of all product files and Python tests by their paths in the clone; no links, nothing binary."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files: dict[str, str] = {}
    for name in filter(None, listed.split("\0")):
        path = Path(ROOT, name)
        is_test = fnmatchcase(name, TESTS)
        if not path.is_file() or path.is_symlink() or (is_test and not name.endswith(".py")):
            continue
        if not is_test and any(fnmatchcase(name, pattern) for pattern in (*DOCS, *DATA)):
            continue
        try:
            files[name] = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
    return files


def problems_of(files: Mapping[str, str]) -> list[Problem]:
    """Counts above their limits, files that are too long, and imports that Ansible would send to a box needlessly."""
    problems: list[Problem] = []
    for name, count in counts_of(files).items():
        if count > LIMITS[name]:
            do = "take some away; scripts/structure.py --rooms and --worst show where they are"
            problems.append(Problem("out-of-range", f"{count:,} {name}", f"at most {LIMITS[name]:,}", do))
    for path, text in product(files).items():
        lines = text.count("\n")
        if path.endswith(".py") and lines > MOST_LINES:
            do = "move one subject into another file"
            problems.append(Problem("out-of-range", f"{lines} lines", f"at most {MOST_LINES}", do, path))
        if path.startswith("src/") and SENT_FOR_NOTHING.search(text):
            found = "a relative import under TYPE_CHECKING"
            needed = "an absolute one, which Ansible does not pack into modules"
            problems.append(
                Problem("invalid-setting", found, needed, "write from drafthouse.ROOM.FILE import NAME", path)
            )
    return problems


def product(files: Mapping[str, str]) -> dict[str, str]:
    """The files that are not tests."""
    return {path: text for path, text in files.items() if not fnmatchcase(path, TESTS)}


def counts_of(files: Mapping[str, str]) -> Counter[str]:
    """Counts of all files, by the names of `LIMITS`."""
    counts = Counter(dict.fromkeys(LIMITS, 0))
    for path, text in files.items():
        counts.update(counts_of_file(path, text))
    return counts


@functools.cache
def counts_of_file(path: str, text: str) -> Counter[str]:
    """Counts of one file. Density is counted only in src/drafthouse."""
    lines = text.count("\n")
    if fnmatchcase(path, TESTS):
        return Counter({"Python test lines": lines})
    counts = Counter({"product lines": lines})
    if path.endswith(".py"):
        counts["untyped mappings"] = len(UNTYPED.findall(text))
    if path.endswith(".py") or text.startswith("#!/usr/bin/env python"):
        counts["Python tokens"] = tokens_in(text)
    if path.startswith("src/drafthouse/") and path.endswith(".py"):
        counts.update(density_of(text))
    return counts


def tokens_in(text: str) -> int:
    """Number of Python tokens of a text; 0 if it is not Python."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return 0
    return len([token for token in tokens if token.type not in SILENT])


def density_of(text: str) -> Counter[str]:
    """Comprehensions, conditional expressions, statements that hold many of them, and large functions of a text."""
    counts: Counter[str] = Counter()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, COMPREHENSIONS):
            counts["comprehensions"] += 1
        elif isinstance(node, ast.IfExp):
            counts["conditional expressions"] += 1
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if count_inside(node, BRANCHES) > 15:
                counts["functions of more than 15 branches"] += 1
            if (node.end_lineno or 0) - node.lineno + 1 > 60:
                counts["functions of more than 60 lines"] += 1
        if is_simple_statement(node) and count_inside(node, (*COMPREHENSIONS, ast.IfExp)) > 2:
            counts["statements holding three or more of the two"] += 1
    return counts


def is_simple_statement(node: ast.AST) -> bool:
    """True for a statement without a body: an assignment, a return, an expression."""
    return isinstance(node, ast.stmt) and not hasattr(node, "body")


def count_inside(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> int:
    """Nodes of these kinds in a node, itself counted."""
    return len([inner for inner in ast.walk(node) if isinstance(inner, kinds)])


def worst_statements(files: Mapping[str, str]) -> list[tuple[int, str]]:
    """Statements that hold three or more, the worst first: how many they hold, and path and line."""
    found: list[tuple[int, str]] = []
    for path, text in files.items():
        if not path.startswith("src/drafthouse/") or not path.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            held = count_inside(node, (*COMPREHENSIONS, ast.IfExp)) if isinstance(node, ast.stmt) else 0
            if held > 2 and isinstance(node, ast.stmt) and is_simple_statement(node):
                found.append((held, f"{path}:{node.lineno}"))
    return sorted(found, reverse=True)


def rooms_table(files: Mapping[str, str]) -> str:
    """A line for each room of src/drafthouse and each other folder, the most tokens first."""
    rooms: dict[str, Counter[str]] = {}
    for path, text in product(files).items():
        parts = Path(path).parts
        room = f"{parts[0]}/" if len(parts) > 1 else "(the clone itself)"
        if path.startswith("src/drafthouse/"):
            room = parts[2] if len(parts) > 3 else "drafthouse"
        counts = rooms.setdefault(room, Counter())
        counts.update(counts_of_file(path, text))
        counts["files"] += 1
    columns = ["files", *(name for name in LIMITS if name != "Python test lines")]
    head = ["room", "files", "lines", "tokens", "untyped", "compr.", "if-else", "3+", ">15 br.", ">60 lines"]
    rows = [head]
    for room, counts in sorted(rooms.items(), key=lambda item: -item[1]["Python tokens"]):
        rows.append([room, *(f"{counts[column]:,}" for column in columns)])
    return "\n".join(aligned(rows))


if __name__ == "__main__":
    run(main)
