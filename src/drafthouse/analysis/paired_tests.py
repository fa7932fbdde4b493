"""Exact one-sided tests whether one arm is worse than the other, over pairs of answers to the same prompts.

The null hypothesis: both answers of a pair come from one distribution, so a fair coin decides which
arm gave which. No distribution is assumed for the values. All results are probabilities (p-values).
A pair is lost if only its second answer (the speculative arm's) is bad, won if only its first is, else unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..bench.stats import SEED

#: `flip_test` enumerates all signs of at most this many pairs.
ALL_SIGNS = 12
#: For more pairs it draws this many random sign vectors.
DRAWS = 10_000
#: Up to this many pairs the margin test needs fewer losses than the sign test for significance.
FEW_PAIRS = 16


def sign_test(lost: int, won: int) -> float:
    """P(at least ``lost`` losses among ``lost + won`` changed pairs) if losses and wins are equally likely.

    The one-sided sign test (Conover, Practical Nonparametric Statistics, 3rd edition 1999, section
    3.4): the upper tail of a binomial distribution with p = 1/2; 1 if no pair changed.
    """
    changes = lost + won
    return sum(math.comb(changes, k) for k in range(lost, changes + 1)) / 2.0**changes


def binomial_tail(hits: int, draws: int, p: float) -> float:
    """P(at least ``hits`` hits in ``draws`` draws) if each is a hit with probability ``p``."""
    return math.fsum(math.comb(draws, k) * p**k * (1.0 - p) ** (draws - k) for k in range(hits, draws + 1))


def margin_test(lost: int, won: int, pairs: int) -> float:
    """An upper limit of P(margin >= ``lost - won``) over ``pairs`` pairs of equal arms.

    An answer is bad with a probability p that both arms share and that may differ by prompt. A pair's margin is 1 if it
    is lost, -1 if won, else 0; it spreads most at p = 1/2 (comparable peakedness: Birnbaum 1948, Annals of Mathematical
    Statistics 19), and the sum of these margins plus ``pairs`` is binomial with 2 ``pairs`` draws. Unlike the sign test
    it also uses the unchanged pairs: six lost of six have 1/4096. 1 if no more are lost than won.
    """
    if lost <= won:
        return 1.0
    draws = 2 * pairs
    return sum(math.comb(draws, k) for k in range(pairs + lost - won, draws + 1)) / 2.0**draws


def losses_chance(lost: int, won: int, pairs: int) -> float:
    """P(so many losses) among equal arms, by the test that needs fewer losses for significance.

    The number of pairs alone selects the test. For a probability below 0.5 %, five of six lost to none won suffice, or
    eight to none of any number.
    """
    return margin_test(lost, won, pairs) if pairs <= FEW_PAIRS else sign_test(lost, won)


def flip_test(differences: Sequence[float]) -> float:
    """P(so large a sum of the differences) if each difference could equally have the opposite sign.

    Fisher's randomization test for pairs (The Design of Experiments, 1935, section 21), one-sided: all signs
    up to 12 pairs, otherwise 10,000 drawn with a fixed seed, the observed signs counted among them (Phipson
    and Smyth 2010, Statistical Applications in Genetics and Molecular Biology 9). 1 for no differences.
    """
    values = np.asarray(differences, dtype=np.float64)
    n = len(values)
    if not n:
        return 1.0
    # Sums that differ from the observed one by rounding only count as equally large.
    observed = float(values.sum()) - 1e-9 * float(np.abs(values).sum())
    if n <= ALL_SIGNS:
        # A row for each of the 2^n sign vectors: bit k of its number gives the sign of difference k.
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float((signs @ values >= observed).mean())
    signs = np.random.default_rng(SEED).integers(0, 2, size=(DRAWS, n), dtype=np.int8) * 2 - 1
    return float((int((signs @ values >= observed).sum()) + 1) / (DRAWS + 1))
