#!/usr/bin/env python3
"""Check, before anything is made, that `make venv` can work with this Python and folder. Runs on any Python 3."""

import getpass
import os
import sys

if sys.version_info < (3, 11):
    found = "Python %s" % sys.version.split()[0]  # noqa: UP031 (this Python may be older than f-strings)
    sys.exit("found: %s\nneeded: Python 3.11 or newer\ndo: make PYTHON=python3.12 ..." % found)  # noqa: UP031
if not os.access(".", os.W_OK):
    found = f"a folder that {getpass.getuser()} may not write to: {os.getcwd()}"  # noqa: PTH109 (as the shell shows it)
    sys.exit(f"found: {found}\nneeded: a clone of your own\ndo: git clone it to where you may write, or chown it")
try:
    import ensurepip  # noqa: F401
    import venv  # noqa: F401
except ImportError:
    sys.exit("found: a Python without venv\nneeded: its venv module\ndo: apt-get install python3-venv")
