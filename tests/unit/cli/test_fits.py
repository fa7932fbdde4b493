"""What `drafthouse fits` prints: the table for people, the same for programs, and what is refused."""

from __future__ import annotations

import argparse
import json

import pytest

from drafthouse.cli import fits
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
    assert str(error.value).count("rtx3090") <= 1
