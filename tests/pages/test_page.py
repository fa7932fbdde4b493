"""The report in a real browser: read by axe, on a phone, in the dark, on paper, without scripts."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.pages.browser import PHONE, TABLET, WIDE, Page
from tests.pages.conftest import NAMES
from tests.pages.shots import DESKTOP, pictures

SORTED = """(() => {
  const table = document.querySelector('[aria-label="Speed over load"] table');
  const heads = [...table.tHead.rows[0].cells];
  const at = heads.findIndex(head => head.textContent.startsWith("Speed-up"));
  const values = () => [...table.tBodies[0].rows].map(row => row.cells[at].dataset.sort);
  const seen = [values()];
  for (const _ of [1, 2]) { heads[at].querySelector("button").click(); seen.push(values()); }
  return {seen, marks: heads.map(head => head.getAttribute("aria-sort"))};
})()"""
TOO_WIDE = """[...document.querySelectorAll("main *")].filter(part => !part.closest(".scroll, pre, svg")
  && part.getBoundingClientRect().right > innerWidth + 1).map(part => part.outerHTML.slice(0, 120)).slice(0, 5)"""
# Text that does not fit its own box: it would be cut, or lie over its neighbour.
CUT = """[...document.querySelectorAll("h1, h2, h3, p, li, dt, dd, figcaption, summary, td, th")].filter(part =>
  part.offsetParent && part.scrollWidth > part.clientWidth + 1).map(part => part.outerHTML.slice(0, 120)).slice(0, 5)"""
# Values of the plot of speed-ups that lie over its threshold, the dashed line.
OVER_THRESHOLD = """[...document.querySelectorAll("figure svg")].flatMap(svg => {
  const line = svg.querySelector('[style*="stroke: var(--threshold)"][style*="stroke-dasharray"]');
  if (svg.querySelector("title").textContent !== "Speed-up by kind of prompt") return [];
  const at = line.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const own = text.getBoundingClientRect();
    return own.left < at.right && own.right > at.left && own.top < at.bottom && own.bottom > at.top;
  }).map(text => text.textContent);
})"""
# Heads of speed-ups that a reader has to scroll to, and how many there are.
CUT_OFF = """(() => {
  const heads = [...document.querySelectorAll(".scroll thead th")].filter(
    head => head.innerText.startsWith("Speed-up"));
  const cut = heads.filter(head =>
    head.getBoundingClientRect().right > head.closest(".scroll").getBoundingClientRect().right + 1);
  return [heads.length, cut.map(head => head.closest(".scroll").ariaLabel)];
})()"""
# What the links of the contents say, each by the text of the heading it leads to, and all headings.
CONTENTS = """[[...document.querySelectorAll("nav a")].map(
  link => document.querySelector(link.getAttribute("href")).textContent),
  [...document.querySelectorAll("h2")].map(head => head.textContent)]"""
HIDDEN_GATES = """[...document.querySelectorAll('[aria-label="Gates"] td')].filter(cell =>
  cell.getBoundingClientRect().right > innerWidth || !cell.offsetHeight).map(cell => cell.textContent)"""
OUT_OF_PLOT = """[...document.querySelectorAll("figure svg")].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const own = text.getBoundingClientRect();
    return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1;
  }).map(text => `${svg.querySelector("title").textContent}: ${text.textContent}`);
})"""


@pytest.mark.usefixtures("axe")
@pytest.mark.parametrize("name", NAMES)
async def test_axe_finds_nothing_wrong(page: Page, pages: dict[str, Path], name: str) -> None:
    found = []
    for size in (WIDE, PHONE):
        for scheme in ("light", "dark"):
            await page.look(size, scheme)
            await page.open(pages[name])
            await page.run("document.querySelectorAll('details').forEach(part => { part.open = true; })")
            found += [f"{size[0]} {scheme}: {line}" for line in await page.axe()]
    assert found == []


@pytest.mark.usefixtures("axe")
async def test_axe_bites(page: Page, pages: dict[str, Path], tmp_path: Path) -> None:
    text = pages["full"].read_text("utf-8")
    spoilt = text.replace('<html lang="en">', "<html>").replace("--muted: #66625a", "--muted: #cccccc")
    (tmp_path / "spoilt.html").write_text(spoilt.replace("<h2", "<h4").replace("</h2", "</h4"), "utf-8")
    await page.look(PHONE)
    await page.open(tmp_path / "spoilt.html")
    rules = {line.split(" ")[0] for line in await page.axe()}
    assert {"html-has-lang", "color-contrast", "heading-order"} <= rules


@pytest.mark.parametrize("name", NAMES)
async def test_the_page_asks_for_nothing_and_says_no_error(page: Page, pages: dict[str, Path], name: str) -> None:
    await page.look()
    await page.open(pages[name])
    await page.run("new Promise(done => setTimeout(done, 200))")
    assert [url for url in page.requested if url != pages[name].as_uri()] == []
    assert page.said == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(320, 640), PHONE, TABLET, WIDE])
async def test_nothing_is_wider_than_the_screen(
    page: Page, pages: dict[str, Path], name: str, size: tuple[int, int]
) -> None:
    await page.look(size)
    await page.open(pages[name])
    assert await page.run(TOO_WIDE) == []
    assert await page.run("document.documentElement.scrollWidth <= innerWidth")
    assert await page.run(CUT) == []
    assert await page.run(OUT_OF_PLOT) == []


async def test_the_verdict_is_what_a_phone_shows_first(page: Page, pages: dict[str, Path]) -> None:
    await page.look(PHONE)
    await page.open(pages["full"])
    place = await page.run("document.querySelector('.said').getBoundingClientRect().toJSON()")
    assert place["top"] < 200
    assert place["bottom"] < PHONE[1]
    order = await page.run("[...document.querySelectorAll('h2')].map(head => head.textContent)")
    wanted = ["Speed over load", "Acceptance", "Latency", "Gates and outputs", "Cost"]
    wanted += ["What was run", "Versions and machine", "Not measured", "As in the articles"]
    assert [head for head in order if head in wanted] == wanted


async def test_a_click_on_a_head_sorts_and_a_second_one_turns_it_round(page: Page, pages: dict[str, Path]) -> None:
    await page.look()
    await page.open(pages["invalid"])
    found = await page.run(SORTED)
    before, up, down = found["seen"]
    known = sorted((value for value in before if value), key=float)
    # What was not measured stays at the end, however it is sorted.
    gaps = [""] * before.count("")
    assert gaps == [] or up[-len(gaps) :] == gaps
    assert up == known + gaps
    assert down == known[::-1] + gaps
    assert up != before
    assert [mark for mark in found["marks"] if mark] == ["descending"]


async def test_the_keyboard_sorts_as_well(page: Page, pages: dict[str, Path]) -> None:
    await page.look()
    await page.open(pages["full"])
    await page.run("document.querySelector('th button').focus()")
    for kind in ("rawKeyDown", "char", "keyUp"):
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        await page.send("Input.dispatchKeyEvent", type=kind, **key, **({"text": "\r"} if kind == "char" else {}))
    assert await page.run("document.querySelector('th').getAttribute('aria-sort')") == "ascending"


async def test_without_scripts_everything_is_there(page: Page, pages: dict[str, Path]) -> None:
    await page.send("Emulation.setScriptExecutionDisabled", value=True)
    await page.look()
    await page.open(pages["full"])
    root = (await page.send("DOM.getDocument", depth=0))["root"]["nodeId"]
    text = (await page.send("DOM.getOuterHTML", nodeId=root))["outerHTML"]
    assert 'class="js"' not in text.partition("<body")[0]
    assert text.count("<svg") == 7
    assert "Not measured</h2>" in text


async def test_light_and_dark_differ_and_the_plots_with_them(page: Page, pages: dict[str, Path]) -> None:
    looks = []
    for scheme in ("light", "dark"):
        await page.look(scheme=scheme)
        await page.open(pages["full"])
        paper = await page.run("getComputedStyle(document.body).backgroundColor")
        ink = await page.run("getComputedStyle(document.querySelector('figure svg text')).fill")
        looks.append((paper, ink))
    assert looks[0][0] != looks[1][0]
    assert looks[0][1] != looks[1][1]


async def test_paper_shows_what_is_folded(page: Page, pages: dict[str, Path], tmp_path: Path) -> None:
    await page.look(media="print")
    await page.open(pages["full"])
    heights = await page.run("[...document.querySelectorAll('details > *:not(summary)')].map(p => p.offsetHeight)")
    assert heights
    assert min(heights) > 0
    assert await page.run("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    await page.look()
    await page.open(pages["full"])
    await page.paper(tmp_path / "report.pdf")
    data = (tmp_path / "report.pdf").read_bytes()
    assert data.startswith(b"%PDF")
    assert 3 <= data.count(b"/Type /Page\n") <= 20


@pytest.mark.parametrize("name", NAMES)
async def test_a_phone_shows_the_speed_ups_without_scrolling(page: Page, pages: dict[str, Path], name: str) -> None:
    await page.look(PHONE)
    await page.open(pages[name])
    heads, cut = await page.run(CUT_OFF)
    assert cut == []
    assert heads or name != "full"


@pytest.mark.parametrize("size", [WIDE, PHONE])
async def test_no_value_lies_over_the_threshold(page: Page, pages: dict[str, Path], size: tuple[int, int]) -> None:
    await page.look(size)
    await page.open(pages["full"])
    assert await page.run(OVER_THRESHOLD) == []


async def test_warnings_stand_in_the_verdict_and_the_articles_last(page: Page, pages: dict[str, Path]) -> None:
    await page.look()
    await page.open(pages["full"])
    assert await page.run("document.querySelectorAll('.verdict .weak li').length")
    assert await page.run("[...document.querySelectorAll('h2')].at(-1).textContent") == "As in the articles"


@pytest.mark.usefixtures("page")
async def test_the_pictures_of_docs_are_the_first_screen_in_light_dark_and_on_a_phone(
    pages: dict[str, Path], tmp_path: Path
) -> None:
    await pictures(tmp_path, pages["full"])
    sizes = {path.stem: struct.unpack(">II", path.read_bytes()[16:24]) for path in tmp_path.glob("*.png")}
    phone = (2 * PHONE[0], 2 * PHONE[1])
    assert sizes == {"report": DESKTOP, "report-dark": DESKTOP, "report-phone": phone}
    assert (tmp_path / "report.png").read_bytes() != (tmp_path / "report-dark.png").read_bytes()


@pytest.mark.parametrize("name", NAMES)
async def test_the_contents_lead_to_headings_in_their_order(page: Page, pages: dict[str, Path], name: str) -> None:
    await page.look()
    await page.open(pages[name])
    said, heads = await page.run(CONTENTS)
    assert said == [head for head in heads if head in said]
    assert name == "index" or len(said) >= 7


async def test_a_phone_shows_every_column_of_the_gates(page: Page, pages: dict[str, Path]) -> None:
    await page.look(PHONE)
    await page.open(pages["full"])
    assert await page.run(HIDDEN_GATES) == []
