"""TensorRT-LLM's methods as each version is told them, by the schema of its YAML: few of them are in a profile."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.versions import releases, supports
from tests.support.catalogue import table
from tests.support.made_methods import with_method

PROFILE = "rtx6000-gptoss-trtllm-eagle3"
ENGINE = table("engines")["trtllm"]
RELEASES = releases(ENGINE)
FIGURES: Any = {"int": 2, "bool": True, "float": 0.5}
TEXTS = {"moe_backend": "TRITON", "attention_backend": "TRTLLM"}
# Its drafts are whole models, of which the catalogue has none with gpt-oss's tokenizer.
MADE = sorted(set(ENGINE["methods"]) - {"draft_target"})


def speculative_config(method: str, version: str, **options: object) -> dict[str, Any]:
    """What the speculative arm's YAML says of it; the schema has passed it, or this raises DrafthouseError."""
    config: Any = with_method(PROFILE, method, version, options=options)["arms"]["speculative"]["config"]
    said: dict[str, Any] = config["data"]["speculative_config"]
    return said


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("method", MADE)
def test_a_method_with_all_its_options_passes_the_schema_of_each_version_that_has_it(method: str, version: str) -> None:
    entry = ENGINE["methods"][method]
    options = {
        name: TEXTS.get(name, FIGURES.get(option["type"]))
        for name, option in entry.get("options", {}).items()
        if supports(version, option)
    }
    if supports(version, entry):
        assert len(speculative_config(method, version, **options)) >= 2 + len(options)
        return
    with pytest.raises(DrafthouseError) as caught:
        speculative_config(method, version)
    (problem,) = caught.value.problems
    assert problem.found == f"TensorRT-LLM {version}, which does not have '{method}'"


@pytest.mark.parametrize(
    ("method", "version", "expected"),
    [
        ("eagle3", "1.2.1", {"Eagle", "max_draft_len", "speculative_model_dir"}),
        ("eagle3", "1.4.0rc1", {"Eagle3", "max_draft_len", "speculative_model"}),
        ("mtp", "1.2.1", {"MTP", "num_nextn_predict_layers"}),
        ("mtp", "1.3.0rc14", {"MTP", "num_nextn_predict_layers"}),
        ("mtp", "1.3.0rc19", {"MTP", "max_draft_len"}),
        ("dflash", "1.4.0rc1", {"DFlash", "max_draft_len", "speculative_model"}),
        ("sa", "1.4.0rc1", {"SA", "max_draft_len"}),
    ],
)
def test_the_words_of_each_version(method: str, version: str, expected: set[str]) -> None:
    said = speculative_config(method, version)
    assert {str(said.pop("decoding_type")), *said} == expected
    assert 3 in said.values()


def test_mtp_drafts_no_more_than_its_head_can() -> None:
    with pytest.raises(DrafthouseError) as caught:
        with_method(PROFILE, "mtp", "1.4.0rc1", head={"max_tokens": 2})
    (problem,) = caught.value.problems
    assert problem.where.endswith("speculation.num_speculative_tokens")


def test_mtp_without_a_head_in_the_target_is_refused() -> None:
    with pytest.raises(DrafthouseError) as caught:
        with_method(PROFILE, "mtp", "1.4.0rc1", head={"kind": "dflash"})
    (problem,) = caught.value.problems
    assert problem.code == "no-builtin-head"


def test_a_drafts_option_of_a_later_version_is_refused() -> None:
    with pytest.raises(DrafthouseError) as caught:
        speculative_config("eagle3", "1.3.0rc29", moe_backend="TRITON")
    (problem,) = caught.value.problems
    assert problem.code == "option-not-in-version"
    assert problem.where.endswith("speculation.options.moe_backend")


def test_sa_keeps_the_overlap_scheduler_and_lookup_on_the_host_does_not() -> None:
    arms: Any = [with_method(PROFILE, method, "1.4.0rc1")["arms"]["baseline"] for method in ("sa", "ngram")]
    assert ["disable_overlap_scheduler" in arm["config"]["data"] for arm in arms] == [False, True]
