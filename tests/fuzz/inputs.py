"""Every kind of input that people and earlier runs give us, and the programs that read it.

`Workspace` lays them all down once, as real runs write them; `Workspace.case` changes one of them and says which
program reads it then.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.manager import VariableManager
from ansible_collections.drafthouse.core.plugins.action.resolve import ActionModule as Resolve
from ansible_collections.drafthouse.core.plugins.action.resolve import _deadline
from ansible_collections.drafthouse.core.plugins.action.served_history import ActionModule as ServedHistory  # noqa: F401

from drafthouse.cli import (
    bench,
    compare,
    destroy,
    judge,
    plan,
    profiles,
    prune,
    render,
    report,
    reports,
    translate,
    tune,
)
from drafthouse.cloud.vast.ledger import label_of, new_id, record
from drafthouse.core.exit_codes import DONE, FAILED
from drafthouse.profiles.catalog import load_gpus
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.prompts.formats import FORMATS
from drafthouse.report.writer import to_json
from drafthouse.serving.history import add_event, events_of
from drafthouse.serving.history_text import history_text
from drafthouse.serving.releases import damaged_releases, keep_release
from drafthouse.tuning.journal import Journal
from drafthouse.tuning.types import OK, Candidate, Outcome, Task
from tests.fakes.vast_server import KEY, Running
from tests.fuzz import foreign
from tests.fuzz.clone import make_clone, moved_to
from tests.fuzz.mutations import JSON, LINES, TEXT, YAML, mutated
from tests.support.report_builders import full_report_input, keep

Main = Callable[..., int]
#: How many cases each class of inputs gets, in parts of a thousand.
SHARES = {
    "profiles": 200,
    "catalogue": 100,
    "inventory": 180,
    "suites": 220,
    "results": 50,
    "compare": 70,
    "commands": 80,
    "settings": 30,
    "journal": 20,
    "ledger": 20,
    "box": 30,
    "foreign": 350,
}
#: These draw a page with plots, which takes a second each: fewer of them where time is short.
SLOW = ("results",)
_PROFILE = "cpu-smollm2-ngram"
_GPU = "rtx6000-qwen-eagle3"
_CATALOG = ROOT / "profiles" / "catalog"
_ENGINES = [f"engines/{path.stem}" for path in sorted((_CATALOG / "engines").glob("*.yml"))]
_OLD_FLAGS = ["old_flags", *(f"old_flags/{path.stem}" for path in sorted((_CATALOG / "old_flags").glob("*.yml")))]


@dataclass
class Case:
    """A program that is to run with something bad; ``put_back`` makes it good again."""

    kind: str
    name: str
    """What was done to what."""
    main: Main
    arguments: list[str]
    stdin: bytes = b""
    file: Path | None = None
    content: bytes = b""
    good: bytes = b""
    refusals: tuple[str, ...] = field(default=())
    """What a refusal has to name: the file by one of these."""

    def __enter__(self) -> Case:
        if self.file:
            self.file.write_bytes(self.content)
        return self

    def __exit__(self, *_: object) -> None:
        if self.file:
            self.file.write_bytes(self.good)


class Workspace:
    """A clone with reports, results, a journal, a ledger and a box's home, all of them good."""

    def __init__(self, folder: Path, vast: Running, address: str) -> None:
        """``address``: of a server that answers with what `foreign.lay_down` wrote."""
        self.address = address
        self.root = make_clone(folder / "clone")
        self.folder = folder
        os.environ |= {
            "DRAFTHOUSE_STATE": str(folder / "state"),
            "VAST_URL": vast.url,
            "VAST_API_KEY": KEY,
        }
        with moved_to(self.root):
            self._results()
            self._journal()
            self._ledger()
            self._home()
            self._prompts()
        foreign.lay_down(folder)
        self.good = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}

    # --- good input -----------------------------------------------------------------------------------------------

    def _results(self) -> None:
        base, spec, made, _, _, ladder = full_report_input({"copy-edit": 1.8, "creative": 1.0})
        resolved = {**resolved_profile(_PROFILE, site_of_inventory("local")), **made}
        for name, data in (("baseline", base), ("speculative", spec), ("resolved", resolved), ("ladder", ladder)):
            (self.folder / f"{name}.json").write_text(to_json(data), "utf-8")
        self.reports = self.folder / "reports"
        self.kept = [
            keep(self.reports, date, ladder=made_ladder, prompts=4)
            for date, made_ladder in (("20261120-100000", ladder), ("20261121-100000", ladder))
        ]

    def _journal(self) -> None:
        journal = Journal(self.folder / "journal.jsonl", "search")
        for number in (1, 2):
            task = Task(Candidate("draft", number), count=4)
            journal.begin(task)
            journal.done(task, Outcome(OK, {"a": 12.5, "b": 13.0}, 30.0, 5.0, 10.0, "", {"drafted": True}))
        journal.close()

    def _ledger(self) -> None:
        (self.folder / "state").mkdir(mode=0o700)
        self.ledger = self.folder / "state" / "ledger.jsonl"
        for number in (31_000_901, 31_000_902):
            rental = new_id()
            facts = {"deadline": int(time.time()) + 3600, "account": "a", "label": label_of(rental, 2_000_000_000)}
            record(self.ledger, "intent", rental, **facts, price_per_hour=2.1)
            record(self.ledger, "created", rental, instance=number)

    def _home(self) -> None:
        self.home = self.folder / "home"
        site = {**site_of_inventory("local"), "home": str(self.home), "models_dir": str(self.home / "models")}
        resolved = resolved_profile(_PROFILE, site)
        running: Any = {"runtime": "process"}
        keep_release(self.home, resolved, "baseline", running)
        for event in ("served", "ended"):
            add_event(self.home, event, release="0001", profile=_PROFILE, arm="baseline", why="asked for")
        weights = self.home / "models" / "old"
        weights.mkdir(parents=True)
        (weights / "model.safetensors").write_bytes(b"x" * 100)
        note = {"identity": "x", "files": {"model.safetensors": {}}, "checked": {}}
        weights.with_name("old.drafthouse.json").write_text(json.dumps(note))

    def _prompts(self) -> None:
        """A file of each format of other tools (`prompts/formats.py`)."""
        message = [{"role": "user", "content": "Say hello."}]
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
        asked = {"tools": [tool], "expect": {"tool": {"name": "f", "arguments": {}}}}
        schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
        files: dict[str, list[Any]] = {
            "messages.jsonl": [
                {"messages": message, "id": "a", "kind": "own", "output_tokens": 8},
                {"messages": [{"role": "user", "content": "Call it."}], **asked},
                {"messages": [{"role": "user", "content": "JSON."}], "response_format": schema},
            ],
            "custom.jsonl": [{"prompt": "one", "output_tokens": 8}, {"prompt": "two"}],
            "spec-bench.jsonl": [{"question_id": 1, "category": "writing", "turns": ["first", "second"]}],
            "sharegpt.json": [
                {"id": "x", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]}
            ],
        }
        folder = self.folder / "prompts"
        folder.mkdir()
        for name, entries in files.items():
            lines = "\n".join(json.dumps(entry) for entry in entries) + "\n"
            (folder / name).write_text(json.dumps(entries) if name.endswith(".json") else lines)
        (folder / "lines.txt").write_text("What is the capital of France?\nWrite a haiku.\n")

    # --- bad input ------------------------------------------------------------------------------------------------

    def case(self, rng: random.Random, kind: str) -> Case:
        """A case of one class."""
        made: Case = getattr(self, f"_case_{kind}")(rng)
        return made

    def _of(self, rng: random.Random, kind: str, file: Path, form: str, main: Main, *arguments: object) -> Case:
        good = self.good[file]
        what, content = mutated(rng, form, good)
        while (main is ansible_main and what.startswith("deep")) or (main in _WHOLE and what == "too big"):
            # Ansible itself reads the one, and libyaml below it ends the interpreter: nothing of ours runs before.
            # What we alone append to, a line at a time, is read as a whole.
            what, content = mutated(rng, form, good)
        words = [str(argument) for argument in arguments]
        name = f"{file.relative_to(self.folder)}: {what}; {main.__module__} {' '.join(words)}"
        return Case(
            kind, name, main, words, b"", file, content, good, (file.name, file.parent.name, f"suite {file.stem}")
        )

    def _case_profiles(self, rng: random.Random) -> Case:
        file = rng.choice(sorted((self.root / "profiles").glob("*.yml")))
        ways: Sequence[tuple[Main, list[object]]] = (
            (plan.main, [file.stem]),
            (plan.main, [file.stem, "--inventory", rng.choice(("local", "vastai", "workstation"))]),
            (profiles.main, []),
            (profiles.main, ["--inventory", file.stem]),
            (render.main, [file.stem]),
            (tune.main, [file.stem, "--list"]),
            (prune.main, ["--models-dir", self.home / "models", "--home", self.home]),
        )
        main, arguments = rng.choice(ways)
        return self._of(rng, "profiles", file, YAML, main, *arguments)

    def _case_catalogue(self, rng: random.Random) -> Case:
        own = (rng.choice(_ENGINES), rng.choice(_ENGINES), rng.choice(_OLD_FLAGS))
        name = rng.choice(("hardware", "models", "gpus", *own))
        file = self.root / "profiles" / "catalog" / f"{name}.yml"
        if name == "gpus":
            return self._of(rng, "catalogue", file, YAML, gpus_main)
        if name.startswith("old_flags"):
            return self._of(rng, "catalogue", file, YAML, translate.main, _command(rng))
        profile = rng.choice((_PROFILE, _GPU, "rtx6000-gptoss-trtllm-eagle3"))
        main, arguments = rng.choice(((plan.main, [profile]), (profiles.main, []), (translate.main, [_command(rng)])))
        case = self._of(rng, "catalogue", file, YAML, main, *arguments)
        # Where an engine has lost a version or a method, who spoke of it is named.
        return replace(case, refusals=(*case.refusals, "known-issues.yml")) if name.startswith("engines/") else case

    def _case_inventory(self, rng: random.Random) -> Case:
        name = rng.choice(("local", "workstation", "vastai"))
        site = self.root / "inventory" / name / "group_vars" / "all.yml"
        hosts = (
            self.root / "inventory" / name / ("vastai.yml" if name == "vastai" and rng.random() < 0.7 else "hosts.yml")
        )
        way = rng.randrange(6)
        if way < 3:
            main, words = rng.choice(
                ((plan.main, [_PROFILE, "--inventory", name]), (prune.main, ["--inventory", name]),
                 (render.main, [_PROFILE, "--inventory", name]))
            )  # fmt: skip
            case = self._of(rng, "inventory", site, YAML, main, *words)
            # A folder that is not there is named itself: most boxes' are not on this machine.
            return replace(case, refusals=(*case.refusals, "/")) if main is prune.main else case
        return self._of(rng, "inventory", site if way < 5 else hosts, YAML, ansible_main, hosts.parent)

    def _case_suites(self, rng: random.Random) -> Case:
        suites = sorted((self.root / "benchmarks").glob("*.yml"))
        file = rng.choice(suites)
        if rng.random() < 0.5:
            return self._of(
                rng,
                "suites",
                file,
                YAML,
                plan.main,
                _PROFILE,
                "--set",
                f"experiment.suites=[{file.stem}]",
                "--set",
                "experiment.kinds=null",
                "--set",
                "experiment.once=null",
            )
        form = []
        if rng.random() < 0.5:
            file = rng.choice(sorted((self.folder / "prompts").iterdir()))
            form = ["--dataset-format", rng.choice(FORMATS)] if rng.random() < 0.3 else []
        kind = (
            YAML
            if file.suffix == ".yml"
            else LINES
            if file.suffix == ".jsonl"
            else JSON
            if file.suffix == ".json"
            else TEXT
        )
        # No server listens there: it ends with what it was about to ask.
        words = ["--base-url", "http://127.0.0.1:9", "--model", "m", "--suite", file, *form, "--timeout", "2"]
        words += rng.choice(([], [], ["--num-prompts", "3"], ["--output-tokens", "8"]))
        return self._of(rng, "suites", file, kind, bench.main, *words)

    def _case_results(self, rng: random.Random) -> Case:
        names = ("baseline", "speculative")
        if rng.random() < 0.3:
            folder = self.kept[0]
            file = folder / rng.choice(("report.json", "baseline.json", "speculative.json"))
            return self._of(rng, "results", file, JSON, report.main, "--again", folder)
        file = self.folder / f"{rng.choice(names)}.json"
        words = [self.folder / f"{name}.json" for name in names]
        return self._of(rng, "results", file, JSON, judge.main, *words)

    def _case_compare(self, rng: random.Random) -> Case:
        file = rng.choice(self.kept) / rng.choice(("report.json", "baseline.json", "speculative.json"))
        words = rng.choice(
            (
                [*self.kept, "--regression", "5"],
                [*self.kept, "--anyway", "--format", rng.choice(("text", "json", "markdown"))],
                [f"{_PROFILE}~1", _PROFILE, "--anyway", "--regression", "5"],
            )
        )
        if rng.random() < 0.2:
            return self._of(rng, "compare", file, JSON, reports.main, "--reports", self.reports)
        return self._of(rng, "compare", file, JSON, compare.main, *words, "--reports", self.reports)

    def _case_commands(self, rng: random.Random) -> Case:
        file = rng.choice(sorted((ROOT / "tests" / "unit" / "translate" / "commands").iterdir()))
        what, content = mutated(rng, TEXT, file.read_bytes())
        content = content[:2_000_000]
        json_too = ["--json"] if rng.random() < 0.3 else []
        name = f"{file.name}: {what}; translate"
        if rng.random() < 0.3 and b"\0" not in content and len(content) < 100_000:
            return Case("commands", f"{name}, as an argument", translate.main, [*json_too, "--", os.fsdecode(content)])
        return Case("commands", name, translate.main, json_too, content)

    def _case_settings(self, rng: random.Random) -> Case:
        good = rng.choice(
            (
                b"speculation.num_speculative_tokens=5", b"serve.max_model_len=4096", b"speculation.draft=null",
                b"experiment.suites=[mixed]", b"experiment.ladder.to=8", b"temperature=0.7", b"engine_version=0.15.1",
            )
        )  # fmt: skip
        path, _, value = good.partition(b"=")
        pieces: list[str] = []
        for _ in range(rng.choice((1, 1, 2))):
            what, content = mutated(rng, rng.choice((YAML, TEXT)), value)
            where = rng.choice((path, path, path + b".x", path.split(b".")[0], b"", b".", mutated(rng, TEXT, path)[1]))
            word = (where + b"=" + content)[:100_000].replace(b"\0", b"")
            pieces += ["--set", os.fsdecode(word)]
        main = rng.choice((plan.main, plan.main, render.main))
        return Case("settings", f"{path.decode()}: {what}", main, [_PROFILE, *pieces])

    def _case_journal(self, rng: random.Random) -> Case:
        file = self.folder / "journal.jsonl"
        return self._of(rng, "journal", file, LINES, journal_main, file)

    def _case_ledger(self, rng: random.Random) -> Case:
        return self._of(rng, "ledger", self.ledger, LINES, destroy.main, "--list")

    def _case_foreign(self, rng: random.Random) -> Case:
        name, file, form, main, words = foreign.case(rng, self.folder, self.address, self.reports)
        # A hub, an engine and a provider are named by their address, a model by its folder.
        return replace(self._of(rng, name, file, form, main, *words), refusals=())

    def _case_box(self, rng: random.Random) -> Case:
        served = self.home / "served"
        way = rng.randrange(4)
        if way == 0:
            return self._of(rng, "box", served / "history.jsonl", LINES, history_main, served / "history.jsonl")
        words = ["--models-dir", self.home / "models", "--home", self.home]
        if way == 1:
            return self._of(rng, "box", self.home / "models" / "old.drafthouse.json", JSON, prune.main, *words)
        release = next((served / "releases").iterdir())
        file = rng.choice([release / "resolved.json", release / "running-baseline.json"])
        return self._of(rng, "box", file, JSON, prune.main, *words)


