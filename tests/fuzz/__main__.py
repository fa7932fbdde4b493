"""One name for the library before any of it is imported: an error that a plugin raises is the one that is caught."""

from __future__ import annotations

from tests.support import one_name

one_name.install()

from tests.fuzz.runner import main  # noqa: E402

raise SystemExit(main())
