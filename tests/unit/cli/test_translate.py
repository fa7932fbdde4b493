"""drafthouse translate as a person calls it."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT
from drafthouse.translate.flags import load_flags
from drafthouse.translate.text import as_data, translation_text
from drafthouse.translate.translator import translate
from tests.support.verb import called

pytestmark = pytest.mark.processes

COMMANDS = Path(__file__).parents[1] / "translate" / "commands"
DRAFT = (COMMANDS / "004-draft.txt").read_text("utf-8")


def run(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return called("translate", *words, folder="/", given=given)


def test_one_argument_or_standard_input() -> None:
    one, other = run(DRAFT), run(given=DRAFT)
    assert one.returncode == other.returncode == 0
    assert one.stdout == other.stdout
    assert one.stdout.startswith("this is the profile h100-llama33-draft3b: make h100-llama33-draft3b\n")
    for words in ("--speculative-model", "0.8.3", "today's command (vLLM 0.32.0)", "what changed"):
        assert words in one.stdout
    assert "not-a-real-key-0123" not in one.stdout
    assert "\x1b" not in one.stdout


def test_another_engine_is_refused_with_the_way_that_replaced_it() -> None:
    refused = run("--to", "sglang", DRAFT)
    assert refused.returncode == 2
    assert "found: the option translate --to, which was removed\n" in refused.stderr
    assert "code: removed\n" in refused.stderr


def test_a_whole_page_at_once() -> None:
    page = "\n\nAnd now, that's the other one:\n\n".join(
        (COMMANDS / f"{name}.txt").read_text("utf-8") for name in ("000-baseline", "001-trtllm-eagle3", "003-llamacpp")
    )
    done = run(given=page)
    assert done.returncode == 0
    assert done.stdout.count("── what changed ") == 3
    assert "left out, as they are no whole command: --log_level" in done.stdout


def test_one_broken_command_does_not_hide_the_others() -> None:
    done = run(given="vllm serve a/b --seed 1\n\nSee llama-server, too\n\nvllm serve c/d --api-key 'abc")
    assert done.returncode == 2
    assert done.stdout.count("── what changed ") == 1 and "code: unclosed-quote" in done.stderr
    assert run(given="llama-server -np 4\nvllm serve a/b --seed 1").returncode == 0


def test_json_for_machines() -> None:
    data = json.loads(run("--json", DRAFT).stdout)
    (found,) = data["translations"]
    assert found["same_profiles"] == ["h100-llama33-draft3b"]
    assert yaml.safe_load(found["profile_yaml"]) == found["profile"]
    assert {"what", "became", "version", "why", "kind"} == set(found["changes"][0])
    assert found["command"][:2] == ["vllm", "serve"]


def test_the_profile_is_written_once_and_never_over_another(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    assert run("--profile", str(path), DRAFT).returncode == 0
    before = path.read_text("utf-8")
    assert yaml.safe_load(before)["target"] == "llama33-70b-fp8"
    again = run("--profile", str(path), "vllm serve a/b --seed 1")
    assert (again.returncode, path.read_text("utf-8")) == (2, before)
    assert f"where: {path}\n" in again.stderr and "code: file-exists" in again.stderr
    several = run("--profile", str(tmp_path / "x.yml"), "vllm serve a\nvllm serve b")
    assert (several.returncode, (tmp_path / "x.yml").exists()) == (2, False)
    nowhere = run("--profile", str(tmp_path / "no" / "x.yml"), DRAFT)
    assert nowhere.returncode == 2 and "needed: a folder to write to" in nowhere.stderr


@pytest.mark.parametrize("text", ["", "hello", "vllm serve x --y 'z", "vllm serve x -sc '{'"])
def test_an_error_is_lines_and_no_traceback(text: str) -> None:
    done = run(text)
    assert done.returncode == 2
    assert "found: " in done.stderr and "needed: " in done.stderr and "do: " in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_yaml_file_is_read_where_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "extra.yaml"
    path.write_text("moe_config: {backend: CUTLASS}\n", "utf-8")
    done = run(f"trtllm-serve a/b --extra_llm_api_options {path}")
    assert "moe_backend: CUTLASS" in done.stdout
    assert "cat > extra.yaml <<'EOF'\nmoe_config:\n  backend: CUTLASS\nEOF\n" in done.stdout


def test_no_paste_however_broken_ends_in_a_traceback() -> None:
    dice = random.Random(11)
    catalog, flags = load_catalog(ROOT), load_flags(ROOT)
    texts = [path.read_text("utf-8") for path in sorted(COMMANDS.glob("*.txt"))]
    junk = [
        *"\"'\\{}[]()#|&;<>`$\n =-,:0",
        "--",
        "-sc ",
        "<<EOF",
        " vllm serve ",
        " LLM(",
        "docker run ",
        "\x1b",
        "--x=",
    ]
    files = [None, "a: 1", "[1]", "speculative_config: {max_draft_len: x}", "a: {b: {c: null}}\n1: 2", "a: b: c"]
    outcomes = {"translated": 0, "refused": 0}
    for _ in range(400):
        text = dice.choice(texts)
        for _ in range(dice.randint(1, 5)):
            place = dice.randrange(len(text) + 1)
            cut = dice.random() < 0.4
            text = text[:place] + (text[place + dice.randint(1, 12) :] if cut else dice.choice(junk) + text[place:])
        try:
            for found in translate(text, catalog, flags, lambda name: dice.choice(files))[0]:
                json.dumps(as_data(found))
                assert "\x1b" not in translation_text(found)
            outcomes["translated"] += 1
        except DrafthouseError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 50


def test_the_example_of_the_documentation_is_what_it_prints() -> None:
    page = (ROOT / "docs" / "translate.md").read_text("utf-8")
    command = page.partition("```bash\n")[2].partition("```")[0]
    shown = page.partition("```text\n")[2].partition("```")[0]
    printed = run(given=command).stdout
    if "WRITE_GOLDEN" in os.environ:  # as for tests/golden: write it anew, and look at the difference
        (ROOT / "docs" / "translate.md").write_text(page.replace(shown, printed), "utf-8")
        shown = printed
    assert printed == shown
    assert "my-own-secret-key" in command and "my-own-secret-key" not in printed
