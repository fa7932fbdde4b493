"""The speed-up to expect at a load: from the bytes that a step reads, its arithmetic, and the cost of drafting.

For b users with K drafted tokens each, a step of the target checks b * (K + 1) tokens. It takes
read / bandwidth + 2 * active parameters * tokens / (0.8 * peak) seconds. In a mixture of E experts, n tokens that use k
experts each read E * (1 - (1 - k/E)^n) of them; neighbouring tokens choose alike, so a drafted token counts as 0.2
tokens there. The speed-up is L * t(b) / (t(b, K) + drafting), with L the mean acceptance length: theorem 3.8 of
Leviathan, Kalman, Matias 2023, extended by the load.

0.8 is fitted to a public data set (Llama-3.1-8B, EAGLE-3, A100), 0.2 to SpecForge's table: tests/real_data. Short
contexts (no KV cache) and 16-bit arithmetic are assumed: with a model in 8 bits speculation pays up to a higher load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.format import times

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ExpectedSpeed

#: The fraction of a data sheet's peak FLOP/s that matrix products reach.
_PEAK_FRACTION = 0.8
#: As what fraction of a token a drafted token counts in the choice of experts.
_DRAFTED_WEIGHT = 0.2
#: Half the range's width, as a fraction: nine of ten measurements of SpecForge are within it, half within 0.05.
REACH = 0.17
#: The most users at once, and the largest K, that are tried.
MOST_USERS = 512
MOST_TOKENS = 16


def mean_acceptance_length(acceptance: float, drafted: int) -> float:
    """Mean tokens per step: 1 + a + ... + a^K, where a is ``acceptance``, the chance of one token, K ``drafted``."""
    return 1.0 + sum(acceptance**position for position in range(1, drafted + 1))


@dataclass(frozen=True)
class Drafting:
    """The time of one pass of the draft, which is the sum of three parts."""

    read: int  # bytes that the pass reads; their time follows from the bandwidth
    seconds: float = 0.0  # that every pass takes besides
    share: float = 0.0  # of the time of a target's step without drafting
    one_pass: bool = False  # True if one pass yields all K tokens, False if it yields one token


@dataclass(frozen=True)
class Target:
    """The cost of a target's steps, on all devices together."""

    rest: int  # bytes that every step reads, whatever its tokens
    parameters: float  # active for one token
    bandwidth: float  # bytes/s
    peak: float = 0.0  # FLOP/s; 0 if unknown: a step then costs only what it reads
    experts: int = 0  # bytes in experts; 0 for a model without them
    used: int = 1  # experts that one token passes through
    of: int = 1  # experts in a layer

    def step_s(self, users: int, drafted: int = 0) -> float:
        """Seconds of a step that checks ``drafted`` tokens of each of the ``users``."""
        choices = users * (1 + _DRAFTED_WEIGHT * drafted)
        read: float = self.rest + self.experts * (1 - (1 - self.used / self.of) ** choices)
        seconds = read / self.bandwidth
        if self.peak:
            seconds += 2 * self.parameters * users * (1 + drafted) / (_PEAK_FRACTION * self.peak)
        return seconds

    def speedup(self, drafting: Drafting, users: int, drafted: int, length: float) -> float:
        """Speed-up for ``users`` at once with K = ``drafted``, of which on average ``length`` - 1 are accepted."""
        plain_step = self.step_s(users)
        passes = 1 if drafting.one_pass else drafted
        draft = passes * (drafting.read / self.bandwidth + drafting.seconds + drafting.share * plain_step)
        return length * plain_step / (self.step_s(users, drafted) + draft)

    def pays_until(self, drafting: Drafting, drafted: int, length: float) -> int | None:
        """The most users up to whom speculation is always faster; 0 for none, None for all up to `MOST_USERS`.

        With a mixture of experts the gain falls while more users read more experts, and rises once all are read.
        """
        for users in range(1, MOST_USERS + 1):
            if self.speedup(drafting, users, drafted, length) <= 1:
                return users - 1
        return None

    def best_tokens(self, drafting: Drafting, users: int, acceptance: float, most: int) -> int:
        """The K, from 1 to ``most`` (and `MOST_TOKENS`), with the highest speed-up for ``users`` at once.

        ``acceptance``: the chance that one drafted token is accepted. The smallest of several equal K.
        """

        def gain(drafted: int) -> float:
            return self.speedup(drafting, users, drafted, mean_acceptance_length(acceptance, drafted))

        return max(range(1, min(most, MOST_TOKENS) + 1), key=gain)


def expected_words(expected: ExpectedSpeed) -> str:
    """The expected speed-up in words, with its range, users, and the most users for whom it pays; '' without one."""
    # Reports of earlier versions have no `low` and `high`.
    if expected.get("low") is None:
        return ""
    users = f"{expected['users']} users at once"
    if expected["users"] == 1:
        users = "one user"
    text = f"about {times(expected['speedup'], 1)} ({expected['low']:.1f} to {expected['high']:.1f}) for {users}"
    if expected["until"] is None:
        return text
    if expected["until"] == 0:
        return f"{text}: it would not pay"
    return f"{text}, until about {expected['until']} at once"
