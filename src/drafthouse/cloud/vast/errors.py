"""Errors of vast.ai's API, separated by what each means for the bill."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.errors import DrafthouseError, Problem


class VastError(DrafthouseError):
    """vast.ai refused a request or gave a malformed answer."""


class OfferGone(VastError):
    """The offer is gone, because someone else rented it."""


class QuotaSpent(VastError):
    """The account has no searches left today; a retry does not help."""


class KeyRefused(VastError):
    """The API key is invalid or lacks a permission."""


class OutOfReach(VastError):
    """vast.ai did not answer within all retries."""


class NotWhole(VastError):
    """The list of instances is incomplete, so it does not show everything that is billing."""


class OutcomeUnknown(VastError):
    """It is unknown whether a create request rented an instance; the caller must look for its label.

    ``refused`` is the refusal of a repeated request, or None. It is the result if no instance has the label.
    """

    def __init__(self, problems: Problem | Sequence[Problem], refused: VastError | None = None) -> None:
        super().__init__(problems)
        self.refused = refused
