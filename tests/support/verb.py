"""A verb of `drafthouse` in the tests' own process: its door, without the seconds that a new interpreter takes.

That the programs start is seen where one is started (`test_makefile.py`, `test_scripts.py`, the examples of each help).
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from unittest import mock

from drafthouse.cli.main import main
from drafthouse.cli.parser import run


def called(
    *words: object, folder: str | None = None, given: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a verb in ``folder``, its environment changed by ``environment``; return its exit status and what it said.

    ``given`` is what it reads from its standard input, which is no terminal.
    """
    argv = [str(word) for word in words]
    said, told, status = io.StringIO(), io.StringIO(), None
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environment))
        stack.enter_context(mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode()), "utf-8")))
        stack.enter_context(contextlib.redirect_stdout(said))
        stack.enter_context(contextlib.redirect_stderr(told))
        if folder:
            stack.enter_context(contextlib.chdir(folder))
        try:
            run(lambda: main(argv))
        except SystemExit as ended:
            status = ended.code
    code = status if isinstance(status, int) else 0 if status is None else 1
    return subprocess.CompletedProcess(argv, code, said.getvalue(), told.getvalue())
