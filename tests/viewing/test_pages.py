"""``fulfil show --html``: looked at in a real browser, at the width of a phone and of a desk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.viewing.lanes import Axis, draw
from fulfillment_cli.viewing.page import Exhibit, render, write_gallery
from fulfillment_cli.viewing.story import whole_story
from tests.viewing.chromium import Chromium
from tests.viewing.conftest import HOSTILE, Made

NAMES = ("killed", "compensated", "lost", "paused", "timed-out", "hostile")


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def gallery(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gallery") / "pages"
    exhibits = [
        Exhibit(name, made[name], about=f"The story of {name}.", group=name[0], problems=())
        for name in NAMES
    ]
    absent = Exhibit("absent", made.root / "nowhere", about=HOSTILE, problems=(HOSTILE,))
    write_gallery([*exhibits, absent], out)
    return out


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["index", "absent", *NAMES])
def test_a_page_fits_and_complains_of_nothing(
    browser: Chromium, gallery: Path, name: str, width: int, dark: bool
) -> None:
    browser.open(gallery / f"{name}.html", width, dark=dark)

    assert browser.evaluate("document.readyState") == "complete"
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.scrollingElement.scrollWidth") <= width
    assert browser.evaluate(_OUTSIDE) == []
    assert browser.evaluate("document.querySelectorAll('h1').length") == 1
    assert browser.trouble == []
    # It is drawn, and dark where that is wanted.
    (red,) = re.findall(
        r"rgb\((\d+)", browser.evaluate("getComputedStyle(document.body).backgroundColor")
    )
    assert (int(red) < 64) is dark


_OUTSIDE = """
[...document.querySelectorAll('body *')].filter(element => {
  const box = element.getBoundingClientRect();
  const scrolls = element.closest('.chart') || element.matches('.skip');
  return box.width && !scrolls && (box.left < -1 || box.right > innerWidth + 1);
}).map(element => element.outerHTML.slice(0, 80))
"""


def test_what_is_told_can_be_told_apart(browser: Chromium, gallery: Path) -> None:
    """Contrast of every text with what is behind it: at least 4.5 to 1 (WCAG 2.2, AA)."""
    for name in ("killed", "absent", "index"):
        for dark in (False, True):
            browser.open(gallery / f"{name}.html", 1280, dark=dark)
            assert browser.evaluate(_FAINT) == []


_FAINT = """
(() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const bright = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = element => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility()) continue;
    const pair = [bright(parse(getComputedStyle(element).color)), bright(behind(element))];
    const ratio = (Math.max(...pair) + .05) / (Math.min(...pair) + .05);
    if (ratio < 4.5) faint.push([element.outerHTML.slice(0, 80), ratio]);
  }
  return faint;
})()
"""


@pytest.mark.parametrize("width", [360, 1280])
def test_hostile_text_is_text(browser: Chromium, gallery: Path, width: int) -> None:
    browser.open(gallery / "hostile.html", width)

    assert browser.evaluate("document.title") == "hostile: reserved"
    assert browser.evaluate("document.querySelectorAll('script, img, b, i').length") == 0
    shown = browser.evaluate("document.body.innerText")
    assert "<script>document.title='owned'</script>" in shown
    assert "{{ 7 * 7 }}" in shown
    assert "\\u202egnorw" in shown
    assert "A" * 50 in shown.replace("\n", "")
    assert "\u202e" not in browser.evaluate("document.documentElement.outerHTML")
    assert browser.trouble == []


def test_everything_is_reached_by_keyboard(browser: Chromium, gallery: Path) -> None:
    browser.open(gallery / "killed.html", 1280)
    dots = browser.evaluate("document.querySelectorAll('a.dot').length")
    browser.press("Tab", 9)
    assert browser.evaluate("document.activeElement.className") == "skip"
    reached = []
    for _ in range(dots + 3):
        browser.press("Tab", 9)
        reached.append(browser.evaluate("document.activeElement.getAttribute('href')"))
        if len(reached) == 3:
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert browser.evaluate(outline) == "solid"
    browser.evaluate("document.querySelector('a.dot[href=\"#m3\"]').focus()")
    browser.press("Enter", 13)

    assert reached[0] == "index.html"
    assert {one for one in reached[1:] if one} == {f"#m{number}" for number in range(1, dots + 1)}
    assert browser.evaluate("location.hash") == "#m3"


def test_a_screen_reader_meets_names_for_everything(browser: Chromium, gallery: Path) -> None:
    browser.open(gallery / "killed.html", 1280)
    met = browser.accessible()
    headings = [name for role, name in met if role == "heading"]
    links = [name for role, name in met if role == "link"]

    assert headings == ["killed completed", "Lanes", "What happened", "Facts"]
    assert [name for role, name in met if role == "region"] == ["Lanes"]
    groups = [name for role, name in met if role == "group"]
    assert groups[:3] == ["Runner", "Model", "Ledger"]
    assert len(links) > 10
    assert all(links)
    assert any("process gone for" in name for name in links)
    tables = [role for role, _ in met if role == "table"]
    assert len(tables) == 2
    assert {"columnheader", "rowheader"} <= {role for role, _ in met}


def test_it_prints(browser: Chromium, gallery: Path) -> None:
    browser.open(gallery / "killed.html", 1280, dark=True, media="print")

    assert browser.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert browser.pdf().startswith(b"%PDF")
    assert browser.trouble == []


def test_the_browser_notices_trouble(browser: Chromium, tmp_path: Path) -> None:
    """What the checks above rest on."""
    path = tmp_path / "bad.html"
    path.write_text(
        "<!doctype html><body style='background:#fff'><p style='width:2000px'>wide"
        "<p style='color:#eee'>faint<script>console.error('no'); x.y</script>"
        "<img src='http://127.0.0.1:9/a.png'>"
    )
    browser.open(path, 1280)

    assert browser.evaluate("document.scrollingElement.scrollWidth") > 1280
    assert browser.evaluate(_OUTSIDE)
    assert len(browser.evaluate(_FAINT)) == 1
    assert any("asked for http://127.0.0.1:9/a.png" in one for one in browser.trouble)
    assert any("ReferenceError" in one for one in browser.trouble)


class _References(HTMLParser):
    """Everything that a page would have to load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "srcset", "href", "action", "poster", "data"):
                self.found.append(f"{tag} {value}")


