"""Read one serve command: its surroundings, its model, its flags, and what became of each of them.

Everything that was pasted either stands in the command of today (`rest`, `config`, `speculation`,
`environment`) or in `changes`; what the catalogue does not know is in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.errors import one_problem
from ..core.secret_shapes import GONE, is_secret_name, without_shapes
from ..core.shell import Flag
from ..engines.pasted import Change, Command, Given, Speculation, apply_keys, json_value
from ..engines.read_flags import read_given
from ..engines.registry import ENGINES
from ..profiles.catalog import House
from .flags import OldFlags, apply_old, flags_of_variables, last_of_each, switched
from .nearest_profile import guess_method
from .paste import Words
from .sources import engine_of_words, image_version
from .values import file_words, flat, printed, quoted, read_yaml, typed

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, Options, Settings
    from drafthouse.engines.pasted import FlagsToday
#: The site's address and the file of its key, as every inventory has them unless it says otherwise.
HOST = "127.0.0.1"
KEY_FILE = "secrets/api_key"
#: What stands for something that was left out.
_LEFT_TO_FILL = re.compile(
    r"\[?(?:\.{3}|\u2026)\]?|[<\[](?:args?|options?|flags?)(?:\.{3}|\u2026)?[>\]]", re.IGNORECASE
)
#: What a shell, or a reader, puts a value for.
_TO_FILL = re.compile(rf"\$[\w({{]|<[A-Za-z]|{re.escape(GONE)}")
#: A word behind a program's name that is no model: ``llama-server it)``.
_A_SENTENCE = re.compile(r"(?:it|not|an|the|to|and|with|for|in|is|as|or|from|on|that)\W*|[^<].*[)`,;]")
_SCRIPTS_OWN = ("$@", "${@}", "$*", "${*}")
_VARIABLE_ALONE = re.compile(r"\$(?:\w+|\{[^}]*\}|\([^)]*\))")
_HUB_CACHE = re.compile(r"(?:^|/)models--([\w.-]+?)--([\w.-]+)(?:/|$)")
#: Names, and keys in JSON, of what may speculate.
_MAY_SPECULATE = re.compile(
    r"(?:^|[_\W])(?:spec|speculat\w*|draft\w*|ngrams?|eagle\d?|medusa|mtp|nextn|lookahead|dflash)(?=$|[_\W])"
    r"|lookup[_-]cache|models[_-]preset",
    re.IGNORECASE,
)
_NOT_KNOWN = "passed on unchanged: it is not in the catalogue"
_OPEN_KEY = (
    "every user of the box can see a key on the command line, and it is not printed again: "
    f"put it into {KEY_FILE} (mode 0600)"
)


class Reading:
    """One command, read. The parts that came of it are its attributes."""

    def __init__(self, words: Words, house: House, flags: OldFlags, file_of: Callable[[str], str | None]) -> None:
        self.words, self.house, self.flags, self.file_of = words, house, flags, file_of
        self.plug = engine_of_words(words)
        self.engine_id = self.plug.name
        self.engine: EngineEntry = house.engines[self.engine_id]
        self.version = str(self.engine["default_version"])
        self.table: FlagsToday = flags.of(self.engine_id, house.flags.get(self.engine_id, {}).get(self.version))
        self.changes: list[Change] = []
        self.environment: list[str] = []  # NAME=value, as a shell takes it
        self.rest: list[Flag] = []  # flags of both arms, in today's spelling and in the order given
        self.serve: Options = {}  # of these flags those that a profile has a key for, by that key
        # Those that it has none for: as typed, what to say of them, in today's spelling.
        self.kept: list[tuple[Given, str, Flag]] = []
        self.variables: dict[str, str] = {}  # environment variables that are passed on as they are
        self.left_out: list[str] = []  # what a profile cannot hold
        self.unread_file = ""
        self.asked: list[str] = []  # what may speculate and could not be read
        self.target, self.target_flag = "", ""
        self.config_name = ""
        self.config: Settings = {}  # an engine's YAML file, flat
        self.temperature = words.assignments.get("sampling.temperature")
        self.speculation: Speculation | None = None
        self._read()

    def note(self, what: str, became: str, why: str, kind: str, version: str = "-") -> None:
        """Record what became of one thing."""
        self.changes.append(Change(what, became, version, why, kind))

    def moved_repository(self, name: str) -> str:
        """Where a repository is today; a path of the hub's cache is the repository that it holds."""
        if cached := _HUB_CACHE.search(name):
            self.note(name, f"{cached[1]}/{cached[2]}", "a path of the hub's cache", "moved")
            name = f"{cached[1]}/{cached[2]}"
        new = self.flags.moved_repositories.get(name)
        if new:
            self.note(name, str(new), "the repository moved on the hub", "renamed")
        return str(new or name)

    def _read(self) -> None:
        """Fill the attributes, from what was typed to what a profile holds.

        Old names become today's before speculation is taken out, as an engine's file knows today's alone. What then
        stands for speculation may show that the command is another engine's. The target is taken next, and the method
        is read last, since its draft may depend on the target.
        """
        self._refuse_other_verbs()
        typed_words = self._variables_as_flags() + self._without_rest(self.words.words)
        self._program()
        given = switched(read_given(typed_words, self.table), self.table["switches"])
        self._check_speculation(given)
        appends = self.table.get("appends", ())
        given = last_of_each(given, self.changes, appends)
        given = self._config_file(given)
        before = frozenset(entry.name for entry in given)
        given = apply_old(given, self.table, self.changes)
        command = Command(given, before, self.engine, self.table, self.changes, self._guessed)
        self.plug.take_speculation(command)
        self._be_the_engine_that_claims(command)
        self._container()
        command.given = self._target(last_of_each(command.given, self.changes))
        command.engine, command.config, command.target = self.engine, self.config, self.target
        self.speculation = self.plug.read_speculation(command)
        given, self.config = command.given, command.config
        for entry in given:
            self._flag(entry)
        self._ask()
        self._settings()

    def _refuse_other_verbs(self) -> None:
        """Raise DrafthouseError for a program's other verbs: half a server, or none."""
        verb = self.plug.other_verbs.get(self.words.words[0]) if self.words.words else None
        if verb:
            raise one_problem(
                "unsupported-command",
                f"{self.words.program} {self.words.words[0]}: {verb}",
                "the command of one server",
                "paste the command of a server that does both",
            )

    def _be_the_engine_that_claims(self, command: Command) -> None:
        """Read on as an engine that is started by the same command, where speculation shows that it is that one.

        Arctic Inference is a plugin of vLLM, and its flags are vLLM's: the table of flags stays.
        """
        for other in ENGINES:
            known = other.like == self.plug.name and other.name in self.house.engines
            if known and other.claims(command.taken, self.words.assignments):
                self.plug, self.engine_id, self.engine = other, other.name, self.house.engines[other.name]
                self.version = str(self.engine["default_version"])

    def _guessed(self, draft: str) -> str:
        return guess_method(self.house, self.engine, draft)

    # --- what may speculate without being seen --------------------------------------------------------

    def _variables_as_flags(self) -> list[str]:
        """Take the variables that are flags of the engine out of what stands before; return them as words."""
        words, read, unknown = flags_of_variables(self.words.assignments, self.plug.flag_variables, self.table)
        for name, became in read.items():
            del self.words.assignments[name]
            self.note(name, became or "(off)", "a flag by another way", "renamed")
        self.asked += filter(_MAY_SPECULATE.search, unknown)
        return words

    def _without_rest(self, words: list[str]) -> list[str]:
        """Take out what a script is given when it is called: nobody knows it here."""
        kept: list[str] = []
        for word in words:
            if word in _SCRIPTS_OWN:
                self.note(word, "", "what the script is called with; paste it too where it has flags", "ignored")
            else:
                kept.append(word)
        return kept

    def _check_speculation(self, given: list[Given]) -> None:
        """Raise DrafthouseError where speculation is all in a variable that nobody sets."""
        for entry in given:
            is_model = entry.name.endswith(("model", "model-path", "hf", "draft", "hf-repo", "tokenizer", "revision"))
            if not entry.name.replace("_", "-").startswith("spec") or is_model or not isinstance(entry.value, str):
                continue
            open_json = entry.value.startswith("{") and isinstance(json_value(entry.value), str)
            if _VARIABLE_ALONE.fullmatch(entry.value) or (open_json and _TO_FILL.search(entry.value)):
                raise one_problem(
                    "value-is-variable",
                    f"{without_shapes(entry.value)}, which the paste does not set",
                    "the value itself: it says how the server speculates",
                    "paste the line that sets it too, or write the value out",
                    entry.spelled,
                )

    def _ask(self) -> None:
        """Note what is kept without being understood and may speculate, in the baseline too."""
        suspects = [] if self.speculation else [*self._suspects()]
        for what in [*self.asked, *suspects]:
            self.note(what, "", "it may speculate, in both arms: paste what it holds, or leave it out", "kept")
        self.asked += suspects

    def _suspects(self) -> Iterator[str]:
        """Yield what of a command without speculation may speculate all the same."""
        for name, value in self.words.container:
            if self.plug.flag_variables and name in ("--env-file", "--env_file", "--envFrom"):
                yield f"the variables in {value}"
        for name, value in self.words.assignments.items():
            known = is_secret_name(name) or name in self.table["environment"]
            if value and _MAY_SPECULATE.search(name) and not known:
                yield f"{name}={value}"
        for given, _, words in self.kept:
            structured = str(given.value).startswith("{")
            if _MAY_SPECULATE.search(given.name) or (structured and _MAY_SPECULATE.search(str(given.value))):
                yield " ".join(words)
        for name in self.config:
            if _MAY_SPECULATE.search(name):
                yield f"{name} (in {self.config_name})"
        if self.unread_file:
            yield self.unread_file

    # --- around the flags -----------------------------------------------------------------------------

    def _program(self) -> None:
        """Note what became of the program, of prose behind it, and of what stands before it."""
        words = self.words
        program = self.table["programs"].get(words.program)
        if program:
            self.note(words.program, program["became"], program.get("note", ""), "renamed", program["version"])
        for launcher in words.launchers:
            self.note(launcher, "", "not needed: the role serve starts the server", "moved")
        if words.prose:
            self.note(f"“{words.prose}”", "", "text of the page that is stuck to the last number", "ignored")
        for name, value in words.assignments.items():
            self._variable(name, value)

    def _variable(self, name: str, value: str) -> None:
        if name.startswith("sampling."):
            what = name.removeprefix("sampling.")
            became, why = "", "asked with each request; the benchmark sets its own"
            if what == "temperature":
                became, why = f"temperature: {value}", "measured as well as 0"
            self.note(f"SamplingParams {what}={value}", became, why, "moved")
            return
        rule = self.table["environment"].get(name)
        if rule is not None:
            secret = rule.get("secret", False)
            self.note(name if secret else f"{name}={value}", "", rule.get("note", ""), rule["kind"], rule["version"])
            if name == self.engine["launch"].get("key_environment"):
                self.environment.append(f'{name}="$(cat {KEY_FILE})"')
        elif is_secret_name(name):
            self.environment.append(f'{name}="${name}"')
            self.note(name, f"${name}", "a secret is not printed again: it is taken from your environment", "kept")
        else:
            self.environment.append(f"{name}={quoted(value)}")
            self.variables[name] = value

    def _container(self) -> None:
        for name, value in self.words.container:
            if name == "--env":
                continue  # see the variable itself
            known = self.flags.docker.get(name.removeprefix("--"))
            why = known or "Drafthouse's containers have no such setting"
            self.note(f"docker {name} {value}".strip(), "", why, "moved" if known else "removed")
        theirs, ours = image_version(self.words.image), str(self.engine["default_version"])
        if self.words.image and theirs != ours:
            why = "the catalogue's version; engine_version asks for another"
            self.note(self.words.image, f"{self.engine['name']} {ours}", why, "moved")

    def _config_file(self, given: list[Given]) -> list[Given]:
        """Read the YAML that a command names: TensorRT-LLM's settings, or vLLM's flags in a file."""
        name = self.table.get("config")
        entry = next((entry for entry in given if entry.name == name and isinstance(entry.value, str)), None)
        if entry is None:
            return given
        inline = entry.value.lstrip().startswith("{")
        text, typed_as = entry.value if inline else self.file_of(entry.value), f"{entry.spelled} {entry.value}"
        if text is None:
            self._note_unread(entry, typed_as)
            return [other for other in given if other is not entry]
        if inline:
            entry = replace(entry, value=f"{name}.yaml")
            why = "JSON in place of a file's name: it is that file"
            self.note(typed_as, f"{entry.flag} {entry.value}", why, "moved")
        data = read_yaml(text, entry.value)
        others = [other for other in given if other.spelled != entry.spelled]
        if self.plug.flags_in_file:
            self.note(typed_as, "", "its flags are in the command now", "moved")
            return others + self._flags_of_file(data, given)
        self.config_name = entry.value.rsplit("/", 1)[-1]
        # Twice: a level that is gone may have hidden old keys.
        for _ in range(2):
            data = apply_keys(flat(data), self.table, self.changes, self.config_name)
        self.config = {key: self._open(key, value) for key, value in data.items()}
        if entry.name != entry.spelled.lstrip("-").replace("-", "_"):
            self.note(entry.spelled, entry.flag, "two names of one option; every version reads this one", "renamed")
        return others

    def _note_unread(self, entry: Given, typed_as: str) -> None:
        """Keep a configuration file that nobody has, and say that its settings are lacking."""
        why = "the file is neither here nor in the paste, so the profile lacks its settings; paste it first"
        self.note(typed_as, f"{entry.flag} {entry.value}", f"{why}: cat <<EOF > {entry.value} …", "kept")
        self.rest.append([entry.flag, entry.value])
        self.left_out.append(f"the settings in {entry.value}")
        self.unread_file = f"{entry.flag} {entry.value}"

    def _flags_of_file(self, data: Settings, given: Sequence[Given]) -> list[Given]:
        """The flags in a file but for those that the command has too: the command line wins."""
        words: list[str] = []
        for key, value in data.items():
            words += map(without_shapes, file_words(str(key), value))
        typed = {entry.name for entry in given}
        return [flag for flag in read_given(words, self.table) if flag.name not in typed]

    @staticmethod
    def _open(key: str, value: Any) -> Any:
        """A setting without what looks like a secret, by its name or by itself."""
        if isinstance(value, str):
            value = without_shapes(value)
            if is_secret_name(key):
                return GONE
        return value

    def _target(self, given: list[Given]) -> list[Given]:
        """Take the model out of the flags. Raises DrafthouseError where the command names none."""
        named, bare = self._possible_models(given)
        chosen = (named[-1:] or bare[:1] or [Given("", "", "")])[0]
        in_prose = len(given) == len(bare) and _A_SENTENCE.fullmatch(str(chosen.value))
        if in_prose or not str(chosen.value).strip("/ "):
            raise one_problem("no-model", "no model", "the model that is served", "write it after the program's name")
        if chosen.name == "hf-repo":
            self.target_flag = "--hf-repo"
        self.target = self.moved_repository(str(chosen.value).rstrip("/"))
        behind = self.table.get("model_behind")
        if behind and self.words.program == behind["program"] and chosen.name == "model":
            self.note(chosen.spelled, self.target, behind["note"], "renamed", behind["version"])
        for entry in [*named, *bare]:
            if entry is not chosen:
                self.rest.append([entry.flag, entry.value] if entry.name else [str(entry.value)])
                self.note(entry.spelled, entry.spelled, f"{_NOT_KNOWN}; the model is {self.target}", "kept")
        return [entry for entry in given if entry not in named and entry.name]

    def _possible_models(self, given: list[Given]) -> tuple[list[Given], list[Given]]:
        """The flags that name a model, and the words without a flag that are no placeholder."""
        named: list[Given] = []
        bare: list[Given] = []
        for entry in given:
            if entry.name in ("model", "hf-repo") and isinstance(entry.value, str):
                named.append(entry)
            elif entry.name == "" and not _LEFT_TO_FILL.fullmatch(entry.value):
                bare.append(entry)
            elif entry.name == "":
                self.note(entry.value, "", "a placeholder: fill it in", "ignored")
        return named, bare

    # --- flags of the server --------------------------------------------------------------------------

    def _flag(self, entry: Given) -> None:
        """Sort one flag: address, name and key are the site's, an option goes to `serve`, the rest is kept."""
        launch = self.engine["launch"]
        options = self._options_by("flag")
        if entry.name in self.table["secret"] or (is_secret_name(entry.name) and entry.name != launch.get("key_file")):
            self._secret(entry)
            return
        words = printed(entry)
        was = " ".join([entry.spelled, *words[1:]])
        if entry.flag == launch["host"]:
            words = [entry.flag, HOST]
            why = "the inventory's drafthouse_host; the network only behind a key and a firewall"
            self.note(was, " ".join(words), why, "moved")
        elif entry.flag == launch["port"]:
            self.note(was, "drafthouse_port", "set in the inventory, 8000 by default", "moved")
        elif entry.flag == launch.get("name"):
            self.note(was, "served_name", "set by the model's entry in the catalogue", "moved")
        elif entry.flag == launch.get("key_file"):
            self.note(was, KEY_FILE, "a file in the box's home", "moved")
        elif entry.flag in options and _TO_FILL.search(str(entry.value)):
            self.left_out.append(" ".join(words))
            self.note(was, entry.flag, "fill in its value; the profile leaves it out until then", "kept")
        elif entry.flag in options:
            key = options[entry.flag]
            self.serve[key] = typed(entry, self.engine["options"][key]["type"])
        elif [entry.flag] in launch.get("always", []):
            self.note(was, entry.flag, "always on", "moved")
        else:
            self.kept.append((entry, was, words))
        self.rest.append(words)

    def _options_by(self, kind: str) -> dict[str, str]:
        """A profile's keys of the engine's options by their ``kind`` of name: ``flag`` or ``yaml``."""
        names: dict[str, str] = {}
        for key, option in self.engine["options"].items():
            name = option.get(kind)
            if isinstance(name, str):
                names[name] = key
        return names

    def _secret(self, entry: Given) -> None:
        launch = self.engine["launch"]
        if entry.name == "hf-token":
            why = "a secret is not printed again: the token comes from the environment or the vault"
            self.note(entry.spelled, "HF_TOKEN", why, "moved")
        elif entry.name != "api-key":
            why = "it looks like a secret, which is not printed again: add it by hand"
            self.note(entry.spelled, "", why, "removed")
        elif "key_inside" in launch:
            why = f"serve.sh passes it inside the process, from {KEY_FILE}; by hand: {entry.flag} KEY"
            self.note(entry.spelled, "", f"{_OPEN_KEY}; {why}", "moved")
        elif "key_file" in launch:
            self.rest.append([launch["key_file"], KEY_FILE])
            self.note(entry.spelled, f"{launch['key_file']} {KEY_FILE}", _OPEN_KEY, "moved")
        else:
            variable = launch.get("key_environment", "API_KEY")
            self.environment.append(f'{variable}="$(cat {KEY_FILE})"')
            self.note(entry.spelled, variable, _OPEN_KEY, "moved")

    def _settings(self) -> None:
        """Sort the settings of an engine's YAML: options go to `serve`, the rest is kept."""
        options = self._options_by("yaml")
        for name, value in self.config.items():
            if name in options and GONE not in str(value):
                self.serve[options[name]] = value
            else:
                self.left_out.append(f"{name}: {value} (in {self.config_name})")
                self.note(f"{self.config_name}: {name}", name, _NOT_KNOWN, "kept")
