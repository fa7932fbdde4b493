"""The commands that the pages tell people to type: each is one that a test runs, with words that it takes."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from drafthouse.cli.main import VERBS, module_of
from drafthouse.profiles.workspace import ROOT
from tests.support.examples import AFTER_THE_DEMO, ELSEWHERE
from tests.support.page_commands import NOT_RUN, RUN_BY, commands_of, verb_words

pytestmark = pytest.mark.processes

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")])
#: What a page has its reader put in: a name, a folder.
PLACEHOLDERS = ("…", "...", "VERB", "OTHER")
#: Profiles that a page has its reader write.
OWN = ("cpu-mine-ngram", "rtx6000-qwen3-14b-draftmodel")
TESTED = {line.split()[1] for line in AFTER_THE_DEMO} | set(ELSEWHERE)


def by_make(command: str) -> list[str] | None:
    """The words of the verb that a command of make would run, None where it runs none."""
    typed = shlex.split(command)[1:]
    if typed[0] in OWN:
        typed[0] = "cpu-smollm2-ngram"
    done = subprocess.run(["make", "-n", *typed], cwd=ROOT, capture_output=True, text=True, check=True)
    # Behind them the target's words for make help: a comment of the shell's.
    lines = [one.split(" ## ")[0] for one in done.stdout.splitlines() if one.startswith("scripts/drafthouse ")]
    # The words of translate go by the environment.
    return shlex.split(lines[-1].replace('"$CMD"', "CMD"))[1:] if lines else None


def told(command: str, others: dict[str, str]) -> str | None:
    """What stands at the longest of the first words that the command begins with."""
    return next((others[one] for one in sorted(others, key=len, reverse=True) if command.startswith(one)), None)


def untaken(command: str) -> str | None:
    """What is wrong with a command: that nobody runs it, or that its program takes no such words."""
    words = by_make(command) if command.startswith("make ") else verb_words(command)
    if words is None:
        return None if told(command, RUN_BY) or told(command, NOT_RUN) else "no test runs it"
    verb, *rest = words
    if any(mark in command for mark in PLACEHOLDERS) or verb == "--help":
        return None
    if verb not in VERBS or verb not in TESTED:
        return f"no test runs {verb}"
    ours = rest[: rest.index("--")] if "--" in rest else rest
    try:
        module_of(verb).options().parse_args(ours)
    except Exception as error:  # whatever the parser says of it
        return f"{type(error).__name__}: {error}"
    except SystemExit as ended:
        return f"ended with {ended.code}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_is_one_that_a_test_runs(page: Path) -> None:
    assert {command: why for command in commands_of(page.read_text()) if (why := untaken(command))} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_is_copied_as_it_stands(page: Path) -> None:
    """Without a prompt, and without a comment behind it, which zsh takes for words."""
    text = page.read_text("utf-8")
    assert not re.search(r"^ *```console|^ *\$ ", text, re.MULTILINE)
    assert [command for command in commands_of(text) if re.search(r"\s#\s", command)] == []


def test_what_runs_them_is_there_and_nothing_stands_in_the_list_for_nothing() -> None:
    for place in RUN_BY.values():
        file, _, word = place.partition(":")
        assert word in (ROOT / file).read_text("utf-8"), place
    every = [command for page in PAGES for command in commands_of(page.read_text())]
    assert [one for one in [*RUN_BY, *NOT_RUN] if not any(command.startswith(one) for command in every)] == []


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("make compare A=one B=two REGRESSION=much", "percentage"),
        ("drafthouse profiles --colour", "--colour"),
        ("drafthouse tuen cpu-smollm2-ngram", "no test runs tuen"),
        ("curl http://elsewhere", "no test runs it"),
    ],
)
def test_a_command_with_a_wrong_word_is_found(command: str, why: str) -> None:
    assert re.search(why, untaken(command) or "")
