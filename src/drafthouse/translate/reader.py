"""Read a pasted serve command: its program, container, model, flags and speculation, in the engine's current names.

Every part of it ends in the current command (`rest`, `config`, `speculation`, `environment`), in `changes`, or in both.
`Reading._read` has the order of the steps: speculation first, then the target, then the server's other flags.
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
from ..profiles.catalog import Catalog
from .flags import OldFlags, apply_old, flags_of_variables, last_of_each, with_switch_values
from .nearest_profile import guess_method
from .paste import PastedCommand
from .sources import engine_of_words, image_version
from .values import file_words, flag_words, flattened, read_yaml, shell_quoted, typed_value

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, Options, Settings
    from drafthouse.engines.pasted import FlagsToday
#: The server's address and the file of its API key, as inventories set them by default.
HOST = "127.0.0.1"
KEY_FILE = "secrets/api_key"
#: A placeholder for left-out arguments: ``...``, ``[OPTIONS]``.
_ARGUMENTS_LEFT_OUT = re.compile(
    r"\[?(?:\.{3}|\u2026)\]?|[<\[](?:args?|options?|flags?)(?:\.{3}|\u2026)?[>\]]", re.IGNORECASE
)
#: A variable, placeholder or removed secret inside a value: ``$MODEL``, ``<name>``.
_TO_FILL = re.compile(rf"\$[\w({{]|<[A-Za-z]|{re.escape(GONE)}")
#: A word of a sentence after a program's name, which is no model: ``llama-server it)``.
_SENTENCE_WORD = re.compile(r"(?:it|not|an|the|to|and|with|for|in|is|as|or|from|on|that)\W*|[^<].*[)`,;]")
_SCRIPT_ARGUMENTS = ("$@", "${@}", "$*", "${*}")
#: A value that is nothing but a variable: ``$SPEC``, ``$ARGS[@]``, ``${SPEC}``, ``$(cat spec.json)``.
_VARIABLE_ALONE = re.compile(r"\$(?:\w+(?:\[[^\]]*\])?|\{[^}]*\}|\([^)]*\))")
#: A repository's folder in the Hub's cache: ``~/.cache/huggingface/hub/models--Qwen--Qwen3-32B/snapshots``.
_HUB_CACHE = re.compile(r"(?:^|/)models--([\w.-]+?)--([\w.-]+)(?:/|$)")
#: Names of variables and flags, and keys in JSON, that may turn on speculation.
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
    """A pasted command in the engine's current names, part by part. ``catalog`` is the catalogue with all profiles."""

    def __init__(
        self, pasted: PastedCommand, catalog: Catalog, flags: OldFlags, file_of: Callable[[str], str | None]
    ) -> None:
        self.pasted = pasted
        self.catalog = catalog
        self.flags = flags
        self.file_of = file_of  # the text of a file by its name; None if it is neither here nor in the paste
        self.plug = engine_of_words(pasted)  # the engine's code; `self.engine` is its catalogue entry
        self.engine_id = self.plug.name
        self.engine: EngineEntry = catalog.engines[self.engine_id]
        self.version = str(self.engine["default_version"])
        self.table: FlagsToday = flags.of(self.engine_id, catalog.flags.get(self.engine_id, {}).get(self.version))
        self.changes: list[Change] = []
        self.environment: list[str] = []  # NAME=value, quoted for a shell
        self.rest: list[Flag] = []  # flags of both arms (all but speculation), in the order given
        self.serve: Options = {}  # values of the flags in `rest` that have a key in a profile, by that key
        # Flags in `rest` without such a key: as parsed, as typed, and in the current spelling.
        self.kept: list[tuple[Given, str, Flag]] = []
        self.variables: dict[str, str] = {}  # environment variables that are passed on unchanged
        self.left_out: list[str] = []  # parts that a profile cannot contain
        self.unset: list[str] = []  # words that are variables or templates which the paste does not fill in
        self.unread_file = ""  # the flag and name of a configuration file that was not pasted
        self.asked: list[str] = []  # parts that may speculate and could not be read
        self.target = ""  # the served model: a repository or a path
        self.target_flag = ""  # `--hf-repo` if the paste names the target by it
        self.config_name = ""  # of the engine's YAML file, without its folder
        self.config: Settings = {}  # settings of the engine's YAML file, by dotted keys
        self.temperature = pasted.assignments.get("sampling.temperature")  # None: the paste sets none
        self.speculation: Speculation | None = None  # None: the pasted server does not speculate
        self._read()

    def note(self, what: str, became: str, why: str, kind: str, version: str = "-") -> None:
        """Record a change: the part of the paste, its current form ("" for none), the reason and the kind."""
        self.changes.append(Change(what, became, version, why, kind))

    def moved_repository(self, name: str) -> str:
        """The current name of a repository on the Hub; ``name`` may be a path in the Hub's local cache."""
        cache_path = _HUB_CACHE.search(name)
        if cache_path and not name.endswith(".gguf"):  # such a repository has many files
            self.note(name, f"{cache_path[1]}/{cache_path[2]}", "a path of the hub's cache", "moved")
            name = f"{cache_path[1]}/{cache_path[2]}"
        moved = self.flags.moved_repositories.get(name)
        if moved:
            self.note(name, str(moved), "the repository moved on the hub", "renamed")
        return str(moved or name)

    def _read(self) -> None:
        """Fill the attributes.

        The order matters: an engine's reader of speculation knows only current names, the speculation may show that the
        command is another engine's, and the draft of a method may depend on the target.
        """
        self._refuse_other_verbs()
        typed_words = self._variables_as_flags() + self._without_script_arguments(self.pasted.words)
        self._note_program()
        given = with_switch_values(read_given(typed_words, self.table), self.table["switches"])
        self._check_speculation(given)
        appends = self.table.get("appends", ())
        given = last_of_each(given, self.changes, appends)
        given = self._read_config_file(given)
        names_before = frozenset(entry.name for entry in given)
        given = apply_old(given, self.table, self.changes)
        command = Command(given, names_before, self.engine, self.table, self.changes, self._guessed_method)
        self.plug.take_speculation(command)
        self._switch_engine(command)
        self._note_container()
        command.given = self._take_target(last_of_each(command.given, self.changes))
        command.engine = self.engine
        command.config = self.config
        command.target = self.target
        self.speculation = self.plug.read_speculation(command)
        given, self.config = command.given, command.config
        for entry in given:
            self._sort_flag(entry)
        self._note_suspects()
        self._sort_settings()

    def _refuse_other_verbs(self) -> None:
        """Raise DrafthouseError for a verb of the program that starts no complete server."""
        verb = self.plug.other_verbs.get(self.pasted.words[0]) if self.pasted.words else None
        if verb:
            raise one_problem(
                "unsupported-command",
                f"{self.pasted.program} {self.pasted.words[0]}: {verb}",
                "the command of one server",
                "paste the command of a server that does both",
            )

    def _switch_engine(self, command: Command) -> None:
        """Switch to an engine with the same command and flags (vLLM's Arctic plugin) if the speculation is its own."""
        for other in ENGINES:
            is_variant = other.like == self.plug.name and other.name in self.catalog.engines
            if is_variant and other.claims(command.taken, self.pasted.assignments):
                self.plug = other
                self.engine_id = other.name
                self.engine = self.catalog.engines[other.name]
                self.version = str(self.engine["default_version"])

    def _guessed_method(self, draft: str) -> str:
        """The method that the catalogue or the draft's name suggests; details at `guess_method`."""
        return guess_method(self.catalog, self.engine, draft)

    # --- speculation in other places than flags -------------------------------------------------------

    def _variables_as_flags(self) -> list[str]:
        """The flags that variables of the paste stand for, as words; these variables are removed from the paste."""
        words, flag_texts, unknown = flags_of_variables(self.pasted.assignments, self.plug.flag_variables, self.table)
        for name, flag_text in flag_texts.items():
            del self.pasted.assignments[name]
            self.note(name, flag_text or "(off)", "a flag by another way", "renamed")
        self.asked += filter(_MAY_SPECULATE.search, unknown)
        return words

    def _without_script_arguments(self, words: list[str]) -> list[str]:
        """The words without a script's own arguments (``$@``), which are unknown, and without escapes in JSON."""
        kept: list[str] = []
        for word in words:
            if word in _SCRIPT_ARGUMENTS:
                self.note(word, "", "what the script is called with; paste it too where it has flags", "ignored")
            elif word.startswith('{\\"'):  # JSON with the escapes of PowerShell, or of another text around it
                kept.append(word.replace('\\"', '"'))
            else:
                kept.append(word)
        return kept

    def _check_speculation(self, given: list[Given]) -> None:
        """Raise DrafthouseError if the value of a speculation flag is a variable that the paste does not set."""
        for entry in given:
            is_model = entry.name.endswith(("model", "model-path", "hf", "draft", "hf-repo", "tokenizer", "revision"))
            if not entry.name.replace("_", "-").startswith("spec") or is_model or not isinstance(entry.value, str):
                continue
            open_json = entry.value.startswith("{") and isinstance(json_value(entry.value), str)
            # A variable for the model stays in the command; one for the method would hide how the server speculates.
            if _VARIABLE_ALONE.fullmatch(entry.value) or (open_json and _TO_FILL.search(entry.value)):
                raise one_problem(
                    "value-is-variable",
                    f"{without_shapes(entry.value)}, which the paste does not set",
                    "the value itself: it says how the server speculates",
                    "paste the line that sets it too, or write the value out",
                    entry.spelled,
                )

    def _note_suspects(self) -> None:
        """Note the unknown parts that may speculate: passed on, they would make the baseline speculate too."""
        suspects = [] if self.speculation else [*self._suspects()]
        for what in [*self.asked, *suspects]:
            self.note(what, "", "it may speculate, in both arms: paste what it holds, or leave it out", "kept")
        self.asked += suspects

    def _suspects(self) -> Iterator[str]:
        """Yield the unknown parts that may speculate: variables, flags, settings, files that were not pasted."""
        for name, value in self.pasted.container:
            if self.plug.flag_variables and name in ("--env-file", "--env_file", "--envFrom"):
                yield f"the variables in {value}"
        for name, value in self.pasted.assignments.items():
            is_harmless = is_secret_name(name) or name in self.table["environment"]
            if value and _MAY_SPECULATE.search(name) and not is_harmless:
                yield f"{name}={value}"
        for given, _, words in self.kept:
            structured = str(given.value).startswith("{")
            if _MAY_SPECULATE.search(given.name) or (structured and _MAY_SPECULATE.search(str(given.value))):
                yield " ".join(words)
        yield from filter(_MAY_SPECULATE.search, self.unset)
        for name in self.config:
            if _MAY_SPECULATE.search(name):
                yield f"{name} (in {self.config_name})"
        if self.unread_file:
            yield self.unread_file

    # --- around the flags -----------------------------------------------------------------------------

    def _note_program(self) -> None:
        """Note the changes of the program, its launchers, its variables, and text glued to it."""
        pasted = self.pasted
        program = self.table["programs"].get(pasted.program)
        if program:
            self.note(pasted.program, program["became"], program.get("note", ""), "renamed", program["version"])
        for launcher in pasted.launchers:
            self.note(launcher, "", "not needed: the role serve starts the server", "moved")
        if pasted.prose:
            self.note(f"“{pasted.prose}”", "", "text of the page that is stuck to the last number", "ignored")
        for name, value in pasted.assignments.items():
            self._read_variable(name, value)

    def _read_variable(self, name: str, value: str) -> None:
        """Translate a variable: a sampling parameter, an obsolete variable, a secret, or passed on unchanged."""
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
            self.environment.append(f"{name}={shell_quoted(value)}")
            self.variables[name] = value

    def _note_container(self) -> None:
        """Note the flags of `docker run` and the image."""
        for name, value in self.pasted.container:
            if name == "--env":
                continue  # `_read_variable` translates it
            reason = self.flags.docker.get(name.removeprefix("--"))
            why = reason or "Drafthouse's containers have no such setting"
            self.note(f"docker {name} {value}".strip(), "", why, "moved" if reason else "removed")
        pasted_version = image_version(self.pasted.image)
        version = str(self.engine["default_version"])
        if self.pasted.image and pasted_version != version:
            why = "the catalogue's version; engine_version asks for another"
            self.note(self.pasted.image, f"{self.engine['name']} {version}", why, "moved")

    def _read_config_file(self, given: list[Given]) -> list[Given]:
        """The flags without the one that names a YAML file, which is read: TensorRT-LLM's settings, or vLLM's flags.

        vLLM's flags of the file are added to the result; TensorRT-LLM's settings become `config`.
        """
        name = self.table.get("config")
        entry = next((entry for entry in given if entry.name == name and isinstance(entry.value, str)), None)
        if entry is None:
            return given
        inline = entry.value.lstrip().startswith("{")
        text = entry.value if inline else self.file_of(entry.value)
        typed_as = f"{entry.spelled} {entry.value}"
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
        # Twice: removing an old level may uncover old keys below it.
        for _ in range(2):
            data = apply_keys(flattened(data), self.table, self.changes, self.config_name)
        self.config = {key: self._without_secret(key, value) for key, value in data.items()}
        if entry.name != entry.spelled.lstrip("-").replace("-", "_"):
            self.note(entry.spelled, entry.flag, "two names of one option; every version reads this one", "renamed")
        return others

    def _note_unread(self, entry: Given, typed_as: str) -> None:
        """Pass on the name of a configuration file that was not pasted, and note that its settings are missing."""
        why = "the file is neither here nor in the paste, so the profile lacks its settings; paste it first"
        self.note(typed_as, f"{entry.flag} {entry.value}", f"{why}: cat <<EOF > {entry.value} …", "kept")
        self.rest.append([entry.flag, entry.value])
        self.left_out.append(f"the settings in {entry.value}")
        self.unread_file = f"{entry.flag} {entry.value}"

    def _flags_of_file(self, data: Settings, given: Sequence[Given]) -> list[Given]:
        """The flags in a file, without those that the command has too, since the command line wins."""
        words: list[str] = []
        for key, value in data.items():
            words += map(without_shapes, file_words(str(key), value))
        names_in_command = {entry.name for entry in given}
        return [flag for flag in read_given(words, self.table) if flag.name not in names_in_command]

    @staticmethod
    def _without_secret(key: str, value: Any) -> Any:
        """The value of a setting without parts that look like a secret, or none of it if the key names a secret."""
        if isinstance(value, str):
            value = without_shapes(value)
            if is_secret_name(key):
                return GONE
        return value

    def _take_target(self, given: list[Given]) -> list[Given]:
        """The flags that name no model; the target is set from the others. Raises DrafthouseError without a model."""
        named, bare_words = self._possible_models(given)
        # A flag beats a bare word. Of flags the last one counts, of words the first: it follows the program.
        chosen = (named[-1:] or bare_words[:1] or [Given("", "", "")])[0]
        if not str(chosen.value).strip("/ "):
            raise one_problem("no-model", "no model", "the model that is served", "write it after the program's name")
        if chosen.name == "hf-repo":
            self.target_flag = "--hf-repo"
        self.target = self.moved_repository(str(chosen.value).rstrip("/"))
        rule = self.table.get("model_behind")
        if rule and self.pasted.program == rule["program"] and chosen.name == "model":
            self.note(chosen.spelled, self.target, rule["note"], "renamed", rule["version"])
        for entry in [*named, *bare_words]:
            if entry is not chosen:
                self.rest.append([entry.flag, entry.value] if entry.name else [str(entry.value)])
                self.note(entry.spelled, entry.spelled, f"{_NOT_KNOWN}; the model is {self.target}", "kept")
                if re.search(r"\$|\{\{|<", entry.spelled) and not entry.name:
                    self.unset.append(entry.spelled)
        return [entry for entry in given if entry not in named and entry.name]

    def _possible_models(self, given: list[Given]) -> tuple[list[Given], list[Given]]:
        """The flags that name a model, and the words without a flag that may name one."""
        named: list[Given] = []
        bare_words: list[Given] = []
        for entry in given:
            if entry.name in ("model", "hf-repo") and isinstance(entry.value, str):
                named.append(entry)
            elif entry.name == "" and not _ARGUMENTS_LEFT_OUT.fullmatch(entry.value):
                bare_words.append(entry)
            elif entry.name == "":
                self.note(entry.value, "", "a placeholder: fill it in", "ignored")
        # Words without any flag may be the rest of a sentence, "run llama-server as root", all the more where an engine
        # takes its model by a flag only.
        needs_flag = self.engine["launch"].get("target") == "--model"
        no_flags = bare_words and len(given) == len(bare_words)
        if no_flags and (needs_flag or _SENTENCE_WORD.fullmatch(str(bare_words[0].value))):
            return [], []
        return named, bare_words

    # --- flags of the server --------------------------------------------------------------------------

    def _sort_flag(self, entry: Given) -> None:
        """Sort one flag: address, name and key are the inventory's, an option goes to `serve`, others to `kept`."""
        launch = self.engine["launch"]
        options = self._options_by("flag")
        if entry.name in self.table["secret"] or (is_secret_name(entry.name) and entry.name != launch.get("key_file")):
            self._note_secret(entry)
            return
        words = flag_words(entry)
        typed_text = " ".join([entry.spelled, *words[1:]])
        if entry.flag == launch["host"]:
            words = [entry.flag, HOST]
            why = "the inventory's drafthouse_host; the network only behind a key and a firewall"
            self.note(typed_text, " ".join(words), why, "moved")
        elif entry.flag == launch["port"]:
            self.note(typed_text, "drafthouse_port", "set in the inventory, 8000 by default", "moved")
        elif entry.flag == launch.get("name"):
            self.note(typed_text, "served_name", "set by the model's entry in the catalogue", "moved")
        elif entry.flag == launch.get("key_file"):
            self.note(typed_text, KEY_FILE, "a file in the box's home", "moved")
        elif entry.flag in options and _TO_FILL.search(str(entry.value)):
            self.left_out.append(" ".join(words))
            self.note(typed_text, entry.flag, "fill in its value; the profile leaves it out until then", "kept")
        elif entry.flag in options:
            key = options[entry.flag]
            self.serve[key] = typed_value(entry, self.engine["options"][key]["type"])
        elif entry.flag in launch.get("always", {}):
            self.note(typed_text, entry.flag, "always on", "moved")
        else:
            self.kept.append((entry, typed_text, words))
        self.rest.append(words)

    def _options_by(self, kind: str) -> dict[str, str]:
        """The profile's keys by the engine's names of these options: its flags, or its settings (``kind`` "yaml")."""
        names: dict[str, str] = {}
        for key, option in self.engine["options"].items():
            name = option.get(kind)
            if isinstance(name, str):
                names[name] = key
        return names

    def _note_secret(self, entry: Given) -> None:
        """Note a flag with a secret, and pass an API key by a file or a variable instead."""
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

    def _sort_settings(self) -> None:
        """Sort the settings of the engine's YAML file: options go to `serve`, others to `left_out`."""
        options = self._options_by("yaml")
        for name, value in self.config.items():
            if name in options and GONE not in str(value):
                self.serve[options[name]] = value
            else:
                self.left_out.append(f"{name}: {value} (in {self.config_name})")
                self.note(f"{self.config_name}: {name}", name, _NOT_KNOWN, "kept")
