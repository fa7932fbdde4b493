"""Is one arm worse than the other by more than chance: exact tests over pairs of answers to the same prompts.

In all of them the hypothesis is that the two answers of a pair were drawn alike, so that which arm gave which is a
coin's choice. Nothing is asked of the distribution of what is compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..bench.stats import SEED

#: So many pairs are tested by going through all of their signs; more by drawing signs.
ALL_SIGNS = 12
DRAWS = 10_000
#: Up to so many pairs the margin test needs fewer losses than the sign test to be sure.
FEW_PAIRS = 16


def sign_test(lost: int, won: int) -> float:
    """The chance of at least ``lost`` losses among ``lost + won`` changes when both ways are as likely.

    The one-sided sign test (Conover, Practical Nonparametric Statistics, 3rd edition 1999, section 3.4):
    the upper tail of a binomial distribution with p = 1/2. 1 without any change.
    """
    changes = lost + won
    return sum(math.comb(changes, k) for k in range(lost, changes + 1)) / 2.0**changes


def binomial_tail(hits: int, draws: int, each: float) -> float:
    """The probability of at least ``hits`` in ``draws`` where each is a hit with the probability ``each``."""
    return math.fsum(math.comb(draws, k) * each**k * (1.0 - each) ** (draws - k) for k in range(hits, draws + 1))


def margin_test(lost: int, won: int, pairs: int) -> float:
    """The most that the chance of a margin ``lost - won`` can be over ``pairs`` pairs of equal arms.

    An answer is bad with some chance p, the same in both arms, whatever it is for each prompt; a pair is lost when
    only the second is bad. The margin of a pair is most spread out at p = 1/2 (comparable peakedness: Birnbaum 1948,
    Annals of Mathematical Statistics 19), and the sum of ``pairs`` of those plus ``pairs`` is binomial with
    2 ``pairs`` draws. Unlike the sign test it counts the pairs that did not change: six of six lost are 1 in 4096.
    """
    if lost <= won:
        return 1.0
    draws = 2 * pairs
    return sum(math.comb(draws, k) for k in range(pairs + lost - won, draws + 1)) / 2.0**draws


def losses_chance(lost: int, won: int, pairs: int) -> float:
    """The chance of so many losses among equal arms, by the test that needs the fewer of them.

    Which one is fixed by the number of pairs alone: five of six are lost against none, or eight of any number.
    """
    return margin_test(lost, won, pairs) if pairs <= FEW_PAIRS else sign_test(lost, won)


def flip_test(differences: Sequence[float]) -> float:
    """The chance of so large a sum when each difference could as well have had the other sign.

    Fisher's randomization test for pairs (The Design of Experiments, 1935, section 21), one-sided: all signs up to
    12 pairs, otherwise 10,000 drawn with a fixed seed, the seen one counted among them (Phipson and Smyth 2010,
    Statistical Applications in Genetics and Molecular Biology 9). 1 for no differences.
    """
    values = np.asarray(differences, dtype=np.float64)
    n = len(values)
    if not n:
        return 1.0
    seen = float(values.sum()) - 1e-9 * float(np.abs(values).sum())
    if n <= ALL_SIGNS:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float((signs @ values >= seen).mean())
    signs = np.random.default_rng(SEED).integers(0, 2, size=(DRAWS, n), dtype=np.int8) * 2 - 1
    return float((int((signs @ values >= seen).sum()) + 1) / (DRAWS + 1))
