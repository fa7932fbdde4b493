"""Every rendered command of SGLang through its own argument parser, out of its wheel (sglang_parser.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.yaml_documents import read_yaml
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.flag_lists import FOLDER
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.translate.flags import load_flags
from drafthouse.translate.translator import translate
from tests.support.engines import check_home

HERE = Path(__file__).resolve().parent
#: The pin, and the first release whose flags stand apart from PyTorch.
NEWEST, OLDEST = "0.5.23", "0.5.20"
VERSIONS = (NEWEST, *(pytest.param(one, marks=pytest.mark.soak) for one in ("0.5.22", OLDEST)))
HOUSE = load_catalog(ROOT)
PROFILES = [name for name, profile in sorted(HOUSE.profiles.items()) if profile["engine"] == "sglang"]
#: Each method once, with all of its options.
METHODS: dict[str, dict[str, Any]] = {
    "eagle3": {"draft": "gpt-oss-120b-eagle3-lmsys"},
    "ngram": {"draft": None},
    "nextn": {"draft": None, "target": "qwen38-27b-fp8"},
    "standalone": {"draft": "qwen3-8b", "target": "qwen3-coder-30b-a3b"},
}
VALUES = {"int": 4, "float": 0.5, "bool": True, "str": "auto"}
WORDS = {"match_type": "PROB", "draft_model_quantization": "fp8", "draft_attention_backend": "triton"}

pytestmark = pytest.mark.processes


def verdicts(version: str, commands: dict[str, list[str]]) -> dict[str, str]:
    """What the parser of a version says of each command's words."""
    asked = [{"name": name, "argv": words} for name, words in commands.items()]
    words = [str(check_home(version, "sglang") / "bin" / "python"), str(HERE / "sglang_parser.py")]
    done = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True, check=False)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["sglang"] for one in said} == {version}, done.stderr
    return {one["name"]: one["parser"] for one in said}


def flat(flags: list[list[str]]) -> list[str]:
    return [word for words in flags for word in words]


def rendered(profile: str, version: str, overrides: Any = None) -> dict[str, list[str]]:
    found = resolved_profile(
        profile, site_of_inventory("workstation"), {"engine_version": version, **(overrides or {})}
    )
    return {f"{profile} {arm}": flat(found["arms"][arm]["flags"]) for arm in ("baseline", "speculative")}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_profiles_pass(version: str) -> None:
    commands: dict[str, list[str]] = {}
    for profile in PROFILES:
        commands |= rendered(profile, version)
    assert len(commands) == 2 * len(PROFILES) >= 8
    assert set(verdicts(version, commands).values()) == {"ok"}


def test_every_method_passes_with_all_of_its_options() -> None:
    commands: dict[str, list[str]] = {}
    for method, named in METHODS.items():
        options = HOUSE.engines["sglang"]["methods"][method]["options"]
        wanted: dict[str, Any] = {"draft_model_quantization": None}  # the profile's own, which not each method has
        wanted |= {key: WORDS.get(key, VALUES[option["type"]]) for key, option in options.items()}
        speculation = {"method": method, "draft": named["draft"], "num_speculative_tokens": 3, "options": wanted}
        more = {"target": named["target"]} if "target" in named else {}
        serve = {"reasoning_parser": "auto", "tool_call_parser": "auto", "trust_remote_code": True, "tp_size": 1}
        serve |= {"dtype": "auto", "kv_cache_dtype": "fp8_e4m3", "disable_radix_cache": True}
        serve |= {"attention_backend": "triton", "moe_runner_backend": "auto", "chat_template": "x.jinja"}
        made = rendered("rtx6000-gptoss-sglang-eagle3", NEWEST, {"speculation": speculation, "serve": serve, **more})
        commands |= {f"{method} {name}": words for name, words in made.items()}
    said = verdicts(NEWEST, commands)
    assert {name: text for name, text in said.items() if text != "ok"} == {}


def test_what_is_wrong_is_told() -> None:
    (base, _) = rendered(PROFILES[0], NEWEST).values()
    said = verdicts(
        NEWEST,
        {
            "unknown": [*base, "--speculative-steps", "3"],
            "type": [*base, "--speculative-num-steps", "three"],
            "choice": [*base, "--tool-call-parser", "qwen3-coder"],
            "none": base[2:],
        },
    )
    assert "unrecognized arguments: --speculative-steps" in said["unknown"]
    assert "--speculative-num-steps: invalid" in said["type"]
    assert "--tool-call-parser: invalid choice: 'qwen3-coder'" in said["choice"]
    assert "required: --model-path" in said["none"]


def test_a_flag_of_a_newer_release_is_in_no_command_of_an_older_one() -> None:
    with pytest.raises(DrafthouseError, match="use_block_verification"):
        rendered(PROFILES[0], OLDEST, {"speculation": {"options": {"use_block_verification": True}}})


@pytest.mark.parametrize("version", VERSIONS)
def test_the_list_of_flags_is_the_parsers(version: str, tmp_path: Path) -> None:
    kept = read_yaml(ROOT / FOLDER / "sglang.yml", "YAML", "")["versions"][version]
    words = [
        sys.executable,
        ROOT / "scripts" / "engine_flags.py",
        "sglang",
        version,
        kept["source"],
        "--into",
        tmp_path,
    ]
    words += ["--rows-of", check_home(version, "sglang") / "bin" / "python", HERE / "sglang_parser.py", "--rows"]
    subprocess.run([*map(str, words)], check=True)
    assert read_yaml(tmp_path / "sglang.yml", "YAML", "")["versions"] == {version: kept}


def test_translated_commands_pass() -> None:
    pasted = (
        "sglang serve --model Qwen/Qwen3-Coder-30B-A3B-Instruct --tp 1 --speculative-algorithm EAGLE3"
        " --speculative-draft-model lmsys/SGLang-EAGLE3-Qwen3-Coder-30B-A3B-Instruct-SpecForge"
        " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    )
    old = (  # of 0.5.18 and older: none of these is a flag of today's
        "sglang serve --model Qwen/Qwen3.8-27B-FP8 --speculative-algorithm EAGLE --cuda-graph-max-bs 8"
        " --cuda-graph-bs 1 2 --piecewise-cuda-graph-tokens 4 8 --piecewise-cuda-graph-max-tokens 64"
        " --piecewise-cuda-graph-compiler eager --enforce-piecewise-cuda-graph"
        " --disable-piecewise-cuda-graph --mamba-scheduler-strategy auto --nsa-prefill-backend fa3 --stream-output"
        " --nsa-decode-backend fa3 --collect-tokens-histogram --enable-flashmla --enable-deepep-moe --enable-ep-moe"
    )
    said = verdicts(
        NEWEST,
        {
            text.split(" --")[1]: flat(found.command)[3:]
            for text in (pasted, old)
            for found in translate(text, HOUSE, load_flags(ROOT), lambda name: None)[0]
        },
    )
    assert set(said.values()) == {"ok"}
    assert len(said) == 2
