"""Take secrets out of text: those that are known, and what looks like one. Standard library only, Python 3.10.

Two ways together. Known secrets (`known_secrets`: of the environment, of key files) go wherever they stand and however
they are written (secret_forms.py). Beside them everything goes that has the name, the place or the beginning of a
secret (secret_shapes.py): it may be nobody's that we know. Too much taken out costs a question, too little costs a key.
What is not promised stands in docs/doctor.md.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from .secret_forms import SHORTEST, Forms, Whole
from .secret_shapes import GONE, PLAIN, is_secret_name, without_shapes

__all__ = ["GONE", "is_secret_name", "known_secrets", "redactor"]

_MOST_BYTES = 65536  # of a key file
# Of a shell, and in every environment: paths, which would be taken out everywhere.
_NO_SECRET = ("PWD", "OLDPWD")


def redactor(known: Iterable[str] = ()) -> Callable[[str], str]:
    """What takes secrets out of a text; ``known`` are secrets themselves."""
    forms = Forms(known)

    def redact(text: str) -> str:
        return without_shapes(forms.without(text, GONE))

    return redact


def known_secrets(environ: Mapping[str, str], files: Iterable[Path] = ()) -> set[str]:
    """The secrets of an environment (by the names of variables, and in URLs), and of files that hold one."""
    texts = [value for name, value in environ.items() if is_secret_name(name) and name not in _NO_SECRET]
    for path in files:
        try:
            texts.append(path.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace"))
        except OSError:
            continue
    # A key of several lines is known by its lines: a log may have any of them.
    found: set[str] = set()
    for text in texts:
        found.update(_lines(text))
    for value in environ.values():
        for word in value.split():
            found |= _of_url(word)
    return {secret for secret in found if len(secret) >= SHORTEST and secret not in GONE and not PLAIN.match(secret)}


def _lines(text: str) -> Iterator[str]:
    kind = Whole if "-----BEGIN" in text else str
    for line in text.splitlines():
        if "-----" not in line:
            yield kind(line.strip())


def _of_url(value: str) -> set[str]:
    """The password of a URL such as a proxy's or an index's."""
    if "://" not in value:
        return set()
    try:
        password = urllib.parse.urlsplit(value).password
    except ValueError:
        return set()
    return {password, urllib.parse.unquote(password)} if password else set()
