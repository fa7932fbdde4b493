"""site.yml on a box that has nothing yet, where only a look at it is asked for: it takes no time that counts."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import play
from tests.support.ports import free_port

PROFILE = "cpu-smollm2-ngram"


def test_check_mode_on_a_bare_box(tmp_path: Path) -> None:
    home = tmp_path / "bare"
    checked = play(
        "site.yml", "--check", "--diff",
        profile=PROFILE, drafthouse_home=str(home), drafthouse_models_dir=str(home / "m"),
        drafthouse_port=free_port(2),
    )  # fmt: skip
    assert checked.status == 0, checked.output[-2000:]
    assert not home.exists()
