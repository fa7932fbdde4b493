"""Pages of these tests have their text and tables; drawings where a test asks for them."""

from __future__ import annotations

import pytest

from drafthouse.report.plots import by_category


@pytest.fixture(autouse=True)
def text_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Render pages as where matplotlib is not installed: drawing is most of their time. `drawn` has them whole."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(by_category, "draw", lambda report: {})


@pytest.fixture
def drawn() -> None:
    """Draw what the page shows."""
