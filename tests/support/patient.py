"""A step that is measured by a test is not given up where the machine stands still for some seconds.

The product gives it up, rightly (`bench/standstill.py`); whether it does is looked at in `test_standstill.py` alone.
"""

from __future__ import annotations

from functools import partial

import pytest

from drafthouse.bench import standstill, step
from drafthouse.bench.sweep import run

LATE_S = 120.0


@pytest.fixture(autouse=True)
def patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.name != "test_standstill.py":
        for module in (step, run):
            given = partial(standstill.wait_for_standstill, late_s=LATE_S)
            monkeypatch.setattr(module, "wait_for_standstill", given)
