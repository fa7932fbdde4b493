"""The lists of flags in the catalogue are those of the engines' own parsers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drafthouse.core.yaml_documents import read_yaml
from drafthouse.profiles.flag_lists import FOLDER
from drafthouse.profiles.workspace import ROOT
from tests.support.engines import PROGRAMS, check_home, engine_home


@pytest.mark.processes
@pytest.mark.parametrize(
    ("engine", "version"),
    [("vllm", "0.32.0"), pytest.param("vllm", "0.15.1", marks=pytest.mark.soak), ("llamacpp", "2026.10.11549")],
)
def test_a_list_is_what_the_parser_says(engine: str, version: str, tmp_path: Path) -> None:
    home = check_home(version) if engine == "vllm" else engine_home(engine, version)
    python = home / "bin" / "python"
    asked = ["--help-of", python, PROGRAMS / "llama-server", "--help"] if engine == "llamacpp" else ["--python", python]
    kept = read_yaml(ROOT / FOLDER / f"{engine}.yml", "YAML", "")["versions"][version]
    words = [ROOT / "scripts" / "engine_flags.py", engine, version, kept["source"], "--into", tmp_path, *asked]
    subprocess.run([sys.executable, *map(str, words)], check=True)
    assert read_yaml(tmp_path / f"{engine}.yml", "YAML", "")["versions"] == {version: kept}
