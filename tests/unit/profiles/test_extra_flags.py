"""`serve.extra` and `environment`: any flag and any variable, but for those that are somebody else's."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory

HOUSE = load_catalog(ROOT)
SUITES = {suite: list(data["kinds"]) for suite, data in load_suites([], ROOT).items()}
VLLM, LLAMA, TRTLLM = "rtx6000-qwen-eagle3", "cpu-smollm2-ngram", "rtx6000-gptoss-trtllm-eagle3"


def resolved(name: str, **overrides: Any) -> Any:
    site: Any = site_of_inventory(HOUSE.hardware[HOUSE.profiles[name]["hardware"]]["inventory"])
    site["runtime"] = "docker" if name == TRTLLM else "process"
    return resolve(HOUSE, name, site, SUITES, overrides)


def codes(name: str, **overrides: Any) -> list[tuple[str, str]]:
    with pytest.raises(DrafthouseError) as caught:
        resolved(name, **overrides)
    return [(one.code, one.found.split(",")[0]) for one in caught.value.problems]


def extra(*words: Any) -> dict[str, Any]:
    return {"extra": list(words)}


def test_flags_are_rendered_as_given_and_the_same_in_both_arms() -> None:
    words = ["--no-enable-chunked-prefill", "--stream_interval", 4, "-ep", "--compilation-config.mode=3"]
    found = resolved(VLLM, serve=extra(*words, "--lora-modules", "a=/a", "b=/b"), environment={"VLLM_LOG": "a b"})
    wanted = [["--no-enable-chunked-prefill"], ["--stream_interval", "4"], ["-ep"], ["--compilation-config.mode=3"]]
    wanted.append(["--lora-modules", "a=/a", "b=/b"])
    for arm in ("baseline", "speculative"):
        flags = found["arms"][arm]["flags"]
        start = flags.index(wanted[0])
        assert flags[start : start + len(wanted)] == wanted
        assert found["arms"][arm]["environment"]["VLLM_LOG"] == "a b"
    assert not any("unchecked" in warning for warning in found["warnings"])


@pytest.mark.parametrize(
    ("profile", "words", "found"),
    [
        (VLLM, ["--stream-interva", "4"], ("unknown-flag", "--stream-interva")),
        (VLLM, ["--swap-space", "4"], ("unknown-flag", "--swap-space")),
        (VLLM, ["--seed"], ("wrong-type", "--seed with no value")),
        (VLLM, ["--enable-eplb=true"], ("wrong-type", "--enable-eplb with 1 value")),
        (VLLM, ["loose", "--seed", "1"], ("unknown-flag", "'loose' where no value is expected")),
        (VLLM, ["--enable-eplb", "on"], ("unknown-flag", "'on' where no value is expected")),
        (VLLM, ["--spec-tokens", "3"], ("reserved-flag", "--spec-tokens")),
        (VLLM, ["-sc.method", "ngram"], ("reserved-flag", "-sc.method")),
        (VLLM, ["--speculative_config={}"], ("reserved-flag", "--speculative_config")),
        (VLLM, ["--max-model-len", "4"], ("reserved-flag", "--max-model-len")),
        (VLLM, ["--no-enforce-eager"], ("reserved-flag", "--no-enforce-eager")),
        (VLLM, ["--api-key", "x"], ("reserved-flag", "--api-key")),
        (VLLM, ["--ssl-keyfile", "x"], ("reserved-flag", "--ssl-keyfile")),
        (VLLM, ["--config", "x.yaml"], ("reserved-flag", "--config")),
        (LLAMA, ["-hfd", "x"], ("reserved-flag", "-hfd")),
        (LLAMA, ["--draft-max", "8"], ("reserved-flag", "--draft-max")),
        (LLAMA, ["-m", "x"], ("reserved-flag", "-m")),
        (LLAMA, ["--api-key", "x"], ("reserved-flag", "--api-key")),
        (LLAMA, ["--port", "1"], ("reserved-flag", "--port")),
        (LLAMA, ["-ub"], ("wrong-type", "-ub with no value")),
        (TRTLLM, ["--host", "0.0.0.0"], ("reserved-flag", "--host")),
        (TRTLLM, ["--extra-llm-api-options", "x"], ("reserved-flag", "--extra-llm-api-options")),
    ],
)
def test_what_is_somebody_elses_or_nobodys_is_refused(profile: str, words: list[str], found: tuple[str, str]) -> None:
    assert codes(profile, serve=extra(*words)) == [found]


@pytest.mark.parametrize("serve", [{"chat_template": "{% x %}"}, extra("--default-chat-template-kwargs", "{not json")])
def test_a_value_that_begins_as_json_does_is_any_text(serve: dict[str, Any]) -> None:
    assert resolved(VLLM, serve=serve)


def test_the_nearest_flag_is_named() -> None:
    with pytest.raises(DrafthouseError, match="write --stream-interval"):
        resolved(VLLM, serve=extra("--stream-intervall", 4))


def test_a_version_has_its_own_flags() -> None:
    assert codes(
        VLLM, engine_version="0.26.0", serve=extra("--enable-offline-docs", "--sse-keep-alive-interval", 5)
    ) == [("unknown-flag", "--sse-keep-alive-interval")]


@pytest.mark.parametrize(("profile", "version"), [(VLLM, "0.31.0"), (TRTLLM, None)])
def test_without_a_list_a_flag_passes_with_a_warning(profile: str, version: str | None) -> None:
    overrides = {"engine_version": version} if version else {}
    found = resolved(profile, serve=extra("--of-tomorrow", "1"), **overrides)
    assert ["--of-tomorrow", "1"] in found["arms"]["baseline"]["flags"]
    assert any("there is no flag list" in warning for warning in found["warnings"])


@pytest.mark.parametrize(
    ("profile", "version", "words"),
    [
        (VLLM, "0.31.0", ["-sc", "{}"]),
        (VLLM, "0.31.0", ["-tp", "2"]),
        (LLAMA, "2026.8.10566", ["-md", "x"]),
        (LLAMA, "2026.8.10566", ["-c", "4096"]),
        (LLAMA, "2026.8.10566", ["-np", "8"]),
    ],
)
def test_without_a_list_a_short_spelling_is_still_somebodys(profile: str, version: str, words: list[str]) -> None:
    assert codes(profile, engine_version=version, serve=extra(*words)) == [("reserved-flag", words[0])]


def test_without_a_list_several_values_of_a_flag_pass() -> None:
    words = ["--of-tomorrow", "a", "b"]
    assert words in resolved(VLLM, serve=extra(*words), engine_version="0.31.0")["arms"]["baseline"]["flags"]


def test_without_a_list_the_beginning_of_a_refused_flag_is_refused() -> None:
    assert codes(VLLM, engine_version="0.31.0", serve=extra("--speculative-conf", "{}")) == [
        ("reserved-flag", "--speculative-conf")
    ]


def test_what_the_plan_cannot_count_is_said() -> None:
    found = resolved(VLLM, serve=extra("-dcp", 2))
    assert "-dcp: the plan of memory and devices does not count it" in found["warnings"]


@pytest.mark.parametrize("given", ["--seed 1", [["--seed", "1"]], [True], {"--seed": 1}])
def test_what_is_no_list_of_words_is_refused_and_not_repeated(given: object) -> None:
    ((code, found),) = codes(VLLM, serve={"extra": given})
    assert code == "wrong-type"
    assert "seed" not in found


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        (VLLM, "HF_TOKEN"),
        (VLLM, "VLLM_API_KEY"),
        (VLLM, "HF_HUB_OFFLINE"),
        (VLLM, "CUDA_VISIBLE_DEVICES"),
        (VLLM, "VLLM_SERVER_DEV_MODE"),
        (LLAMA, "LLAMA_ARG_SPEC_TYPE"),
        (TRTLLM, "DISABLE_HARMONY_ADAPTER"),
    ],
)
def test_variables_that_are_somebody_elses_are_refused(profile: str, name: str) -> None:
    assert codes(profile, environment={name: "1"}) == [("reserved-flag", name)]


# --- numbers of tokens, and words in their place --------------------------------------------------------


@pytest.mark.parametrize(("given", "tokens"), [("32k", 32000), ("32K", 32768), (8192, 8192), ("8192", 8192)])
def test_a_context_is_planned_as_the_engine_reads_it(given: object, tokens: int) -> None:
    found = resolved(VLLM, serve={"max_model_len": given})
    assert found["arms"]["baseline"]["fit"]["context"] == tokens
    assert ["--max-model-len", str(tokens)] in found["arms"]["speculative"]["flags"]
    assert found["offline"]["max_model_len"] == tokens


def test_a_unit_is_written_out_for_an_engine_that_would_read_the_digits_alone() -> None:
    found = resolved(LLAMA, serve={"context": "2K"})
    assert found["arms"]["baseline"]["fit"]["context"] == 2048
    assert ["--ctx-size", "2048"] in found["arms"]["speculative"]["flags"]


@pytest.mark.parametrize("word", ["auto", -1])
def test_a_context_that_the_engine_fits_is_planned_as_what_fits(word: object) -> None:
    whole = resolved(VLLM, serve={"max_model_len": word})
    assert whole["arms"]["speculative"]["fit"]["context"] == HOUSE.models["qwen3-32b"]["context"]
    less = resolved(VLLM, serve={"max_model_len": word, "gpu_memory_utilization": 0.76})
    fit = less["arms"]["speculative"]["fit"]
    assert 0 <= fit["left"] < fit["kv_per_token"]
    assert 0 < fit["context"] < HOUSE.models["qwen3-32b"]["context"]


def test_a_word_for_the_context_needs_a_version_that_knows_it() -> None:
    assert [code for code, _ in codes(VLLM, engine_version="0.13.0", serve={"max_model_len": "auto"})] == [
        "option-not-in-version"
    ]


@pytest.mark.parametrize("given", ["much", -2, 1.5, "32q", True, [], 0, "1.5", "1.5K", "9" * 400])
def test_what_is_no_number_of_tokens_is_refused(given: object) -> None:
    assert [code for code, _ in codes(VLLM, serve={"max_model_len": given})] == ["wrong-type"]


def test_a_context_of_0_is_the_models_own_where_the_engine_says_so() -> None:
    found = resolved(LLAMA, serve={"context": 0})
    assert found["arms"]["baseline"]["fit"]["context"] == HOUSE.models[HOUSE.profiles[LLAMA]["target"]]["context"]
