from __future__ import annotations

import pytest
from ansible_collections.drafthouse.core.plugins.module_utils.experiment import told_in_log

# Lines of vLLM 0.32.0 on the CPU, as it printed them.
RUNNER = "WARNING 11-21 13:05:21 [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner instead.\n"
ASYNC = (
    "WARNING 11-21 13:06:22 [vllm.py:1605] Async scheduling not supported with ngram-based speculative decoding"
    " and will be disabled.\n"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", {}),
        (RUNNER, {"model_runner": "V1"}),
        (ASYNC, {"async_scheduling": "disabled"}),
        ("Asynchronous scheduling is enabled.\n" + ASYNC, {"async_scheduling": "disabled"}),
        ("Using V2 Model Runner\n", {"model_runner": "V2"}),
    ],
)  # fmt: skip
def test_what_an_engine_says_of_itself(text: str, told: dict[str, str]) -> None:
    assert told_in_log(text) == told
