"""The command `drafthouse VERB`: find the verb's module and import no other, so that it starts fast."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module, metadata
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from ..core.errors import DrafthouseError, did_you_mean, one_problem
from ..core.exit_codes import DONE
from ..core.places import INSTALLED
from ..core.removed import removed
from ..core.table import terminal_columns
from .parser import project, run

if TYPE_CHECKING:
    from drafthouse.cli.plays import PlayForProfile, PlayOnInventory


class Verb(NamedTuple):
    """A verb (subcommand)."""

    help: str  # its line in the help
    plays: bool = True  # whether it runs playbooks, and so needs Ansible


GROUPS = {  # heading in the help, then verb
    "Start": {
        "init": Verb("write an inventory of your own: a folder with your box", plays=False),
        "profiles": Verb("list the profiles", plays=False),
        "plan": Verb("show memory, downloads and expected speed-up of a profile", plays=False),
        "models": Verb("list the models of the catalogue, or those that fit a card", plays=False),
        "model": Verb("add any model of the Hub, or a folder, to the catalogue", plays=False),
        "fits": Verb("show which GPUs a model fits on, and the speed limit there", plays=False),
        "drafts": Verb("list the drafts for a model", plays=False),
        "new": Verb("write a profile for a model on a GPU", plays=False),
        "translate": Verb("convert an old serve command to a profile and to today's command", plays=False),
        "run": Verb("serve a profile, measure it without and with speculation, judge"),
    },
    "Measure": {
        "suite": Verb("fetch an external data set at a pinned commit", plays=False),
        "bench": Verb("measure an OpenAI-compatible server", plays=False),
        "tune": Verb("find the best draft length, method and draft within a budget"),
        "judge": Verb("judge two result files of any benchmark client", plays=False),
        "report": Verb("open a report, show it as a row, or make it again", plays=False),
        "reports": Verb("list the reports", plays=False),
        "compare": Verb("compare two reports", plays=False),
    },
    "Operate": {
        "doctor": Verb("check a box and its server, and say what to fix"),
        "logs": Verb("show the logs of every box of an inventory"),
        "history": Verb("show what was served, when, and why it ended"),
        "tunnel": Verb("forward a box's API to 127.0.0.1 over SSH"),
        "fleet": Verb("set up several boxes behind one address, show, drain and change them"),
        "rollback": Verb("serve the previous release again"),
        "upgrade": Verb("change the engine version if the new one is no worse"),
        "stop": Verb("stop the server of an inventory"),
        "teardown": Verb("stop, and remove what was installed on the boxes"),
        "export": Verb("write an arm for SkyPilot, dstack, Kubernetes and others", plays=False),
        "weights": Verb("download and verify the weights of a profile"),
        "verify": Verb("verify every byte of the weights again"),
        "prune": Verb("list or remove the weights that no profile uses"),
        "bundle-report": Verb("write a support bundle without secrets"),
    },
    "Rent": {
        "rent": Verb("rent the cheapest suitable vast.ai box"),
        "destroy": Verb("destroy every box that was rented from here", plays=False),
        "rented": Verb("run a playbook on rented boxes and destroy them afterwards"),
    },
    "Develop": {
        "where": Verb("print where site.yml and what is kept lie", plays=False),
        "render": Verb("write the files of both arms to build/PROFILE/", plays=False),
        "stoppable": Verb("run a playbook; Ctrl-C stops what it has started"),
        "evidence": Verb("check evidence of a run on a GPU, and add it to its profile", plays=False),
        "completion": Verb("print the shell completion for bash, zsh or fish", plays=False),
    },
}
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}
_IN_PLAYS = ("history", "rollback", "stop", "teardown", "weights", "verify")  # these have no module of their own

_USAGE = """drafthouse VERB [options]: add speculative decoding to an LLM server and measure whether it pays.

drafthouse VERB --help shows the options and examples of one; --version the version.
"""


def help_text() -> str:
    """The help of `drafthouse`: its verbs in groups, wrapped to the terminal's width."""
    lines = _USAGE.splitlines()
    for group, verbs in GROUPS.items():
        lines += ["", f"{group}:"]
        for name, verb in verbs.items():
            lines.append(f"  {name:<17} {verb.help}")
    columns = terminal_columns()
    filled = []
    for line in lines:
        indent = " " * 20 if line.startswith(" ") else ""
        filled.append(textwrap.fill(line, columns, subsequent_indent=indent))
    return "\n".join(filled)


def version() -> str:
    """The version of the installed wheel, or of the clone."""
    return metadata.version("drafthouse") if INSTALLED else project()["version"]


def module_of(verb: str) -> ModuleType | PlayOnInventory | PlayForProfile:
    """The verb's module, or its entry in `plays`, imported now; both have ``options()`` and ``main(argv)``."""
    if verb in _IN_PLAYS:
        from .plays import PLAYS  # noqa: PLC0415 (what only these verbs need)

        return PLAYS[verb]
    return import_module(f".{verb.replace('-', '_')}", __package__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit status. Raises DrafthouseError for a removed or unknown verb."""
    if argv is None:
        argv = sys.argv[1:]
    verb, *arguments = argv or ["--help"]
    if verb == "help" and arguments:
        verb = arguments[0]
        arguments = ["--help"]
    if verb in ("-h", "--help", "help"):
        print(help_text())
        return DONE
    if verb in ("-V", "--version", "version"):
        print(f"drafthouse {version()}")
        return DONE
    if verb not in VERBS:
        if problem := removed("verb", verb):
            raise DrafthouseError(problem)
        raise one_problem(
            "no-such-verb", f"no command '{verb}'", "a command listed by drafthouse --help", did_you_mean(verb, VERBS)
        )
    if VERBS[verb].plays and not {"-h", "--help"} & set(arguments):
        from .deployment import need_ansible  # noqa: PLC0415 (what only these verbs need)
        from .playbooks import environment  # noqa: PLC0415

        need_ansible(verb)
        os.environ.update(environment())
    status: int = module_of(verb).main(arguments)
    return status


def door() -> None:
    """Run the installed program `drafthouse`: its entry point in pyproject.toml."""
    run(main)
