"""`python -m drafthouse VERB`."""

from .cli.main import door

if __name__ == "__main__":
    door()
