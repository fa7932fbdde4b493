"""The command as somebody installs it who has no clone and no Ansible: a wheel, in an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drafthouse.core.exit_codes import CANNOT_SAY, DONE, FAILED, NOT_HERE, WARNED
from drafthouse.core.places import ROOT
from tests.support.llama_box import llama_box
from tests.support.made_models import own_folder

PROFILE = "cpu-smollm2-ngram"
BIN = Path(sys.executable).parent


class Installed:
    """`drafthouse` in its own environment, called in a folder of its own."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.python, self.folder = environment / "bin" / "python", folder
        self._program = environment / "bin" / "drafthouse"

    def __call__(self, *words: object, code: int | tuple[int, ...] = DONE, **environment: str) -> str:
        """Run a verb, its ``environment`` changed; return what it printed."""
        theirs = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE", "PYTHON"))}
        done = subprocess.run(
            [str(self._program), *map(str, words)], cwd=self.folder,
            env=theirs | {"HOME": str(self.folder / "home")} | environment,
            capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip
        assert done.returncode in ((code,) if isinstance(code, int) else code), done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def drafthouse(tmp_path_factory: pytest.TempPathFactory, figure: Callable[[str], None]) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    pins = [
        line.split()[0] for line in (ROOT / "requirements.txt").read_text("utf-8").splitlines() if line[:1].isalnum()
    ]
    (folder / "pins.txt").write_text("\n".join(pins))
    environment = folder / "venv"
    subprocess.run([str(BIN / "uv"), "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
    begun = time.monotonic()
    words = ["--python", str(environment / "bin" / "python"), "--constraint", str(folder / "pins.txt"), str(wheel)]
    subprocess.run([str(BIN / "uv"), "pip", "install", "--quiet", *words], check=True)
    seconds = time.monotonic() - begun
    size = sum(path.stat().st_size for path in environment.rglob("*") if path.is_file() and not path.is_symlink())
    figure(f"wheel: {wheel.stat().st_size / 1e6:.1f} MB, installed in {seconds:.1f} s, {size / 1e6:.0f} MB in all")
    (folder / "empty").mkdir()
    return Installed(environment, folder / "empty")


def test_it_has_what_it_needs_and_no_ansible(drafthouse: Installed) -> None:
    code = "import importlib.util as u; print([name for name in ('ansible', 'matplotlib') if u.find_spec(name)])"
    assert subprocess.check_output([str(drafthouse.python), "-c", code], text=True) == "[]\n"
    assert drafthouse("--version") == "drafthouse 0.1.0\n"
    types = "import drafthouse, pathlib; print((pathlib.Path(drafthouse.__file__).parent / 'py.typed').is_file())"
    assert subprocess.check_output([str(drafthouse.python), "-c", types], text=True) == "True\n"


def test_the_verbs_that_need_no_server(drafthouse: Installed) -> None:
    listed = json.loads(drafthouse("profiles", "--json"))["profiles"]
    assert {row["profile"] for row in listed} == {path.stem for path in (ROOT / "profiles").glob("*.yml")}
    assert "decode limit  27.3 tok/s" in drafthouse("plan", "rtx6000-qwen-eagle3")
    here = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "drafthouse"), "render", "rtx6000-qwen-eagle3"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert drafthouse("render", "rtx6000-qwen-eagle3") == here
    for name in filter(None, here.splitlines()):
        if not name.endswith("resolved.json"):  # it has the folder's own paths
            assert (drafthouse.folder / name).read_text() == (ROOT / name).read_text()
    assert "--speculative-config" in drafthouse("translate", "vllm serve a/b --speculative-model c/d")
    assert "drafthouse[deploy]" in drafthouse("tune", PROFILE, code=NOT_HERE)
    # What was rented ends without Ansible too.
    assert "nothing was rented from here" in drafthouse("destroy", "--list")


def test_own_profiles_are_found_the_nearest_first(drafthouse: Installed) -> None:
    text = (ROOT / "profiles" / f"{PROFILE}.yml").read_text("utf-8")
    near, home = drafthouse.folder / "profiles", drafthouse.folder / "home" / ".config" / "drafthouse" / "profiles"
    for folder, title in ((near, "title: mine, here"), (home, "title: mine, at home")):
        folder.mkdir(parents=True)
        for name in ("mine", f"only-{folder.parent.name}"):
            lines = [title if line.startswith("title:") else line for line in text.splitlines()]
            (folder / f"{name}.yml").write_text("\n".join(lines) + "\n")
    try:
        assert "mine, here" in drafthouse("plan", "mine")
        assert "mine, at home" in drafthouse("plan", "only-drafthouse")
        # A folder that the environment names goes before both, with entries of its own.
        team = own_folder(drafthouse.folder / "team")
        (team / "mine.yml").write_text(text.replace("title: ", "title: the team's "))
        planned = drafthouse("plan", "mine", DRAFTHOUSE_PROFILES=str(team))
        assert planned.startswith("mine: the team's ")
        assert f"profile: {team}/mine.yml, in place of" in " ".join(planned.split())
        assert "EAGLE-3 head with random weights" in drafthouse(
            "plan", "cpu-smollm2-vllm-eagle3", DRAFTHOUSE_PROFILES=str(team)
        )
        assert "cpu-smollm2-vllm-ngram" in drafthouse("plan", "cpu-smollm2-vllm-eagle3", code=FAILED)
        (near / "mine.yml").write_text("target: [\n")
        assert str(near / "mine.yml") in drafthouse("plan", "mine", code=FAILED)
    finally:
        for folder in (near, home):
            shutil.rmtree(folder)


def test_a_server_is_measured_judged_and_compared(drafthouse: Installed) -> None:
    key = drafthouse.folder / "key"
    key.write_text("the-key\n")
    with llama_box() as box:
        for arm in ("baseline", "speculative"):
            box.serve({arm: box.port})
            box.wait({arm: box.port})
            said = drafthouse(
                "bench", "--base-url", f"http://127.0.0.1:{box.port}", "--model", "smol", "--api-key-file", key,
                "--kind", "copy-edit", "--num-prompts", 2, "--output-tokens", 24, "--result", f"{arm}.json",
                code=(DONE, WARNED),
            )  # fmt: skip
            assert "tok/s" in said
    said = drafthouse("judge", "baseline.json", "speculative.json", code=(DONE, WARNED, FAILED, CANNOT_SAY))
    assert "Not known from these files" in said
    assert "paired by id" in said


def test_two_files_of_another_client_are_judged_at_once(drafthouse: Installed, figure: Callable[[str], None]) -> None:
    data = ROOT / "tests" / "real_data" / "inventivehq" / "results_14b.json"
    shutil.copy(data, drafthouse.folder / "results.json")
    words = ("judge", "results.json#baseline", "results.json#draft_0_5b")
    begun = time.monotonic()
    said = drafthouse(*words, code=CANNOT_SAY)
    figure(f"judge: {time.monotonic() - begun:.2f} s from the wheel")
    assert "if the box was quiet: pays: 1.35" in " ".join(said.split())
    assert "report: page.html" in drafthouse(*words, "--html", "page.html", code=CANNOT_SAY)
    page = (drafthouse.folder / "page.html").read_text("utf-8")
    assert "Not known from these files" in page
    assert "<svg" not in page
