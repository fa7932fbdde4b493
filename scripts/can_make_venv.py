#!/usr/bin/env python3
"""Refuse, before anything is made, a Python or a folder in which `make venv` cannot work. Any Python 3 reads this."""

import getpass
import os
import sys

if sys.version_info < (3, 11):
    found = "Python %s" % sys.version.split()[0]  # noqa: UP031 (older than f-strings is what it may run in)
    sys.exit("found: %s\nneeded: Python 3.11 or newer\ndo: make PYTHON=python3.12 ..." % found)  # noqa: UP031
if not os.access(".", os.W_OK):
    found = f"a folder that {getpass.getuser()} may not write to: {os.getcwd()}"  # noqa: PTH109 (as the shell says it)
    sys.exit(f"found: {found}\nneeded: a clone of your own\ndo: git clone it to where you may write, or chown it")
try:
    import ensurepip  # noqa: F401
    import venv  # noqa: F401
except ImportError:
    sys.exit("found: a Python without venv\nneeded: its venv module\ndo: apt-get install python3-venv")
