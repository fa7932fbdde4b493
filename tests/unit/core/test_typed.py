"""What a person types: make's targets in our texts, as the verbs of an installed wheel."""

from __future__ import annotations

import pytest

from drafthouse.core.typed import with_verbs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("add it (make profiles shows them all)", "add it (drafthouse profiles shows them all)"),
        ("make destroy ARGS=31 YES=1 ends it", "drafthouse destroy 31 --yes ends it"),
        ("make tunnel INVENTORY=vastai HOST=vast-3", "drafthouse tunnel --inventory vastai --host vast-3"),
        ("make rent PROFILE=x MAX_PRICE=2.50)", "drafthouse rent x --max-price 2.50)"),
        (
            "make cpu-x INVENTORY=/tmp/a ARGS='-e remeasure=true'   (again)",
            "drafthouse run cpu-x --inventory /tmp/a -- -e remeasure=true   (again)",
        ),
        ("(ARGS='-e remeasure=true' measures again)", "(-- -e remeasure=true measures again)"),
        ("serve one first: make NAME", "serve one first: drafthouse run NAME"),
        ("make doctor OUTSIDE=near", "drafthouse doctor --from near"),
        ("make one at the console, or make it again", "make one at the console, or make it again"),
    ],
)
def test_a_wheel_has_verbs_and_a_clone_has_targets(text: str, expected: str) -> None:
    assert with_verbs(text, installed=True) == expected
    assert with_verbs(text, installed=False) == text
