"""A refusal as tests expect it: by its code, since words may change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from drafthouse.core.errors import DrafthouseError


@contextmanager
def refuses(*codes: str, match: str = "") -> Iterator[pytest.ExceptionInfo[DrafthouseError]]:
    """Expect a DrafthouseError whose problems have these codes, in this order.

    ``match`` is searched for in its text: a name or a number that must be quoted.
    """
    with pytest.raises(DrafthouseError) as caught:
        yield caught
    assert tuple(problem.code for problem in caught.value.problems) == codes, str(caught.value)
    assert re.search(match, str(caught.value)), str(caught.value)
