"""Remove secrets from text: known ones, and everything that looks like one. Standard library only, Python 3.10.

Known secrets, which `known_secrets` collects from the environment and from key files, are removed in every form
(secret_forms.py). What looks like a secret by its name, its place or its first characters is removed too, even where
it is not known (secret_shapes.py). Removing too much costs a question, removing too little costs a key. docs/doctor.md
names the limits.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from .secret_forms import SHORTEST, Forms, Whole
from .secret_shapes import GONE, PLAIN, is_secret_name, without_shapes

__all__ = ["GONE", "is_secret_name", "known_secrets", "redactor"]

_MOST_BYTES = 65536  # of a key file
# Variables of every shell. Their names look like secrets (PWD: password), but their values are paths.
_NO_SECRET = ("PWD", "OLDPWD")


def redactor(known: Iterable[str] = ()) -> Callable[[str], str]:
    """A function that removes secrets from a text: the ``known`` ones, and all that looks like one."""
    forms = Forms(known)

    def redact(text: str) -> str:
        return without_shapes(forms.without(text, GONE))

    return redact


def known_secrets(environ: Mapping[str, str], files: Iterable[Path] = ()) -> set[str]:
    """The secrets in an environment (by a variable's name, or in a URL) and in key files; unreadable ones are skipped.

    Left out is what is too short to be removed safely, or is no secret in spite of its name (`PLAIN`).
    """
    texts = [value for name, value in environ.items() if is_secret_name(name) and name not in _NO_SECRET]
    for path in files:
        try:
            texts.append(path.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace"))
        except OSError:
            continue
    # Each line of a key is a secret: a log may quote any of them.
    secrets: set[str] = set()
    for text in texts:
        secrets.update(_lines(text))
    for value in environ.values():
        for word in value.split():
            secrets |= _passwords_in(word)
    return {secret for secret in secrets if len(secret) >= SHORTEST and secret not in GONE and not PLAIN.match(secret)}


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a secret, without the first and the last line of a PEM file, which are no secret."""
    kind = Whole if "-----BEGIN" in text else str  # lines of a PEM file only count as a whole
    for line in text.splitlines():
        if "-----" not in line:
            yield kind(line.strip())


def _passwords_in(value: str) -> set[str]:
    """The password in a URL, such as a proxy's or a package index's, as written and with its quoting undone."""
    if "://" not in value:
        return set()
    try:
        password = urllib.parse.urlsplit(value).password
    except ValueError:
        return set()
    return {password, urllib.parse.unquote(password)} if password else set()
