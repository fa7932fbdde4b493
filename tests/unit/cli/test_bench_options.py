"""The options of `drafthouse bench`: a server's certificate, and what is refused before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafthouse.cli.bench import options, read_ca
from drafthouse.core.removed import REMOVED
from tests.support.refusals import refuses
from tests.support.verb import called

GONE = [row.name for row in REMOVED if row.place == "option" and row.name.startswith("bench ")]
SERVER = ["--base-url", "http://127.0.0.1:1", "--model", "m"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ladder", "4,2"], "4, 2: each must be above the one before"),
        (["--ladder", "1", "--rate", "1"], "not allowed with argument"),
        (["--rate", "fast"], "'fast' is no list of rates"),
        (["--time", "0"], "0 is not above 0"),
        (["--time", "nan"], "nan is not above 0"),
        (["--ladder", "1,2", "--max-concurrency", "4"], "found: 4 together with --ladder or --rate"),
        (["--ladder", "1", "--old-columns"], "code: conflicting-options"),
        (["--ladder", "1", "--ca", "/no/such/file"], "code: certificate-unreadable"),
        (["--api-key-file", "/no/such/file"], "code: api-key-unreadable"),
    ],
)
def test_options_that_do_not_fit(words: list[str], said: str) -> None:
    done = called("bench", *SERVER, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_holds_no_certificate(tmp_path: Path) -> None:
    file = tmp_path / "not.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    with refuses("certificate-unreadable"):
        read_ca(file)


@pytest.mark.parametrize("name", GONE)
def test_a_removed_option_says_what_replaced_it(name: str) -> None:
    with refuses("removed"):
        options().parse_args([*SERVER, name.removeprefix("bench "), "1"])