def test_a_page_needs_nothing_else(made: Made) -> None:
    text = render(whole_story(made["killed"]))
    references = _References()
    references.feed(text)

    assert {one for one in references.found if not one.startswith("a #")} == {"link data:,"}
    assert "<script" not in text
    assert "url(" not in text
    assert "default-src 'none'" in text


def test_every_bar_stands_in_the_legend(made: Made) -> None:
    drawn = set()
    for name in NAMES:
        page = render(whole_story(made[name]))
        drawn |= set(re.findall(r'class="bar (\w+)"', page))
        assert drawn <= set(re.findall(r'class="key bar (\w+)"', page))
    assert drawn >= {"work", "gone", "read", "ask", "send", "deadline", "wait"}


def test_lanes_are_in_the_order_of_time(made: Made) -> None:
    for name in NAMES:
        story = whole_story(made[name])
        chart = draw(story)
        dots = sorted(
            (dot for lane in chart.lanes for dot in lane.dots), key=lambda dot: dot.number
        )

        assert [dot.number for dot in dots] == list(range(1, len(story.moments) + 1))
        places = [dot.left for dot in dots]
        assert places == sorted(places)
        assert places[0] >= 0
        assert places[-1] <= 100
        for lane in chart.lanes:
            for bar in lane.bars:
                assert bar.width >= 0
                assert bar.left + bar.width <= 100


def test_labels_of_the_time_do_not_run_backwards() -> None:
    close = [label for _, label in Axis([0, 2.36, 2.376, 2.44]).ticks()]
    hours = [label for _, label in Axis([0, 7200, 7200.1, 7201.2, 7300]).ticks()]

    assert close == ["0", "2.360s", "2.376s", "2.440s"]
    assert hours == ["0", "2h0m", "2h1m"]


def test_the_lanes_show_attempts_crashes_and_deadlines(made: Made) -> None:
    def bars(name: str) -> list[tuple[str, str]]:
        chart = draw(whole_story(made[name]))
        return [(lane.name, bar.kind) for lane in chart.lanes for bar in lane.bars]

    assert bars("killed").count(("Runner", "gone")) == 2
    assert bars("killed").count(("Runner", "work")) == 3
    assert bars("killed").count(("Model", "ask")) == 2
    assert ("Ledger", "deadline") in bars("timed-out")
    assert ("Person", "wait") in bars("paused")
    sent = [bar for bar in bars("lost") if bar == ("Ledger", "send")]
    assert len(sent) == 3  # the lost one, what followed it, the shipment


def test_the_page_is_written_by_the_command(
    made: Made, tmp_path: Path, fulfil: Callable[..., Any]
) -> None:
    done = fulfil("show", made["lost"], "--html", "page.html")
    page = tmp_path / "page.html"

    assert done.status == 0
    assert "page: page.html" in done.out
    assert page.stat().st_mode & 0o777 == 0o600
    assert "no clear answer to task-reserve" in page.read_text()
    refused = fulfil("show", made["lost"], "--html", tmp_path / "nowhere" / "page.html")
    assert (refused.status, "DIRECTORY_NOT_WRITABLE" in refused.err) == (2, True)


def test_a_gallery_keeps_pages_of_one_name_apart(made: Made, tmp_path: Path) -> None:
    exhibits = [
        Exhibit("a/b", made["lost"]),
        Exhibit("a b", made["killed"]),
        Exhibit("", made["paused"]),
    ]

    written = write_gallery(exhibits, tmp_path)

    assert [path.name for path in written] == ["index.html", "a-b.html", "a-b-2.html", "task.html"]
    index = written[0].read_text()
    assert all(f'href="{path.name}"' in index for path in written[1:])
    assert "2 crashes" in index
    assert HOSTILE not in index
