"""llama.cpp's methods, those without a profile too: their flags by the argument parser of every release that has them.

A command that ends in --help is read up to there: what is wrong before it ends the program with the parser's words.
"""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.versions import known, releases
from tests.support.catalogue import table
from tests.support.engines import PROGRAMS, engine_home, llama_server, packaged_weights
from tests.support.made_methods import with_method

PROFILE = "rtx4090-llama32-llamacpp-draft1b"
ENGINE = table("engines")["llamacpp"]
PIN, OLDEST = ENGINE["default_version"], releases(ENGINE)[0]
# Words of options that are no number.
TEXTS = {"cache_type_k": "q8_0", "cache_type_v": "q8_0", "sampling": "probabilistic"}
VALUES: Any = {"int": 1, "float": 0.5}


def flags_of(method: str, version: str) -> list[str]:
    """Return the words of a method with each of its options that the version has."""
    options = {
        name: TEXTS.get(name, VALUES.get(option["type"]))
        for name, option in ENGINE["methods"][method].get("options", {}).items()
        if known(version, option)
    }
    resolved: Any = with_method(PROFILE, method, version, options=options)
    return [str(word) for flag in resolved["arms"]["speculative"]["speculation_flags"] for word in flag]


def parsed(version: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = [str(engine_home("llamacpp", version) / "bin" / "python"), str(PROGRAMS / "llama-server")]
    return subprocess.run([*program, *words, "--help"], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("method", [name for name, entry in ENGINE["methods"].items() if entry["draft"] != "model"])
@pytest.mark.parametrize(
    "version",
    [pytest.param(version, marks=[] if version in (PIN, OLDEST) else pytest.mark.soak) for version in releases(ENGINE)],
)
def test_a_methods_flags_are_what_each_release_parses(method: str, version: str) -> None:
    if not known(version, ENGINE["methods"][method]):
        with pytest.raises(DrafthouseError) as caught:
            flags_of(method, version)
        assert f"which does not have '{method}'" in caught.value.problems[0].found
        return
    words = flags_of(method, version)
    done = parsed(version, *words)
    assert (done.returncode, "--spec-type" in done.stdout) == (0, True), (words, done.stderr[-500:])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--spec-type", "draft-mtpp"), "draft-mtpp"),
        (("--spec-type", "draft-mtp", "--spec-draft-p-minimum", "0.5"), "--spec-draft-p-minimum"),
        (("--spec-draft-type-k", "q9_9"), "q9_9"),
        (("--draft-max", "3"), "--spec-draft-n-max"),
    ],
)
def test_the_parser_refuses_what_is_wrong(words: tuple[str, ...], said: str) -> None:
    done = parsed(PIN, *words)
    assert done.returncode != 0
    assert said in done.stderr


def test_ngram_mod_drafts() -> None:
    weights = str(packaged_weights("smollm2-135m-q4"))
    words = flags_of("ngram-mod", PIN)
    with llama_server(engine_home("llamacpp"), "-m", weights, "-c", "2048", "--metrics", *words) as server:
        text = "the quick brown fox jumps over the lazy dog and runs away"
        server.greedy(f"Repeat this ten times: {text}. {text}. {text}.", 48)
        assert server.counter("llamacpp:spec_decode_num_draft_tokens_total") > 0
