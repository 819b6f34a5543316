"""``fulfil experiments --html``: a page for each experiment that was run, and an index."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.cli.app import COMMANDS, run
from fulfillment_cli.experiments.gallery import STORIES, write_pages
from fulfillment_cli.experiments.runner import EXPERIMENTS, Outcome
from tests.scripted_model import Reply, ScriptedModel, completion

FAST = ("retry-exhausted", "caller-cancelled-before-work", "pause-rejected")
HOSTILE = "<script>document.title='owned'</script> {{ 7 * 7 }} \u202egnorw & \"q'"
PURPOSES = {name: command.purpose for name, command in COMMANDS.items()}


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture
def experiments(
    tmp_path: Path,
    scripted_config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., Done]:
    """Run ``fulfil experiments`` inside this process, with the scripted model."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("FULFIL_")]:
        monkeypatch.delenv(name)

    def call(*words: str | Path) -> Done:
        status = run(["experiments", "--config", str(scripted_config), *map(str, words)])
        return Done(status, *capfd.readouterr())

    return call


def only(*names: str) -> list[str]:
    return [word for name in names for word in ("--only", name)]


class Page(HTMLParser):
    """What a page says, what it would load, and where it leads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text()
        self.tags: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.add(str(value))
            elif tag == "a" and name == "href":
                self.links.append(str(value))
            elif name in ("src", "srcset", "href", "action", "poster", "data"):
                self.loads.append(str(value))

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_whole(directory: Path) -> None:
    """Every link of every page leads somewhere in the gallery, and nothing is loaded."""
    pages = {path.name: Page(path) for path in directory.glob("*.html")}
    for name, page in pages.items():
        for link in page.links:
            file, _, fragment = link.partition("#")
            assert (file or name) in pages, (name, link)
            assert not fragment or fragment in pages[file or name].ids, (name, link)
        assert page.loads == ["data:,"], name
        assert "script" not in page.tags
        assert not re.search(r"url\(|@import|https?://", page.source), name


def test_each_experiment_has_a_page_and_the_index_leads_there(
    experiments: Callable[..., Done], tmp_path: Path
) -> None:
    gallery = tmp_path / "a" / "gallery"
    report = tmp_path / "report.json"
    done = experiments(*only(*FAST), "--html", gallery, "--report", report, "--output", "json")

    document = json.loads(done.out)
    assert (done.status, document["passed"], document["failed"]) == (0, 3, 0)
    assert document["html"] == str(gallery / "index.html")
    assert f"gallery: {gallery / 'index.html'}" in done.err.splitlines()
    assert json.loads(report.read_text())["passed"] == 3
    assert {path.name for path in gallery.iterdir()} == {
        "index.html",
        *(f"{name}.html" for name in FAST),
    }
    index = Page(gallery / "index.html")
    assert sorted(index.links) == sorted(f"{name}.html" for name in FAST)
    assert "3 stories: 3 passed, 0 failed" in index.text
    groups = re.findall(r'scope="rowgroup".*?<bdi>(\w+):', index.source)
    assert groups == ["retry", "pause"]
    assert_whole(gallery)
    page = Page(gallery / "pause-rejected.html")
    assert "index.html" in page.links
    assert STORIES["pause"]["pause-rejected"] in page.text
    assert "rejected" in page.text


def test_what_else_is_in_the_directory_stays(
    experiments: Callable[..., Done], tmp_path: Path
) -> None:
    gallery = tmp_path / "gallery"
    gallery.mkdir()
    for name in ("index.html", "retry-exhausted.html", "other.html", "notes.txt"):
        (gallery / name).write_text("old")
    done = experiments(*only("retry-exhausted"), "--html", gallery)

    assert done.status == 0
    kept = {path.name for path in gallery.iterdir() if path.read_text() == "old"}
    assert kept == {"other.html", "notes.txt"}
    assert len(list(gallery.iterdir())) == 4


def test_a_failed_experiment_is_marked(
    experiments: Callable[..., Done], scripted: ScriptedModel, tmp_path: Path
) -> None:
    scripted.script(*[Reply(completion("I do not know."))] * 9)
    done = experiments(*only("retry-exhausted", "pause-rejected"), "--html", "gallery")

    assert done.status == 1
    index = Page(tmp_path / "gallery" / "index.html")
    assert "2 stories: 1 passed, 1 failed" in index.text
    assert index.text.count("FAILED") == 1
    page = Page(tmp_path / "gallery" / "pause-rejected.html")
    assert "stage: expected <Stage.REJECTED: 'rejected'>" in page.text
    assert "FAILED" not in Page(tmp_path / "gallery" / "retry-exhausted.html").text
    assert_whole(tmp_path / "gallery")


def test_an_experiment_without_a_task_has_a_page_and_hostile_text_is_text(tmp_path: Path) -> None:
    report: dict[str, Any] = {"directory": str(tmp_path / "nowhere")}
    outcome = Outcome("read-deadline", None, 0.1, 0, [f"broke: {HOSTILE}"], report)
    index = write_pages([outcome], tmp_path / "gallery", PURPOSES)

    assert "no task" in Page(index).text
    page = Page(tmp_path / "gallery" / "read-deadline.html")
    assert HOSTILE.replace("\u202e", "\\u202e") in page.text
    assert "There is no directory" in page.text
    assert_whole(tmp_path / "gallery")


@pytest.mark.parametrize("place", ["file", "file/below", "/proc", "taken"])
def test_a_bad_directory_is_told_before_anything_is_run(
    experiments: Callable[..., Done], scripted: ScriptedModel, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "taken" / "pause-rejected.html").mkdir(parents=True)
    done = experiments(*only("pause-rejected"), "--html", place)

    assert done.status == 2
    assert done.err.startswith("error DIRECTORY_NOT_WRITABLE: ")
    assert place.partition("/")[0] in done.err.splitlines()[0]
    assert not (tmp_path / ".fulfil-experiments").exists()
    assert scripted.requests == []
    assert (tmp_path / "file").read_text() == "kept"


def test_the_crash_matrix_has_no_pages(experiments: Callable[..., Done], tmp_path: Path) -> None:
    done = experiments("--crash-matrix", "--flow", "retry", "--sample", "1", "--html", "gallery")

    assert done.status == 2
    assert "error USAGE: --html draws experiments" in done.err
    assert "fulfil show DIR --html FILE" in done.err
    assert not (tmp_path / "gallery").exists()


def test_the_gallery_knows_every_experiment() -> None:
    told = [name for stories in STORIES.values() for name in stories]

    assert sorted(told) == sorted(scenario.name for scenario in EXPERIMENTS)
    assert set(STORIES) <= set(COMMANDS)
