"""Role weights: models are read by everybody who serves, changed by root alone, and whole."""

from __future__ import annotations

from typing import Any

MODELS = "/models"


def test_a_model_is_there(host: Any) -> None:
    assert host.file(MODELS).is_directory
    assert host.check_output(f"find {MODELS} -type f -size +1M") != ""


def test_nothing_is_half_there(host: Any) -> None:
    assert host.check_output(f"find {MODELS} -name '*.incomplete' -o -name '*.part'") == ""


def test_only_root_changes_them(host: Any) -> None:
    assert host.check_output(f"find {MODELS} -not -user root -o -perm /022 -not -type l") == ""
