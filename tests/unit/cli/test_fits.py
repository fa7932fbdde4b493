"""What `drafthouse fits` prints: the table for people, the same for programs, and what is refused."""

from __future__ import annotations

import argparse
import json

import pytest

from drafthouse.cli import drafts, fits, models
from drafthouse.core.errors import DrafthouseError


def test_a_program_reads_the_rows_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert fits.main(["qwen3-32b", "--gpu", "h100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (row,) = told["rows"]
    assert (told["schema"], told["context"], row["hardware"]) == ("drafthouse.fits/1", 8192, "h100")
    assert fits.main(["qwen3-32b", "--gpu", "h100"]) == 0
    assert f"{row['longest']:,}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("32k", 32_000), ("32K", 32_768), ("1.5k", 1500), ("1M", 1 << 20), ("40960", 40960), ("0", None), ("k", None),
     ("", None), ("-4k", None), ("²k", None), ("9" * 400, None)],
)  # fmt: skip
def test_a_context_is_read_as_the_engine_reads_a_profiles(text: str, tokens: int | None) -> None:
    if tokens is None:
        with pytest.raises(argparse.ArgumentTypeError):
            fits.context(text)
    else:
        assert fits.context(text) == tokens


@pytest.mark.parametrize(
    "words",
    [["qwen3-32"], ["qwen3-32b", "--gpu", "h10"], ["qwen3-32b", "--context", "9" * 400], ["qwen3-32b", "--gpu", "²GB"]],
)
def test_what_is_refused_is_listed_once_at_most(words: list[str]) -> None:
    with pytest.raises(DrafthouseError) as error:
        fits.main(words)
    assert str(error.value).count("l40s") <= 1


@pytest.mark.parametrize(
    ("gpu", "shown"),
    [
        ("3090", "rtx3090 (NVIDIA GeForce RTX 3090)"),
        ("2x3090", "rtx3090x2 (two NVIDIA GeForce RTX 3090)"),
        ("3x3090", "3x3090 (3 x NVIDIA GeForce RTX 3090)"),
        ("2x24GB", "2x24GB (2 cards of that memory)"),
        ("H100", "h100 (NVIDIA H100 SXM 80 GB)"),
    ],
)
def test_cards_are_called_what_people_call_them(gpu: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fits.main(["qwen38-27b-q4", "--gpu", gpu]) == 0
    assert shown in capsys.readouterr().out


def test_two_cards_hold_twice_as_much_and_read_no_faster(capsys: pytest.CaptureFixture[str]) -> None:
    """llama.cpp puts some layers on each: 17.1 GB of weights and the cache over 2 x 25.8 GB, 936 GB/s at a time."""
    assert fits.main(["qwen38-27b-q4", "--gpu", "2x3090", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["devices"], row["sold"]) == (2, "2 x 24 GB")
    assert row["memory"] == 2 * 24576 * 2**20
    assert row["longest"] == 262_144
    assert row["limit"] == pytest.approx(55, abs=1)


def test_what_speculation_is_expected_to_gain_stands_beside(capsys: pytest.CaptureFixture[str]) -> None:
    assert fits.main(["qwen3-32b", "--gpu", "rtx6000"]) == 0
    text = capsys.readouterr().out
    assert "1.4 to 2.0x" in text
    assert "with qwen3-32b-eagle3, K=3" in text
    assert fits.main(["qwen3-8b", "--gpu", "24GB"]) == 0
    assert "speculating" not in capsys.readouterr().out  # nobody knows how fast such a card reads


def test_a_draft_without_room_beside_the_model_gains_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The model fits alone: its own head is loaded only when it drafts."""
    assert fits.main(["deepseek-v4-flash-0731", "--gpu", "b200"]) == 0
    assert "54,446  734 tok/s  no room" in capsys.readouterr().out
    assert drafts.main(["glm53-flash-nvfp4", "--gpu", "h100"]) == 0
    assert "no room for both" in " ".join(capsys.readouterr().out.split())
    # By the share of the memory that the shipped profile takes, which is more than the engine's own.
    assert drafts.main(["qwen3-8b", "--gpu", "rtx3090"]) == 0
    assert "no room" not in capsys.readouterr().out


def test_drafts_say_what_they_are_expected_to_gain_on_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert drafts.main(["qwen3-32b", "--gpu", "rtx6000"]) == 0
    assert "about 1.7\u00d7 (1.4 to 2.0) for one user, until about" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(DrafthouseError, match="rtx6000"):
        drafts.main(["qwen3-32b", "--gpu", "rtx600"])


def test_the_models_of_the_catalogue_are_listed_and_those_that_fit_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main([]) == 0
    assert "qwen3-32b-eagle3" in capsys.readouterr().out  # a head only beside the model that it drafts for
    assert models.main(["--gpu", "3090", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = {row["name"] for row in told["models"]}
    assert "qwen38-27b-q4" in names
    assert not names & {"qwen3-32b", "qwen3-32b-eagle3"}
    with pytest.raises(DrafthouseError):
        models.main(["--gpu", "h10"])
