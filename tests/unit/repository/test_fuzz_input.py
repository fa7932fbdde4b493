"""Bad input of every kind through the programs that read it, in this one process: no traceback, none hidden either.

FUZZ_SEED=7 draws other cases, FUZZ_CASES=5000 more of them; a failure prints the number that
`PYTHONPATH=src:collections:. python -m tests.fuzz --seed SEED --cases CASES --only NUMBER` runs alone.
"""

from __future__ import annotations

import ast
import os
import random
from pathlib import Path

import pytest

from drafthouse.cli import prune
from drafthouse.profiles.workspace import ROOT
from tests.fuzz.clone import call, make_clone, moved_to
from tests.fuzz.runner import kinds_of, series

FIXED = 16


def run(folder: Path, cases: int, seed: int, slow: float = 1.0) -> None:
    broken = list(series(folder, seed, kinds_of(cases, slow)))
    shown = "\n\n".join(map(str, broken[:10]))
    assert not broken, f"seed {seed}, {cases} cases: {len(broken)} broken\n{shown}"


@pytest.mark.processes  # what a case makes a script start is refused there, and counted
def test_a_hundred_cases_of_one_seed(tmp_path: Path) -> None:
    run(tmp_path, 100, FIXED, slow=0.3)


@pytest.mark.soak
def test_thousands_of_cases_of_any_seed(tmp_path: Path) -> None:
    seed = int(os.environ.get("FUZZ_SEED") or random.SystemRandom().randrange(10**6))
    cases = int(os.environ.get("FUZZ_CASES") or 4000)
    print(f"FUZZ_SEED={seed} FUZZ_CASES={cases}")
    run(tmp_path, cases, seed)


def test_a_profile_that_cannot_be_read_keeps_weights_from_being_pruned(tmp_path: Path) -> None:
    clone = make_clone(tmp_path / "clone")
    (clone / "profiles" / "mine.yml").write_bytes(b"target: caf\xe9\n")
    (tmp_path / "models").mkdir()
    with moved_to(clone):
        ended = call(prune.main, ["--remove", "--models-dir", str(tmp_path / "models")])
    assert ended.code == 2
    assert "where: profiles/mine.yml: line 1, column 12" in ended.err


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def catching_all(tree: ast.AST) -> list[int]:
    """Lines that take any error for their own and go on: bare, `Exception` or `BaseException`, without a raise."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or {"Exception", "BaseException"} & names_in(node.type))
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    ]  # fmt: skip


def test_no_door_hides_a_traceback() -> None:
    doors = sorted([*(ROOT / "scripts").glob("*.py"), *(ROOT / "src/drafthouse/cli").glob("*.py")])
    assert doors
    assert {path.name: lines for path in doors if (lines := catching_all(ast.parse(path.read_text("utf-8"))))} == {}


def test_the_look_for_such_doors_finds_one() -> None:
    assert catching_all(ast.parse("try:\n    main()\nexcept (OSError, Exception):\n    print('internal error')\n")) == [
        3
    ]
    assert catching_all(ast.parse("try:\n    main()\nexcept BaseException:\n    tidy()\n    raise\n")) == []
