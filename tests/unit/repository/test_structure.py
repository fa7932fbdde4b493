"""Each limit of scripts/structure.py bites: a file is made worse by one, and exactly that count is refused."""

from __future__ import annotations

from types import ModuleType

import pytest

from drafthouse.profiles.workspace import ROOT

pytestmark = pytest.mark.processes  # git ls-files

ROOM = "src/drafthouse/core/retry.py"
LONG = "def long():\n" + "    print('one more line')\n" * 60
BRANCHING = "def branching(n):\n" + "    if n:\n        print(n)\n" * 16
DENSE = "VALUES = [[x for x in range(y)] for y in range(3)], 1 if ROOT else 2\n"


@pytest.fixture
def structure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, its limits at today's counts."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import structure

    monkeypatch.setattr(structure, "LIMITS", dict(structure.counts_of(structure.tracked_files())))
    return structure


@pytest.mark.parametrize(
    ("path", "more", "names"),
    [
        ("roles/serve/tasks/main.yml", "# one more\n", ["product lines"]),
        ("tests/unit/core/test_files.py", "# one more\n", ["Python test lines"]),
        ("scripts/targets.py", "VALUE = 1\n", ["product lines", "Python tokens"]),
        ("scripts/drafthouse", "VALUE = 1\n", ["product lines", "Python tokens"]),
        (ROOM, "VALUE: dict[str, Any]\n", ["product lines", "Python tokens", "untyped mappings"]),
        (ROOM, "VALUE = [x for x in y]\n", ["product lines", "Python tokens", "comprehensions"]),
        (ROOM, "VALUE = 1 if x else 2\n", ["product lines", "Python tokens", "conditional expressions"]),
        (
            ROOM,
            DENSE,
            [
                "product lines", "Python tokens", "comprehensions", "conditional expressions",
                "statements holding three or more of the two",
            ],
        ),
        (ROOM, BRANCHING, ["product lines", "Python tokens", "functions of more than 15 branches"]),
        (ROOM, LONG, ["product lines", "Python tokens", "functions of more than 60 lines"]),
    ],
)  # fmt: skip
def test_each_limit_bites(structure: ModuleType, path: str, more: str, names: list[str]) -> None:
    files = structure.tracked_files()
    assert structure.problems_of(files) == []
    problems = structure.problems_of({**files, path: files[path] + more})
    assert [problem.found.split(" ", 1)[1] for problem in problems] == names
    assert {problem.code for problem in problems} == {"out-of-range"}


def test_a_file_that_is_too_long_is_refused_by_name(structure: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "LIMITS", dict.fromkeys(structure.LIMITS, 10**9))
    files = structure.tracked_files()
    found = structure.problems_of({**files, ROOM: "\n" * 601})
    assert [(problem.found, problem.where) for problem in found] == [("601 lines", ROOM)]
    assert structure.problems_of({**files, ROOM: "\n" * 600}) == []


def test_a_relative_import_for_types_alone_is_refused(structure: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "LIMITS", dict.fromkeys(structure.LIMITS, 10**9))
    files = structure.tracked_files()
    found = structure.problems_of({**files, ROOM: "if TYPE_CHECKING:\n    from .errors import Problem\n"})
    assert [(problem.code, problem.where) for problem in found] == [("invalid-setting", ROOM)]


def test_docs_and_data_are_no_product(structure: ModuleType) -> None:
    files = structure.product(structure.tracked_files())
    assert {"Makefile", "scripts/drafthouse", "profiles/catalog/hardware.yml", "templates/report.html.j2"} <= set(files)
    for path in ("README.md", "requirements.txt", "profiles/catalog/models.yml", "templates/monitoring/dashboard.json"):
        assert path not in files
    assert not [path for path in files if path.startswith(("docs/", "tests/", "benchmarks/"))]


def test_rooms_and_the_worst_statements_are_shown(structure: ModuleType) -> None:
    files = structure.tracked_files()
    lines = structure.rooms_table(files).splitlines()
    assert [line for line in lines if line.startswith("analysis ")]
    held, place = structure.worst_statements({**files, ROOM: DENSE})[0]
    assert held > 2
    assert place.startswith("src/drafthouse/")
    assert (3, f"{ROOM}:1") in structure.worst_statements({ROOM: DENSE})
