"""What every script shares: the library on the path, and errors as found/needed/do."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# There is no install step: the library is imported from the clone.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.exit_codes import DONE, of_error


def run(main: Callable[[], int]) -> None:
    """Run a script's main; a DrafthouseError becomes its lines on stderr and the status that it means."""
    try:
        sys.exit(main())
    except DrafthouseError as error:
        sys.exit(_say(error))
    except BrokenPipeError:
        sys.exit(DONE)  # the reader (head, less) has seen enough


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the script's own docstring: its first paragraph above, the rest below."""
    intro, _, rest = (doc or "").partition("\n\n")
    return argparse.ArgumentParser(description=intro, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter)


def apart(argv: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return a script's own words (the command line's where ``argv`` is None), and those behind the first `--`."""
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    return words[:split], words[split + 1 :]


def project() -> Mapping[str, Any]:
    """Return name, version and description of this release."""
    import tomllib  # noqa: PLC0415 (Python 3.11; some scripts run before it is there)

    text = (Path(__file__).resolve().parent.parent / "pyproject.toml").read_text("utf-8")
    return dict(tomllib.loads(text)["project"])


def _say(error: DrafthouseError) -> int:
    print(error, file=sys.stderr)
    return of_error(error)
