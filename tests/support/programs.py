"""What a test needs of the machine beside Python: programs, named where they are missing.

A minimal Debian has none of curl, ssh, gpg, ps and the like. A test that runs one says so with `needs`, and the last
lines of a run then name what was not there.
"""

from __future__ import annotations

import shutil

import pytest

#: Debian's packages, where they are called otherwise than the program.
_PACKAGES = {"cc": "gcc", "ps": "procps", "ssh": "openssh-client", "ssh-keygen": "openssh-client", "xz": "xz-utils"}


def missing(program: str) -> str | None:
    """The words for a program that is not installed; None where it is."""
    if shutil.which(program):
        return None
    return f"{program} is not installed (apt-get install {_PACKAGES.get(program, program)})"


def needs(*programs: str) -> pytest.MarkDecorator:
    """The mark that skips a test, by name, where one of these programs is missing."""
    said = [words for words in map(missing, programs) if words]
    return pytest.mark.skipif(bool(said), reason="; ".join(said) or "all of it is here")
