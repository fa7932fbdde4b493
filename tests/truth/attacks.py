"""The attacks that once won a `pays`, and the tests that hold each of them off, as a table.

Run as a part of `make truth`: `python -m tests.truth.attacks` runs the tests, most of them against servers that cheat.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from drafthouse.profiles.workspace import ROOT


@dataclass(frozen=True)
class Attack:
    """What was done, what the verdict must say now, and the tests of it: files below tests/, ``file::test``."""

    number: int
    done: str
    now: str
    tests: tuple[str, ...]


ATTACKS = (
    Attack(1, "each server start has a speed of its own", "at most 5 of 400 `pays`",
           ("unit/analysis/test_truth.py::test_two_rounds_of_a_box_that_moves_are_no_gain",
            "unit/analysis/test_truth.py::test_more_rounds_are_bought_without_more_false_gains")),
    Attack(2, "one of four steps 20 % slower", "named, outvoted, or `cannot say`",
           ("unit/analysis/test_truth.py::test_an_odd_step_is_named_and_outvoted",
            "unit/analysis/test_truth.py::test_an_odd_step_that_nobody_can_outvote_leaves_nothing_to_say")),
    Attack(3, "the box speeds up in the course of the run", "at most 5 of 400 `pays`",
           ("unit/analysis/test_truth.py::test_two_rounds_of_a_box_that_moves_are_no_gain",)),
    Attack(4, "the interval at small numbers of prompts", "covers 94.5 % or more",
           ("unit/analysis/test_truth.py::test_the_interval_of_a_median_covers_it",)),
    Attack(5, "right answers up to some token, then garbage", "`does not pay: wrong output`",
           ("unit/analysis/test_degenerate_text.py::test_right_at_first_and_then_exclamation_marks",
            "unit/bench/test_output_scoring.py::test_an_arm_that_says_what_its_target_would_not_fails")),
    Attack(6, "right at temperature 0, garbage at 0.6", "`does not pay: wrong output`",
           ("unit/analysis/test_degenerate_text.py::test_right_at_temperature_0_and_exclamation_marks_at_the_models_own",)),
    Attack(7, "usage half again as high; 10^12 tokens", "`invalid`, both sources named",
           ("unit/analysis/test_usage_check.py::test_usage_half_again_as_high_for_the_same_text_is_invalid_and_no_gain",
            "unit/analysis/test_usage_check.py::test_a_trillion_tokens_where_32_were_asked_for")),
    Attack(8, "all text is thoughts, no answer", "no equal answer, no `pays`",
           ("unit/analysis/test_degenerate_text.py::test_thoughts_alone_are_no_equal_answer_and_do_not_pay",)),
    Attack(9, "faster per token, slower to answer", "`does not pay`, with the milliseconds",
           ("unit/analysis/test_user_clock.py::test_faster_per_token_and_slower_to_answer_does_not_pay",)),
    Attack(10, "a ladder whose prompts differ by 30 %", "pays at level 1, as its verdict says",
           ("unit/bench/sweep/test_laws.py::test_a_gain_for_one_user_stands_though_the_prompts_differ_by_30_percent",
            "unit/bench/sweep/test_laws.py::test_a_ladder_that_never_pays_says_so_when_servers_differ_from_start_to_start")),
    Attack(11, "answers in one chunk", "no time per token, and counted",
           ("unit/bench/test_client_streams.py::test_an_answer_that_comes_at_once_has_no_time_per_token",)),
    Attack(12, "the stream stays open after [DONE]", "the answer ends there",
           ("unit/bench/test_client_streams.py::test_an_answer_ends_with_done_though_the_stream_stays_open",)),
    Attack(13, "usage too low or zero; gzip; a byte order mark", "said as what it is; no token lost",
           ("unit/analysis/test_usage_check.py::test_a_usage_of_nothing_or_too_little_is_no_other_client",
            "unit/bench/test_client_streams.py::test_a_compressed_stream_is_read_as_it_comes",
            "unit/bench/test_client_streams.py::test_a_byte_order_mark_is_no_token_and_takes_none")),
    Attack(14, "a busy machine: a control as wide as the gain", "`cannot say`",
           ("unit/analysis/test_truth.py::test_a_control_as_wide_as_the_gain_leaves_nothing_to_say",
            "unit/analysis/test_truth.py::test_other_work_beside_one_arm_leaves_nothing_to_say")),
)  # fmt: skip


class _Seen:
    """Which tests ran, and whether each passed; a parametrised one counts under its plain name."""

    def __init__(self) -> None:
        self.passed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("[")[0].removeprefix("tests/")
        if report.when == "call" or not report.passed:
            self.passed[name] = report.passed and self.passed.get(name, True)


def main() -> int:
    """Run the tests and print the table; return 1 where an attack still wins."""
    seen = _Seen()
    wanted = sorted({f"{ROOT}/tests/{test}" for attack in ATTACKS for test in attack.tests})
    pytest.main(["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *wanted], [seen])
    print("\n| # | what is done | what the verdict says | tests |\n|---|---|---|---|")
    held = True
    for attack in ATTACKS:
        passed = [seen.passed.get(test, False) for test in attack.tests]
        held = held and all(passed)
        print(f"| {attack.number} | {attack.done} | {attack.now} | {sum(passed)} of {len(passed)} hold |")
    print("\n" + ("every attack is held off" if held else "an attack still wins"))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
