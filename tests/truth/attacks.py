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
    Attack(1, "each server start has a speed of its own", "at most 1.5 % `pays`",
           ("unit/analysis/test_truth.py::test_without_a_gain_it_seldom_pays",)),
    Attack(2, "one start in three or four 20 to 50 % slower", "at most 5 % `pays`, nothing left out by its value",
           ("unit/analysis/test_truth.py::test_without_a_gain_it_seldom_pays",
            "unit/analysis/test_verdict.py::test_nothing_is_left_out_by_its_value",
            "unit/analysis/test_verdict.py::test_two_starts_of_an_arm_that_differ_need_four_rounds")),
    Attack(3, "the box slows down in the course of the run; a cold first step", "at most 1 % `pays`",
           ("unit/analysis/test_truth.py::test_without_a_gain_it_seldom_pays",)),
    Attack(4, "prompts that gain very differently", "more prompts are asked",
           ("unit/analysis/test_truth.py::test_a_gain_is_found_although_prompts_gain_differently",
            "unit/analysis/test_verdict.py::test_gains_that_differ_much_ask_for_prompts")),
    Attack(5, "right answers up to some token, then garbage", "`does not pay: wrong output`",
           ("unit/analysis/test_degenerate_text.py::test_right_at_first_and_then_exclamation_marks",
            "unit/bench/test_output_scoring.py::test_an_arm_that_says_what_its_target_would_not_fails")),
    Attack(6, "right at temperature 0, garbage at 0.6", "`does not pay: wrong output`",
           ("unit/analysis/test_degenerate_text.py::test_right_at_temperature_0_and_exclamation_marks_at_the_models_own",)),
    Attack(7, "usage half again as high; 10^12 tokens", "`invalid`, both sources named",
           ("unit/analysis/test_usage_check.py::test_usage_half_again_as_high_for_the_same_text_is_invalid_and_no_gain",
            "unit/analysis/test_text_clock.py::test_a_usage_that_is_moved_is_invalid",
            "unit/analysis/test_usage_check.py::test_a_trillion_tokens_where_32_were_asked_for")),
    Attack(8, "all text is thoughts, no answer", "no equal answer, no `pays`",
           ("unit/analysis/test_degenerate_text.py::test_thoughts_alone_are_no_equal_answer_and_do_not_pay",)),
    Attack(9, "faster per token, slower to answer", "`does not pay`, with the seconds in sum",
           ("unit/analysis/test_user_clock.py::test_faster_per_token_and_slower_to_answer_does_not_pay",)),
    Attack(10, "a ladder whose prompts differ by 30 %; a level beside its own control", "a claim that its level bears",
           ("unit/bench/sweep/test_laws.py::test_a_gain_for_one_user_stands_though_the_prompts_differ_by_30_percent",
            "unit/analysis/test_crossover.py::test_a_level_whose_control_or_a_round_reaches_the_gain_claims_nothing",
            "unit/bench/sweep/test_laws.py::test_a_ladder_that_never_pays_says_so_when_servers_differ_from_start_to_start")),
    Attack(11, "answers in one chunk", "no time per token, and counted",
           ("unit/bench/test_client_streams.py::test_an_answer_that_comes_at_once_has_no_time_per_token",)),
    Attack(12, "the stream stays open after [DONE]", "the answer ends there",
           ("unit/bench/test_client_streams.py::test_an_answer_ends_with_done_though_the_stream_stays_open",)),
    Attack(13, "usage too low or zero; gzip; a byte order mark", "said as what it is; no token lost",
           ("unit/analysis/test_usage_check.py::test_a_usage_of_nothing_or_too_little_is_no_other_client",
            "unit/bench/test_client_streams.py::test_a_compressed_stream_is_read_as_it_comes",
            "unit/bench/test_client_streams.py::test_a_byte_order_mark_is_no_token_and_takes_none")),
    Attack(14, "a control as wide as the gain; other work beside one arm", "`cannot say`, or in the sentence",
           ("unit/analysis/test_truth.py::test_a_control_as_wide_as_the_gain_is_in_the_sentence",
            "unit/analysis/test_truth.py::test_other_work_beside_one_arm_leaves_nothing_to_say")),
    Attack(15, "three of 16 prompts ten times slower", "no `pays`, the prompts named",
           ("unit/analysis/test_verdict.py::test_a_few_prompts_that_are_ten_times_slower_are_not_forgotten",
            "unit/analysis/test_verdict.py::test_faster_on_most_prompts_and_slower_over_all_does_not_pay")),
    Attack(16, "14 of 16 prompts with another text from the first token on", "`does not pay: wrong output`",
           ("unit/analysis/test_output_equality.py::"
            "test_texts_that_differ_from_the_first_token_on_are_not_diluted_by_those_that_are_equal",)),
    Attack(17, "an arm that ignores the temperature; answers twice as long", "`does not pay: wrong output`",
           ("unit/analysis/test_sampled_outputs.py::test_an_arm_that_ignores_the_temperature_is_wrong",
            "unit/analysis/test_sampled_outputs.py::test_answers_twice_as_long_are_wrong")),
    Attack(18, "5, 7 and 15 to 17, hidden tokens, other settings: real servers in the real loop", "each its own word",
           ("load/test_cheats.py::test_a_cheat_gets_the_word_that_it_deserves",)),
    Attack(19, "outputs that nothing could check", "in the sentence",
           ("unit/analysis/test_verdict.py::test_outputs_that_could_not_be_checked_are_in_the_sentence",)),
    Attack(20, "a verdict that takes too long to be asked for", "minutes by the plan",
           ("unit/profiles/test_experiment_plan.py::test_a_verdict_costs_minutes_by_the_plan",)),
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
        tests = "<br>".join(f"{'holds' if seen.passed.get(test) else 'FAILS'}: `{test}`" for test in attack.tests)
        print(f"| {attack.number} | {attack.done} | {attack.now} | {tests} |")
    print("\n" + ("every attack is held off" if held else "an attack still wins"))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
