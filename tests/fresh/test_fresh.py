"""The README's two commands on fresh machines, as an ordinary user, in the surroundings that people have."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fresh.roots import UID, Visit, missing, visit
from tests.support.examples import AFTER_THE_DEMO

SILENCE_S = 15.0
VERDICT = re.compile(r"^(pays|does not pay|cannot say|invalid): ", re.MULTILINE)
# What may be written outside of the clone, by README and docs/hosts.md: uv's cache, which other clones share; and what
# pytest keeps of its last runs.
ALLOWED = ("/home/alice/.cache/uv/", "/tmp/pytest-of-alice/")

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(bool(missing()), reason=missing() or ""),
]


@dataclass(frozen=True)
class Surroundings:
    """Where and how a person calls the commands."""

    place: str = "/home/alice/drafthouse"
    variables: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    umask: str = "022"
    home_mode: int = 0o755
    words: tuple[str, ...] = ()


# All that can be had at once. A home cannot be absent and read-only. No budget: on a busy machine, which this must
# bear every day, the demo would buy further rounds.
ODD = Surroundings(
    place="/srv/mein Entwürfe/draft house",
    variables={"LC_ALL": "C", "LANG": "C"},
    umask="077",
    home_mode=0o555,
    words=("""ARGS=-e '{"overrides": {"experiment": {"budget": 0}}}'""",),
)
SURROUNDINGS = {
    "odd": ODD,
    "plain": Surroundings(),
    "no-home": Surroundings(place="/srv/drafthouse", without=("HOME", "USER", "LOGNAME")),
}
CASES = [
    pytest.param(
        (release, name),
        id=f"{release}-{name}",
        marks=() if (release, name) == ("trixie", "odd") else pytest.mark.soak,
    )
    for release in ("trixie", "bookworm")
    for name in SURROUNDINGS
]


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[tuple[Visit, Surroundings, str]]:
    release, name = request.param
    with visit(release) as fresh:
        around = SURROUNDINGS[name]
        fresh.put_clone(around.place)
        home = fresh.upper / "home/alice"
        home.mkdir(parents=True, exist_ok=True)
        os.chown(home, UID, UID)
        home.chmod(around.home_mode)
        yield fresh, around, f"{release}, {name}"


def _asked(around: Surroundings) -> dict[str, Any]:
    return {
        "folder": around.place,
        "variables": around.variables,
        "without": around.without,
        "umask": around.umask,
    }


def _outside(fresh: Visit, place: str) -> list[str]:
    """What was written outside of the clone by the user's commands, but for what may be."""
    own = (f"{place}/", *ALLOWED)
    return sorted(path for path in fresh.written() if not path.startswith(own))


@pytest.mark.parametrize("machine", CASES, indirect=True)
def test_the_two_commands(machine: tuple[Visit, Surroundings, str], figure: Callable[[str], None]) -> None:
    fresh, around, name = machine
    packages = fresh.packages()
    assert "libgomp" not in fresh.run(["/sbin/ldconfig", "-p"], user="root").output

    demo = fresh.run(["make", "demo", *around.words], **_asked(around))
    assert demo.status == 0, demo.output[-3000:]
    assert VERDICT.search(demo.output), demo.output[-3000:]
    figure(f"fresh {name}: make demo {demo.seconds:.0f} s, longest silence {demo.silence:.1f} s")

    begun = time.monotonic()
    for line, statuses in AFTER_THE_DEMO.items():
        program, *words = line.split()
        example = fresh.run([f"{around.place}/.venv/bin/{program}", *words], **_asked(around))
        assert example.status in statuses, f"{line}: {example.status}\n{example.output[-3000:]}"
        assert "Traceback" not in example.output, example.output[-3000:]
        assert example.silence <= SILENCE_S, line
    figure(f"fresh {name}: {len(AFTER_THE_DEMO)} examples of the help {time.monotonic() - begun:.0f} s")

    tests = fresh.run(["make", "test-fast"], **_asked(around))
    assert tests.status == 0, tests.output[-3000:]
    assert re.search(r"\d+ passed", tests.output)
    figure(f"fresh {name}: make test-fast {tests.seconds:.0f} s, longest silence {tests.silence:.1f} s")

    assert max(demo.silence, tests.silence) <= SILENCE_S
    assert "Traceback" not in demo.output
    assert _outside(fresh, around.place) == []
    assert fresh.packages() == packages


@pytest.mark.soak
@pytest.mark.parametrize("release", ["trixie", "bookworm"])
def test_all_of_the_tests(release: str, figure: Callable[[str], None]) -> None:
    with visit(release) as fresh:
        fresh.put_clone("/home/alice/drafthouse")
        os.chown(fresh.upper / "home/alice", UID, UID)
        tests = fresh.run(["make", "test"], folder="/home/alice/drafthouse", timeout=2400)
        figure(f"fresh {release}: make test {tests.seconds:.0f} s, longest silence {tests.silence:.1f} s")
        assert tests.status == 0, tests.output[-5000:]
        assert tests.silence <= SILENCE_S


def test_a_folder_that_is_not_ones_own_is_named() -> None:
    with visit("trixie") as fresh:
        clone = fresh.put_clone("/srv/drafthouse")
        for path in (clone.parent, clone, *clone.rglob("*")):
            os.lchown(path, 0, 0)
        ended = fresh.run(["make", "demo"], folder="/srv/drafthouse")
    assert ended.status == 2  # make's own
    lines = ended.output.splitlines()
    assert lines[0] == "found: a folder that alice may not write to: /srv/drafthouse"
    assert [line.split(":")[0] for line in lines[:3]] == ["found", "needed", "do"]
    assert "python3-venv" not in ended.output
