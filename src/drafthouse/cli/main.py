"""`drafthouse VERB`: finds the verb's file, and loads no other."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from types import ModuleType
from typing import NamedTuple

from ..core.errors import DrafthouseError, NotHere, Problem, did_you_mean
from ..core.exit_codes import DONE
from ..core.places import INSTALLED
from .parser import project, run


class Verb(NamedTuple):
    """A verb's line in the help; ``needs_clone`` where it works on roles, playbooks or what a clone keeps."""

    says: str
    needs_clone: bool = True


GROUPS = {
    "Without a box": {
        "profiles": Verb("list the profiles", needs_clone=False),
        "plan": Verb("what a profile would do: memory, downloads, the speed to expect", needs_clone=False),
        "render": Verb("write both arms' files to build/PROFILE/", needs_clone=False),
        "translate": Verb("a serve command from a blog as a profile and as today's command", needs_clone=False),
        "bench": Verb("measure an OpenAI-compatible server", needs_clone=False),
        "report": Verb("make a report from two results, and print its verdict", needs_clone=False),
        "reports": Verb("list the kept reports", needs_clone=False),
        "compare": Verb("two kept reports side by side", needs_clone=False),
        "compare-schedule": Verb("what switching speculation by batch size did", needs_clone=False),
    },
    "On a box": {
        "run": Verb("serve a profile, measure it without and with speculation, and judge"),
        "tune": Verb("find the best draft length, method and draft within a budget"),
        "doctor": Verb("what is wrong with a box and its server, and what to do"),
        "logs": Verb("the logs of every box of an inventory"),
        "bundle-report": Verb("one file for whoever is asked for help, without secrets"),
        "tunnel": Verb("a box's API on 127.0.0.1, over SSH"),
        "history": Verb("who served what, when, and why it ended"),
        "rollback": Verb("serve what served before"),
        "stop": Verb("stop the server of an inventory"),
        "teardown": Verb("stop, and remove what was put on the boxes"),
        "upgrade": Verb("another version of the engine, if it is no worse"),
    },
    "Weights": {
        "weights": Verb("download and check the weights of a profile"),
        "verify": Verb("read every byte of them again"),
        "prune": Verb("list the weights that no profile uses, and remove them"),
        "bundle": Verb("one file of all that a profile fetches, for boxes without a network"),
    },
    "Rented boxes": {
        "rent": Verb("rent the cheapest box at vast.ai that fits"),
        "destroy": Verb("end every box that this clone rented, and no other"),
    },
    "Around a playbook": {
        "stoppable": Verb("run a playbook; Ctrl-C stops what it has started"),
        "rented": Verb("run a playbook on rented boxes, and end them afterwards"),
    },
    "This command": {
        "completion": Verb("print the completion of bash or zsh", needs_clone=False),
    },
}
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}

_USAGE = """drafthouse VERB [options]: put a draft model in front of any LLM, and measure whether it pays.

drafthouse VERB --help shows the options and examples of one; --version the version.
"""


def help_text() -> str:
    """Return the help of the command: its verbs, in groups."""
    lines = [_USAGE]
    for group, verbs in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<17} {verb.says}{_mark(verb)}" for name, verb in verbs.items()), ""]
    return "\n".join(lines).rstrip()


def _mark(verb: Verb) -> str:
    return " (in a clone)" if INSTALLED and verb.needs_clone else ""


def version() -> str:
    """Return the version: of the installed wheel, or of the clone."""
    return metadata.version("drafthouse") if INSTALLED else project()["version"]


def module_of(verb: str) -> ModuleType:
    """Return the file of a verb, imported; it has ``options()`` and ``main(argv)``."""
    return import_module(f".{verb.replace('-', '_')}", __package__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; return its exit status. Raises DrafthouseError for a word that is none."""
    word, *words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if word == "help" and words:
        word, words = words[0], ["--help"]
    if word in ("-h", "--help", "help"):
        print(help_text())
        return DONE
    if word in ("-V", "--version", "version"):
        print(f"drafthouse {version()}")
        return DONE
    if word not in VERBS:
        raise DrafthouseError(
            Problem("no-such-verb", f"no verb '{word}'", "one that drafthouse --help shows", did_you_mean(word, VERBS))
        )
    if VERBS[word].needs_clone and not {"-h", "--help"} & set(words):
        if INSTALLED:
            needed = "a clone of Drafthouse: this verb works with its playbooks, inventories and ledgers"
            do = f"clone the repository of Drafthouse, run make venv in it, then there: scripts/drafthouse {word}"
            raise NotHere(Problem("clone-required", f"drafthouse {word}, from an installed wheel", needed, do))
        from .playbooks import environment  # noqa: PLC0415 (what only these verbs need)

        os.environ.update(environment())
    status: int = module_of(word).main(words)
    return status


def door() -> None:
    """Be the program ``drafthouse``."""
    run(main)
