"""The command itself: its verbs, its help, what it says to a wrong word, and that it loads one verb alone."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from drafthouse.cli.completion import SHELLS
from drafthouse.cli.main import VERBS, main, module_of
from drafthouse.cli.parser import coloured, project, run
from drafthouse.cli.plays import PLAYS
from drafthouse.core.errors import DrafthouseError, NotHere
from drafthouse.core.places import ROOT
from drafthouse.profiles.catalog import load_catalog
from tests.support.examples import AFTER_THE_DEMO, ELSEWHERE, examples

FOLDER = ROOT / "src" / "drafthouse" / "cli"


def test_every_file_with_options_is_a_verb() -> None:
    files = {
        path.stem.replace("_", "-") for path in FOLDER.glob("*.py") if "\ndef options()" in path.read_text("utf-8")
    }
    assert sorted([*files, *PLAYS]) == sorted(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_has_an_example_that_its_parser_reads(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = examples(verb)
    assert found, f"drafthouse {verb} --help shows no example"
    for words in found:
        assert words[0] == verb
        module_of(verb).options().parse_args(words[1:])
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert f"drafthouse {verb}" in capsys.readouterr().out


def test_an_example_of_every_verb_is_run() -> None:
    run = [line.removeprefix("drafthouse ").split() for line in AFTER_THE_DEMO]
    assert [words for words in run if words not in examples(words[0])] == []
    assert {words[0] for words in run} | set(ELSEWHERE) == set(VERBS)
    for verb, file in ELSEWHERE.items():
        called = "make demo" if verb == "run" else verb
        assert called in (ROOT / file).read_text("utf-8"), (verb, file)


def test_profiles_of_examples_are_there() -> None:
    known = load_catalog(ROOT).profiles
    named = {
        word for verb in VERBS for words in examples(verb) for word in words if re.match(r"(cpu|rtx|h100)\w*-", word)
    }
    assert {name.split("~")[0] for name in named} <= set(known)


def test_the_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {verb} " in text for verb in VERBS)


def test_the_version_is_the_release_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"drafthouse {project()['version']}\n"


@pytest.mark.parametrize(
    ("words", "do"),
    [
        (["plam"], "write 'plan'"),
        (["plan", "rtx6000-qwen-eagle3", "--runtme", "docker"], "write '--runtime'"),
        (
            ["bench", "--base-ur1", "http://127.0.0.1:1", "--base-url", "http://127.0.0.1:1", "--model", "m"],
            "'--base-url'",
        ),
        (["plan", "rtx6000-qwen-eagle"], "write 'rtx6000-qwen-eagle3'"),
        (["plan"], "drafthouse profiles lists the profiles; with make: PROFILE=name"),
        (["reports", "a", "b"], "remove it, or quote what belongs together"),
    ],
)
def test_a_wrong_word_is_answered_with_the_nearest(words: list[str], do: str) -> None:
    with pytest.raises(DrafthouseError) as error:
        main(words)
    assert do in error.value.problems[0].do


def test_a_wheel_without_ansible_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafthouse.cli.deployment.INSTALLED", True)
    monkeypatch.setattr("drafthouse.cli.deployment.find_spec", lambda name: None)
    with pytest.raises(NotHere, match=r"drafthouse\[deploy\]"):
        main(["tune", "x"])


@pytest.mark.processes
def test_a_verb_loads_no_other_and_no_library_that_it_does_not_need() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from drafthouse.cli.main import main; main(['--help']);"
        "print([name for name in sys.modules if name.split('.')[0] in ('yaml', 'numpy', 'aiohttp', 'jinja2')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "src")], capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_verbs_options_and_names(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in [*VERBS, "max-concurrency", "num-prompts", "max-price"])
    assert all(name in script for name in ("rtx6000-qwen-eagle3", "rtx5090x2", "qwen3-8b"))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["tra"], "translate"),
        (["plan", "rtx4090-gptoss"], "rtx4090-gptoss20b-peagle"),
        (["fits", "qwen3-coder-30b"], "qwen3-coder-30b-a3b"),
        (["new", "--gpu", "dgx"], "dgx-spark"),
    ],
)
def test_bash_completes(typed: list[str], completed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    (tmp_path / "completion").write_text(capsys.readouterr().out)
    line = (
        f"COMP_WORDS=(drafthouse {' '.join(typed)}); COMP_CWORD={len(typed)}; _shtab_drafthouse; echo ${{COMPREPLY[@]}}"
    )
    line = f"source {tmp_path}/completion; {line}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert completed in done.stdout.split(), done.stdout + done.stderr


def test_colours_are_for_terminals_of_those_who_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    terminal: object = Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert coloured(terminal)  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert not coloured(terminal)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "schema"),
    [
        (["profiles", "--json"], "drafthouse.profiles/1"),
        (["plan", "rtx6000-qwen-eagle3", "--json"], "drafthouse.plan/1"),
        (["translate", "vllm serve a/b --max-model-len 4096", "--json"], "drafthouse.translate/1"),
        (["reports", "--json"], "drafthouse.reports/1"),
    ],
)  # fmt: skip
def test_what_a_program_reads_names_its_schema(
    words: list[str], schema: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == schema


@pytest.mark.parametrize(
    ("number", "found"),
    [
        (errno.EACCES, "no permission to read or write"),
        (errno.EROFS, "a read-only file system"),
        (errno.ENOSPC, "no space left"),
    ],
)
def test_what_the_machine_refuses_is_said_in_lines(number: int, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    def refused() -> int:
        raise OSError(number, os.strerror(number), "/there/x.yml")

    with pytest.raises(SystemExit) as ended:
        run(refused)
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[:2] == ["where: /there/x.yml", f"found: {found}"]


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    def wrong() -> int:
        raise IsADirectoryError(errno.EISDIR, "x", "/there")

    with pytest.raises(IsADirectoryError):
        run(wrong)


@pytest.mark.processes
def test_an_output_without_room_is_said_and_an_error() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "drafthouse"), "--version"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "found: no space left")
