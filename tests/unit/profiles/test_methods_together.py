"""A lookup beside a method (`speculation.also`), for an engine that runs both at once."""

from __future__ import annotations

import pytest

from tests.support.made_methods import with_method
from tests.support.refusals import refuses

LLAMA, VLLM = "rtx4090-llama32-llamacpp-draft1b", "rtx6000-gptoss-ngram"


def test_both_are_named_to_the_engine_in_the_speculative_arm_alone() -> None:
    found = with_method(LLAMA, "draft-mtp", also="ngram-mod")
    assert ["--spec-type", "draft-mtp,ngram-mod"] in found["arms"]["speculative"]["speculation_flags"]
    assert not found["arms"]["baseline"]["speculation_flags"]
    assert found["method"]["name"] == "draft-mtp and ngram-mod"
    assert found["method"]["settings"]["--spec-type"] == "draft-mtp,ngram-mod"


@pytest.mark.parametrize(
    ("profile", "method", "also", "match"),
    [
        (LLAMA, "draft-mtp", "ngram-mods", "ngram-mod"),
        (LLAMA, "draft-mtp", "draft-simple", "a lookup beside 'draft-mtp'"),
        (LLAMA, "ngram-mod", "ngram-mod", "a lookup beside 'ngram-mod'"),
        (VLLM, "ngram", "suffix", "one method at a time"),
    ],
)
def test_what_cannot_stand_beside_it_is_refused(profile: str, method: str, also: str, match: str) -> None:
    with refuses("several-methods", match=match):
        with_method(profile, method, also=also)
