from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import jinja2
import pytest

from drafthouse.core.shell import compact_json, flag, shell_words
from drafthouse.profiles.render import environment, render_file
from drafthouse.profiles.workspace import ROOT

pytestmark = pytest.mark.processes

HOSTILE = ["a b", "it's", '$(touch x) `id` "q"', "back\\slash", "*", "", "-n", "new\nline"]


@pytest.mark.parametrize("word", HOSTILE)
def test_a_shell_reads_the_very_word(word: str) -> None:
    line = f"printf %s {shell_words(word)}"
    assert subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout == word


def test_words_and_json() -> None:
    assert shlex.split(shell_words(["--x", "a b", 3])) == ["--x", "a b", "3"]
    assert compact_json({"b": 1, "a": "ü"}) == '{"b": 1, "a": "ü"}'


def test_switches() -> None:
    assert flag("--enforce-eager", True) == ["--enforce-eager"]
    assert flag("--enforce-eager", False) == ["--no-enforce-eager"]
    assert flag("--dtype", "auto") == ["--dtype", "auto"]


def test_the_script_runs_with_hostile_values_and_passes_the_users_words_on(tmp_path: Path) -> None:
    data = {
        "title": "a test",
        "engine": {"key_environment": "THE_KEY"},
        "key_file": str(tmp_path / "a key"),
        "command": [
            "python3",
            "-c",
            "import json, os, sys; print(json.dumps([os.environ['THE_KEY'], *sys.argv[1:]]))",
        ],
        "environment": {"OTHER": "$(id)"},
        "flags": [[word] for word in HOSTILE if word],
    }
    (tmp_path / "a key").write_text("secret\n")
    file = render_file(ROOT / "templates", "serve/vllm.sh.j2", "serve.sh", "0755", data)
    script = tmp_path / file["path"]
    script.write_text(file["content"])
    done = subprocess.run(["bash", str(script), "--port", "9"], capture_output=True, text=True, check=True)
    import json

    assert json.loads(done.stdout) == ["secret", *[word for word in HOSTILE if word], "--port", "9"]


def test_an_undefined_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.j2").write_text("{{ missing }}")
    with pytest.raises(jinja2.UndefinedError):
        environment(tmp_path).get_template("x.j2").render()
