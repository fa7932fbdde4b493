"""The speed-up to expect of speculation, by load: what a step reads, what it computes, and what drafting costs.

A step of the target takes read/bandwidth + 2 * active parameters * tokens/(0.8 * peak), where b users with K drafted
tokens each are b * (K + 1) tokens. Of the E experts of a mixture, n tokens that use k each read E * (1 - (1 - k/E)^n);
neighbouring tokens choose alike, so a drafted one counts as 0.2 there. The speed-up is L * t(b) / (t(b, K) + drafting),
L being the mean acceptance length: as Leviathan, Kalman, Matias 2023 (theorem 3.8), with the load.

0.8 is fitted on one public set (Llama-3.1-8B with EAGLE-3 on an A100), 0.2 on SpecForge's table: tests/real_data. The
KV cache is left out, so contexts are short. 16-bit arithmetic is assumed: a model in 8 bits pays until a higher load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.format import times

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ExpectedSpeed

#: Of the peak that a data sheet names, what matrix products reach.
_REACHED = 0.8
#: Of a drafted token, what counts where experts are chosen.
_CHOOSES_ANEW = 0.2
#: Half of the measured rows of SpecForge are within 5 %, nine of ten within this.
REACH = 0.17
#: Users at once up to which a crossover is looked for.
MOST_USERS = 512
MOST_TOKENS = 16


def mean_acceptance_length(acceptance: float, drafted: int) -> float:
    """Tokens that a step yields: 1 + a + ... + a^K, with ``acceptance`` a, the chance of one drafted token."""
    return 1.0 + sum(acceptance**position for position in range(1, drafted + 1))


@dataclass(frozen=True)
class Drafting:
    """What drafting costs: ``read`` bytes a token; each pass also ``seconds``, and a ``share`` of a target's step.

    ``one_pass``: all tokens of a draft come out of one pass.
    """

    read: int
    seconds: float = 0.0
    share: float = 0.0
    one_pass: bool = False


@dataclass(frozen=True)
class Target:
    """What a step of the target reads and computes on a box; bytes, bytes/s and FLOP/s of all devices together.

    ``rest`` is read by every step. Of ``experts`` bytes a token reads ``used`` of ``of`` parts. ``peak`` is 0 where it
    is not known: a step then costs what it reads.
    """

    rest: int
    parameters: float
    bandwidth: float
    peak: float = 0.0
    experts: int = 0
    used: int = 1
    of: int = 1

    def step_s(self, users: int, drafted: int = 0) -> float:
        """Seconds of a step that verifies ``drafted`` tokens for each user."""
        choosing = users * (1 + _CHOOSES_ANEW * drafted)
        read: float = self.rest + self.experts * (1 - (1 - self.used / self.of) ** choosing)
        seconds = read / self.bandwidth
        if self.peak:
            seconds += 2 * self.parameters * users * (1 + drafted) / (_REACHED * self.peak)
        return seconds

    def speedup(self, drafting: Drafting, users: int, drafted: int, length: float) -> float:
        """Speed-up for ``users`` at once, ``drafted`` tokens each, of which ``length`` - 1 are accepted."""
        plain = self.step_s(users)
        passes = 1 if drafting.one_pass else drafted
        draft = passes * (drafting.read / self.bandwidth + drafting.seconds + drafting.share * plain)
        return length * plain / (self.step_s(users, drafted) + draft)

    def pays_until(self, drafting: Drafting, drafted: int, length: float) -> int | None:
        """Most users at once for whom it is faster; 0 where for none, None where it is for all that are looked at."""
        if self.speedup(drafting, MOST_USERS, drafted, length) > 1:
            return None
        users = 1
        while users < MOST_USERS and self.speedup(drafting, users, drafted, length) > 1:
            users += 1
        return users - 1

    def best_tokens(self, drafting: Drafting, users: int, acceptance: float, most: int) -> int:
        """Drafted tokens, up to ``most``, that gain most for ``users`` at once."""

        def gain(drafted: int) -> float:
            return self.speedup(drafting, users, drafted, mean_acceptance_length(acceptance, drafted))

        return max(range(1, min(most, MOST_TOKENS) + 1), key=gain)


def expected_words(expected: ExpectedSpeed) -> str:
    """The speed-up to expect, its range, for how many users, and until how many it pays; "" where none is expected."""
    # Reports of earlier versions have no range.
    if expected.get("low") is None:
        return ""
    users = f"{expected['users']} users at once"
    if expected["users"] == 1:
        users = "one user"
    words = f"about {times(expected['speedup'], 1)} ({expected['low']:.1f} to {expected['high']:.1f}) for {users}"
    if expected["until"] is None:
        return words
    if expected["until"] == 0:
        return f"{words}: it would not pay"
    return f"{words}, until about {expected['until']} at once"
