"""A string is text and nothing else: in every file that is rendered, whatever stands in profile, catalogue and site."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.plain_text import hidden_character
from drafthouse.profiles.render import arm_files, extra_files
from tests.support.hostile import HOSTILE, KEY, RUN, Clone, Sandbox, places, put, whole_of
from tests.support.injection import TEMPLATES, check_all, check_refusal

pytestmark = pytest.mark.processes

# One of each engine, way of speculation, and runtime.
PROFILES = (
    "cpu-smollm2-draft", "cpu-smollm2-vllm-ngram", "rtx6000-gptoss-suffix", "rtx6000-gptoss-trtllm-eagle3",
    "rtx6000-gptoss-arctic",
)  # fmt: skip
NGRAM = PROFILES[0]


class Bench:
    """Clones and a sandbox for one profile after the other."""

    def __init__(self, folder: Path, templates: Path = TEMPLATES, profiles: Sequence[str] = PROFILES) -> None:
        self.box = Sandbox(folder / "box")
        self.clones = {name: Clone(folder / name, name, templates) for name in profiles}
        self.wholes = {name: whole_of(name, self.site(name)) for name in profiles}
        self.rendered = self.refused = 0

    def site(self, name: str) -> dict[str, Any]:
        """A site with all that a site may have."""
        docker = name.startswith("rtx") and "arctic" not in name
        return {
            "manage_host": True,
            "runtime": "docker" if docker else "process",
            "home": str(self.box.folder / "home"),
            "models_dir": str(self.box.folder / "models"),
            "host": "127.0.0.1",
            "port": 8000,
            "allow_cidrs": ["192.0.2.0/24"],
            "gateway": True,
            "gateway_name": "llm.example.org",
            "watchdog": {"mode": "restart"},
            "monitoring": {"enabled": True, "listen": "127.0.0.1", "alertmanager": "alerts.example.org:9093"},
            "currency": "EUR",
            "price_per_hour": 1.5,
            "weights_from": "/mnt/models",
        }

    def attack(self, profile: str, changes: list[tuple[Any, Any]]) -> None:
        """Change strings of a profile; it is refused, or every file of it is as it was meant."""
        whole = self.wholes[profile]
        for place, change in changes:
            whole = put(whole, place, change)
        try:
            resolved = self.clones[profile].resolved(whole)
        except DrafthouseError as error:
            self.refused += 1
            check_refusal(error)
            self.box.untouched()
            return
        self.rendered += 1
        check_all(resolved, self.box)


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder with a short name: the gateway's socket lies in a home, and its path may have 107 letters."""
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
        yield Bench(Path(folder))


def replaced(text: str) -> Any:
    return lambda _: text


def behind(text: str) -> Any:
    return lambda before: before + text


def before(text: str) -> Any:
    return lambda after: text + after


# --- the hole that was found -----------------------------------------------------------------------------


def test_a_line_break_in_a_title_is_refused_with_its_place(bench: Bench) -> None:
    whole = put(bench.wholes[NGRAM], ("profile", "title"), replaced(f"a title\n{RUN}"))
    with pytest.raises(DrafthouseError) as caught:
        bench.clones[NGRAM].resolved(whole)
    (problem,) = caught.value.problems
    assert problem.where == f"profiles/{NGRAM}.yml: title"
    assert "U+000A" in problem.found
    assert problem.needed == "one line of text without control characters"


@pytest.mark.parametrize("profile", PROFILES)
def test_a_title_with_line_breaks_is_one_line_of_every_file(bench: Bench, profile: str) -> None:
    """What loads a profile refuses it; should it come through, the templates would still hold it."""
    title = f'a title\n{RUN}\r\n{RUN}\u2028x: 1\x85y: 2\n"""\n{RUN}\n\x1b[31m'
    resolved = bench.clones[profile].resolved(bench.wholes[profile])
    resolved["title"] = resolved["unpinned"] = title
    for arm in resolved["arms"].values():
        arm["files"] = arm_files(TEMPLATES, resolved, arm)
        if arm["config"]:
            arm["config"]["notes"] = [title]
    resolved["extras"] = extra_files(TEMPLATES, resolved)
    resolved["monitoring"] = None  # its names are no titles
    check_files(resolved, bench.box)


def check_files(resolved: dict[str, Any], box: Sandbox) -> None:
    check_all({**resolved, "title": "a title"}, box)


# --- every string ------------------------------------------------------------------------------------------

# What a shell, YAML, INI, a unit, Python and HTML each read as more than text, on one line of printable characters.
QUOTES = f"""x'"$({RUN})`{RUN}`; {RUN} #"" \\' {{{{ 7*7 }}}}{{% raw %}} %n%(here)s $$ */ --> ]]></script>"""
ONE_LINE = [text for text in HOSTILE if not hidden_character(text)]
PLAIN = f"""o'brien $({RUN})"""


def every_place(bench: Bench) -> Iterator[tuple[str, Any]]:
    for profile in PROFILES:
        for part, data in bench.wholes[profile].items():
            for place in places(data):
                yield profile, (part, *place)


