"""llama.cpp's methods, those without a profile too: their flags by the argument parser of every release that has them.

A command that ends in --help is read up to there: what is wrong before it ends the program with the parser's words.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.versions import releases, supports
from tests.support.catalogue import table
from tests.support.engines import PROGRAMS, engine_home, llama_server, packaged_weights
from tests.support.made_ggufs import dflash_head, eagle3_head, mtp_target
from tests.support.made_methods import with_method

PROFILE = "rtx4090-llama32-llamacpp-draft1b"
ENGINE = table("engines")["llamacpp"]
PIN, OLDEST = ENGINE["default_version"], releases(ENGINE)[0]
# Words of options that are no number.
TEXTS = {"cache_type_k": "q8_0", "cache_type_v": "q8_0", "sampling": "probabilistic"}
VALUES: Any = {"int": 1, "float": 0.5}


def flags_of(method: str, version: str) -> list[str]:
    """The words of a method with each of its options that the version has."""
    options = {
        name: TEXTS.get(name, VALUES.get(option["type"]))
        for name, option in ENGINE["methods"][method].get("options", {}).items()
        if supports(version, option)
    }
    resolved: Any = with_method(PROFILE, method, version, options=options)
    return [str(word) for flag in resolved["arms"]["speculative"]["speculation_flags"] for word in flag]


def parsed(version: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = [str(engine_home("llamacpp", version) / "bin" / "python"), str(PROGRAMS / "llama-server")]
    return subprocess.run([*program, *words, "--help"], capture_output=True, text=True, timeout=180, check=False)


each_release = pytest.mark.parametrize(
    "version",
    [pytest.param(version, marks=[] if version in (PIN, OLDEST) else pytest.mark.soak) for version in releases(ENGINE)],
)


@each_release
@pytest.mark.parametrize("method", [name for name, entry in ENGINE["methods"].items() if entry["draft"] != "model"])
def test_a_methods_flags_are_what_each_release_parses(method: str, version: str) -> None:
    if not supports(version, ENGINE["methods"][method]):
        with pytest.raises(DrafthouseError) as caught:
            flags_of(method, version)
        assert f"which does not have '{method}'" in caught.value.problems[0].found
        return
    words = flags_of(method, version)
    done = parsed(version, *words)
    assert (done.returncode, "--spec-type" in done.stdout) == (0, True), (words, done.stderr[-500:])


def test_a_lookup_beside_a_head_is_what_it_parses() -> None:
    resolved: Any = with_method(PROFILE, "draft-mtp", PIN, also="ngram-mod")
    words = [str(word) for flag in resolved["arms"]["speculative"]["speculation_flags"] for word in flag]
    assert "draft-mtp,ngram-mod" in words
    done = parsed(PIN, *words)
    assert done.returncode == 0, done.stderr[-500:]


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


@pytest.fixture(scope="module")
def target() -> Path:
    return packaged_weights("smollm2-135m-q4")


def drafted(version: str, model: Path, *words: str) -> int:
    """Serve ``model`` with a method's words and ask it once; return how many tokens its answer says were drafted."""
    # One thread: two wait for each other at every operation, which a busy neighbour makes long.
    flags = ("-m", str(model), "-c", "2048", "--parallel", "1", "--threads", "1", *words)
    with llama_server(engine_home("llamacpp", version), *flags) as server:
        text = "the quick brown fox jumps over the lazy dog and runs away"
        timings = server.greedy(f"Repeat this ten times: {text}. {text}. {text}.", 24)["timings"]
    return int(timings.get("draft_n", 0))


def test_ngram_mod_drafts(target: Path) -> None:
    assert drafted(PIN, target, *flags_of("ngram-mod", PIN)) > 0


@each_release
@pytest.mark.parametrize(("method", "make"), [("draft-eagle3", eagle3_head), ("draft-dflash", dflash_head)])
def test_a_head_made_for_the_target_drafts_since_the_release_that_is_said(
    version: str, method: str, make: Callable[[Path, Path], Path], target: Path, tmp_path: Path
) -> None:
    resolved: Any = with_method(PROFILE, method, PIN)
    head = make(tmp_path / "head.gguf", target)
    flags = [str(word) for flag in resolved["arms"]["speculative"]["speculation_flags"] for word in flag]
    words = [str(head) if word == resolved["draft"]["path"] else word for word in flags]
    assert str(head) in words
    if supports(version, ENGINE["methods"][method]):
        assert drafted(version, target, *words) > 0
    else:
        with pytest.raises(AssertionError, match="did not get ready"):
            drafted(version, target, *words)


@each_release
def test_the_head_inside_a_target_drafts_since_the_release_that_is_said(
    version: str, target: Path, tmp_path: Path
) -> None:
    made = mtp_target(tmp_path / "target.gguf", target)
    if supports(version, ENGINE["methods"]["draft-mtp"]):
        assert drafted(version, made, *flags_of("draft-mtp", version)) > 0
    else:
        with pytest.raises(AssertionError, match="did not get ready"):
            drafted(version, made, "--spec-type", "draft-mtp")


def test_a_target_without_the_head_that_it_should_draft_with_does_not_start(target: Path, tmp_path: Path) -> None:
    made = mtp_target(tmp_path / "target.gguf", target, with_head=False)
    with pytest.raises(AssertionError, match="did not get ready"):
        drafted(PIN, made, "--spec-type", "draft-mtp")