def _command(rng: random.Random) -> str:
    return rng.choice(sorted((ROOT / "tests" / "unit" / "translate" / "commands").iterdir())).read_text("utf-8")


# --- what Ansible reads, and what runs on a box: the same functions, without a box --------------------------------


def gpus_main() -> int:
    """What the action `driver_choice` reads."""
    import drafthouse.profiles.workspace as catalog

    load_gpus(catalog.ROOT)
    return DONE


def ansible_main() -> int:
    """What `ansible-playbook -i INVENTORY` does until our first task has the resolved profile."""
    import sys

    loader = DataLoader()
    try:
        inventory = InventoryManager(loader=loader, sources=[sys.argv[1]])
        manager = VariableManager(loader=loader, inventory=inventory)
        for host in inventory.get_hosts():
            variables = manager.get_vars(host=host)
            # No task, no connection: up to its look at the box the action needs neither.
            task = SimpleNamespace(args={})
            resolve = Resolve(task, None, None, loader, Templar(loader=loader, variables=variables), None)
            ours = resolve._ours(variables, {})
            resolve._resolve({"profile": _PROFILE, **ours})
            _deadline(ours)
    except AnsibleError as error:
        print(f"ansible: {error}")
        return FAILED
    return DONE


def journal_main() -> int:
    """What the tuner does with the journal of an earlier run."""
    import sys

    journal = Journal(Path(sys.argv[1]), "search")
    print(journal.spent_s, len(journal.outcomes))
    journal.close()
    return DONE


def history_main() -> int:
    """What `make history` shows of the file that it has from a box."""
    import sys

    file = Path(sys.argv[1])
    found = events_of(file.read_bytes().decode("utf-8", "replace"))
    print(history_text([event for _, event in found if event], [number for number, event in found if event is None]))
    for problem in damaged_releases(file.parent.parent):
        print(problem)
    return DONE


_WHOLE = (destroy.main, history_main)