def field_of(place: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a place is one of: the fields of one name of a file, or the keys below it."""
    named = [part for part in place if isinstance(part, str)]
    return (place[0], KEY, *named[-2:-1]) if place[-1] is KEY else (place[0], named[-1])


@pytest.mark.parametrize("part", [0, *[pytest.param(part, marks=pytest.mark.soak) for part in range(1, 5)]])
def test_every_field_of_profile_catalogue_and_site(bench: Bench, part: int) -> None:
    """One string at a time, of each field one, with all quotes at once behind what stands there; a fifth of them."""
    fields = {field_of(place): (profile, place) for profile, place in every_place(bench)}
    chosen = list(fields.values())[part::5]
    before = bench.rendered, bench.refused
    for profile, place in chosen:
        bench.attack(profile, [(place, behind(QUOTES))])
    rendered, refused = bench.rendered - before[0], bench.refused - before[1]
    assert rendered + refused == len(chosen)
    assert rendered > 5 and refused > 5, (rendered, refused)


@pytest.mark.soak
@pytest.mark.parametrize("change", [behind(QUOTES), replaced(QUOTES), behind(PLAIN), before(PLAIN)])
def test_every_string_of_profile_catalogue_and_site(bench: Bench, change: Any) -> None:
    # An entry of the catalogue that several profiles use is asked with one of them.
    found = {
        (profile if place[0] in ("profile", "site") else "", *place): (profile, place)
        for profile, place in every_place(bench)
    }
    for profile, place in found.values():
        bench.attack(profile, [(place, change)])


def attacks(bench: Bench) -> st.SearchStrategy[tuple[str, list[tuple[Any, Any]]]]:
    """Some strings of one profile, each replaced or added to by one or more hostile ones."""

    def of(profile: str) -> st.SearchStrategy[tuple[str, list[tuple[Any, Any]]]]:
        # Of one line, most of them: what has a line break is refused almost everywhere, and proves little.
        parts = st.one_of(*[st.sampled_from(ONE_LINE)] * 3, st.sampled_from(HOSTILE), st.text(max_size=6))
        texts = st.lists(parts, min_size=1, max_size=3).map("".join)
        ways = st.tuples(st.sampled_from([replaced, behind, before]), texts).map(lambda way: way[0](way[1]))
        place = st.sampled_from([place for name, place in every_place(bench) if name == profile])
        changes = st.lists(st.tuples(place, ways), min_size=1, max_size=2, unique_by=lambda change: repr(change[0]))
        return changes.map(lambda found: (profile, found))

    return st.sampled_from(PROFILES).flatmap(of)


def series(bench: Bench, number: int, *, derandomize: bool) -> None:
    @settings(
        max_examples=number, derandomize=derandomize, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), print_blob=True,
    )  # fmt: skip
    @given(attacks(bench))
    def attack(case: tuple[str, list[tuple[Any, Any]]]) -> None:
        bench.attack(*case)

    attack()


def test_hostile_strings_are_refused_or_are_text(bench: Bench) -> None:
    series(bench, 25, derandomize=True)


@pytest.mark.soak
def test_hostile_strings_at_length(bench: Bench, figure: Any) -> None:
    series(bench, 2000, derandomize=False)
    figure(f"injection: {bench.rendered} rendered and run, {bench.refused} refused, nothing ran that should not")


def test_the_hostile_strings_reach_the_files(bench: Bench) -> None:
    """A property that refuses everything would prove nothing: what is only text is let through, and quoted."""
    for profile, text in itertools.product(PROFILES, (PLAIN, '"quoted"', "100 % # \U0001f600 {{ x }}")):
        bench.attack(profile, [(("profile", "title"), replaced(text)), (("site", "currency"), replaced(text))])
    # And none of the files was passed over.
    for said in ("# The gateway, in the foreground", "# The watchdog", "# Prometheus: ", "exec llama-server", "FROM "):
        assert any(said in text for text in bench.box.seen), said


# --- the attack itself -------------------------------------------------------------------------------------

HF = ("models", "smollm2-135m-hf", "served_name")
VARIABLE = ("engines", "vllm", "launch", "environment", "HF_HUB_OFFLINE")
# What a template loses, and the string that must then be found out.
LOST = [
    ("serve/vllm.sh.j2", "value | argv", "value", VARIABLE, QUOTES),
    ("serve/vllm.sh.j2", "flag | argv", "flag | join(' ')", HF, QUOTES),
    ("smoke.sh.j2", " | in_single_quotes }},", " }},", HF, QUOTES),
    ("offline/vllm.py.j2", "title | docstring", "title", ("profile", "title"), '"""+str(open("canary", "w"))+"""'),
    ("offline/vllm.py.j2", "target.path | python", "target.path", ("site", "models_dir"), "it's"),
    ("gateway/serve.sh.j2", "key_file | argv", "key_file", ("site", "home"), " (x) & it's"),
    ("watchdog/serve.sh.j2", "home | argv", "home", ("site", "home"), f" & {RUN} &"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("template", "whole", "lost", "place", "text"),
    [pytest.param(*case, marks=pytest.mark.soak if number > 3 else ()) for number, case in enumerate(LOST)],
)
def test_a_template_without_its_quotes_is_found_out(
    template: str, whole: str, lost: str, place: Any, text: str, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = "cpu-smollm2-vllm-ngram"
    copied = room / "templates"
    shutil.copytree(TEMPLATES, copied)
    source = (copied / template).read_text()
    assert whole in source
    (copied / template).write_text(source.replace(whole, lost))
    Bench(room / "a", TEMPLATES, [profile]).attack(profile, [(place, behind(text))])
    monkeypatch.setattr("tests.support.injection.TEMPLATES", copied)
    with pytest.raises((AssertionError, SyntaxError, TypeError)):
        Bench(room / "b", copied, [profile]).attack(profile, [(place, behind(text))])
