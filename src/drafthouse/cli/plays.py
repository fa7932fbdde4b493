"""The verbs that only run playbooks, as a table of playbook, variables and help text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from ..core.places import phases
from .parser import Parser
from .playbooks import Variables, for_profile, on_inventory, play, run_for_profile

_EXIT = "\n\nExit status: the playbook's (docs/exit-codes.md).\n"
_EXIT_FOR_PROFILE = "\n\nExit status: the playbook's; 130 stopped; 2 an error (docs/exit-codes.md).\n"


@dataclass(frozen=True)
class PlayOnInventory:
    """A verb that runs one playbook on an inventory."""

    name: str
    playbook: str  # in playbooks/
    doc: str  # the help, without the exit status
    flags: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # option -> (Ansible variable, help text)

    def options(self) -> Parser:
        """The verb's argument parser."""
        parser = on_inventory(self.doc + _EXIT, self.name)
        for flag, (variable, help_text) in self.flags.items():
            parser.add_argument(flag, dest=variable, metavar=variable.upper(), help=help_text)
        return parser

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the playbook and return its exit status."""
        args = self.options().parse_args(argv)
        variables = cast("Variables", {variable: getattr(args, variable) for variable, _ in self.flags.values()})
        return play([f"playbooks/{self.playbook}"], args.inventory, variables, args.words)


@dataclass(frozen=True)
class PlayForProfile:
    """A verb that runs playbooks for a profile, on the boxes of the profile's inventory."""

    name: str
    playbooks: Sequence[str]  # with the options that choose a phase
    variables: Variables  # besides those that the arguments set
    doc: str  # the help, without the exit status

    def options(self) -> Parser:
        """The verb's argument parser."""
        return for_profile(self.doc + _EXIT_FOR_PROFILE, self.name)

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run the playbooks and return their exit status."""
        return run_for_profile(self.options().parse_args(argv), self.playbooks, self.variables)


_WEIGHTS = phases("weights", "doctor")
_PLAYS = (
    PlayOnInventory(
        "history",
        "history.yml",
        """Show what a box served, when, and why it ended.

Examples:
  drafthouse history
  drafthouse history --inventory workstation -- --limit lab

Words after -- are passed to ansible-playbook.""",
    ),
    PlayOnInventory(
        "rollback",
        "rollback.yml",
        """Serve the previous release again.

Examples:
  drafthouse rollback
  drafthouse rollback --inventory workstation --to 20261120T101500Z

Words after -- are passed to ansible-playbook.""",
        {"--to": ("release", "release listed by drafthouse history (default: the previous one)")},
    ),
    PlayOnInventory(
        "stop",
        "stop.yml",
        """Stop the server of an inventory.

Examples:
  drafthouse stop
  drafthouse stop --inventory workstation

Words after -- are passed to ansible-playbook.""",
    ),
    PlayOnInventory(
        "teardown",
        "teardown.yml",
        """Stop the server of an inventory and remove what was installed on its boxes.

Examples:
  drafthouse teardown
  drafthouse teardown --inventory workstation -- -e weights=true

Weights, images, Docker and the driver stay. -e weights=true, images=true, container_engine=true or nvidia_driver=true
removes them too.
Words after -- are passed to ansible-playbook.""",
    ),
    PlayForProfile(
        "weights",
        _WEIGHTS,
        {"doctor_parts": ["weights"]},
        """Download and verify the weights of a profile on the box where it would run.

Examples:
  drafthouse weights cpu-smollm2-ngram
  drafthouse weights h100-llama33-draft3b --inventory workstation

Words after -- are passed to ansible-playbook. Afterwards the doctor checks the weights.""",
    ),
    PlayForProfile(
        "verify",
        _WEIGHTS,
        {"doctor_parts": ["weights"], "verify": True},
        """Read every byte of a profile's weights, compare it with its hash, and download damaged files again.

Examples:
  drafthouse verify cpu-smollm2-ngram
  drafthouse verify h100-llama33-draft3b --inventory workstation

Words after -- are passed to ansible-playbook.""",
    ),
)
PLAYS = {verb.name: verb for verb in _PLAYS}
