"""What can go wrong with vast.ai's API, and what each case means for money."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.errors import DrafthouseError, Problem


class VastError(DrafthouseError):
    """vast.ai refused, or did not answer as it should."""


class OfferGone(VastError):
    """The offer is not there any more: somebody else was faster."""


class QuotaSpent(VastError):
    """No more searches today; trying again does not help."""


class KeyRefused(VastError):
    """The account's key is not valid, or may not do this."""


class OutOfReach(VastError):
    """No answer, however often it was asked."""


class NotWhole(VastError):
    """A list that is not all of it: what bills cannot be told from a part."""


class OutcomeUnknown(VastError):
    """A create was sent, and whether it rented something is not known: look for the label.

    ``refused`` is what a repeat of the request was refused with; it counts where no instance has the label.
    """

    def __init__(self, problems: Problem | Sequence[Problem], refused: VastError | None = None) -> None:
        super().__init__(problems)
        self.refused = refused
