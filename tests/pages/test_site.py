"""The documentation as a site: built strictly, with the index's navigation, and no link that leads nowhere."""

from __future__ import annotations

import shutil
import sys
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.workspace import ROOT

UV = str(Path(sys.executable).with_name("uv"))
#: The theme's page for a server, which a folder has not: it links from the server's root.
THEIRS = {"404.html"}


def loaded() -> Any:
    """The script as a module; its folder is no package."""
    spec = spec_from_file_location("docs_site", ROOT / "scripts" / "site.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return module


class Links(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag's link and its id."""
        given = dict(attrs)
        self.places += [place for name in ("href", "src") if (place := given.get(name))]
        self.ids |= {one for one in (given.get("id"), given.get("name")) if one}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    loaded().built(folder, UV)
    loaded().for_models(folder)
    return folder


def test_a_model_finds_every_page_as_markdown(site: Path) -> None:
    listed = [line for line in (site / "llms.txt").read_text("utf-8").splitlines() if line.startswith("- [")]
    assert len(listed) > 30
    for line in listed:
        page = line.partition("](")[2].rstrip(")")
        assert (site / page).read_text("utf-8") == (ROOT / page).read_text("utf-8")


def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {page: Links(page.read_text("utf-8")) for page in site.rglob("*.html") if page.name not in THEIRS}
    assert len(pages) > len(list(ROOT.glob("docs/*.md")))
    broken = []
    for page, found in pages.items():
        for place in found.places:
            parts = urlsplit(place)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchor = unquote(parts.fragment)
            known = pages[target].ids if target in pages else set()
            if not target.is_file() or (anchor and target in pages and anchor not in known):
                broken.append(f"{page.relative_to(site)}: {place}")
    assert broken == []


def test_the_site_asks_nobody_elsewhere_for_a_file(site: Path) -> None:
    text = (site / "docs" / "verdict.html").read_text("utf-8")
    assert not [place for place in Links(text).places if urlsplit(place).netloc and "mkdocs" not in place]
    assert not [host for host in ("fonts.g", "unpkg.com", "cdn.") if host in text]


def test_its_navigation_is_the_path_then_the_reference() -> None:
    navigation = loaded().navigation((ROOT / "docs" / "README.md").read_text("utf-8"))
    sections = [one if isinstance(one, str) else next(iter(one)) for one in navigation]
    path = ["Start", "My GPU", "My model", "My report", "Keep it running", "When it breaks"]
    assert [name for name in sections if name in path] == path
    assert sections.index("Reference") > sections.index(path[-1])
    assert navigation[sections.index("Start")] == {"Start": ["docs/getting-started.md"]}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("[a page](docs/nowhere.md)", "docs/nowhere.md"),
        ("[a place](docs/verdict.md#no-such-place)", "no-such-place"),
        ("[a folder](docs/decisions/)", "docs/decisions/"),
    ],
)
def test_a_link_that_leads_nowhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, said: str
) -> None:
    module = loaded()
    clone = tmp_path / "clone"
    module.staged(clone)
    shutil.copy(ROOT / "mkdocs.yml", clone)
    monkeypatch.setattr(module, "ROOT", clone)
    with (clone / "README.md").open("a", encoding="utf-8") as page:
        page.write(f"\n{wrong}\n")
    with pytest.raises(DrafthouseError) as refused:
        module.built(tmp_path / "site", UV)
    assert said in refused.value.problems[0].found
