"""`python -m drafthouse VERB`."""

from .cli.main import door

door()
