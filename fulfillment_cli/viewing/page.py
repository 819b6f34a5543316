"""A story as one page that needs nothing else: no network, no script, no file beside it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from jinja2 import DictLoader, Environment, StrictUndefined, select_autoescape

from fulfillment_cli.adapters.clock import to_timestamp
from fulfillment_cli.domain.errors import FulfilError, UsageError
from fulfillment_cli.domain.exits import EXIT_OF_STAGE
from fulfillment_cli.domain.order import printable
from fulfillment_cli.domain.stage_info import STAGE_INFO, safe_to_do
from fulfillment_cli.version import __version__
from fulfillment_cli.viewing.lanes import draw
from fulfillment_cli.viewing.spans import exact
from fulfillment_cli.viewing.story import Story, whole_story

if TYPE_CHECKING:
    from fulfillment_cli.viewing.outside import Outside

_TEMPLATES = (
    "base.html.j2",
    "task.html.j2",
    "gallery.html.j2",
    "broken.html.j2",
    "problems.html.j2",
)
_TONE_OF_EXIT = {0: "good", 4: "warn"}


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One page of a gallery.

    Attributes:
        title: What it shows.
        directory: The task directory.
        task: Id of the task; none: the only one.
        about: One line on what is to be seen.
        group: Heading of the part of the index it stands in; neighbours of one group share it.
        problems: What is not as it must be; none: nobody compared.
    """

    title: str
    directory: Path
    task: str | None = None
    about: str = ""
    group: str = ""
    problems: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Shown:
    """A row of the index; without a story where there is no task to tell of."""

    exhibit: Exhibit
    page: str
    tone: str
    story: Story | None
    marks: list[str]


def write_page(path: Path, story: Story, outside: Outside | None, following: str | None) -> None:
    """Write a story's page; replaces the file.

    Args:
        outside: What the ledger says, where it was asked.
        following: The command that continues the task, or none.

    Raises:
        UsageError: ``DIRECTORY_NOT_WRITABLE``.
    """
    _write(path, render(story, outside, following))


def render(
    story: Story,
    outside: Outside | None = None,
    following: str | None = None,
    exhibit: Exhibit | None = None,
) -> str:
    """A story's page; as an exhibit it has its title, and leads back to the index."""
    checkpoint = story.checkpoint
    return _render(
        "task.html.j2",
        story=story,
        checkpoint=checkpoint,
        chart=draw(story),
        facts=_facts(story, outside),
        info=STAGE_INFO[checkpoint.stage],
        hint=safe_to_do(checkpoint, str(story.directory)),
        tone=_tone(story),
        following=following,
        exhibit=exhibit,
        read_at=to_timestamp(story.now),
    )


def prepare_gallery(titles: Sequence[str], out: Path) -> list[Path]:
    """Make the directory of a gallery, and see that its pages can be written.

    Whoever works for minutes before there is something to show asks this first.

    Args:
        titles: Of the exhibits.
        out: A directory; made where it is missing.

    Returns:
        A file for each title, in their order.

    Raises:
        UsageError: ``DIRECTORY_NOT_WRITABLE``.
    """
    pages: list[Path] = []
    for title in titles:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", title).strip("-") or "task"
        page = out / f"{name}.html"
        if page in (*pages, out / "index.html"):
            page = out / f"{name}-{len(pages) + 1}.html"
        pages.append(page)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
        taken = next((page for page in (out / "index.html", *pages) if page.is_dir()), None)
    except FileExistsError:
        raise UsageError(f"{out} is not a directory.", code="DIRECTORY_NOT_WRITABLE") from None
    except OSError as error:
        raise _not_writable(out, error) from None
    if taken is not None:
        raise UsageError(f"{taken} is a directory.", code="DIRECTORY_NOT_WRITABLE")
    return pages


def write_gallery(exhibits: Sequence[Exhibit], out: Path) -> list[Path]:
    """Write a page for each task and an ``index.html`` that leads to them.

    Args:
        exhibits: In the order of the index.
        out: A directory; made where it is missing. Pages of the same name are replaced, and
            nothing else is touched.

    Returns:
        The files that were written, the index first.

    Raises:
        TaskNotFound, UsageError: A file cannot be written; or a task cannot be read, and nothing
            was known to be wrong with it.
    """
    pages = prepare_gallery([exhibit.title for exhibit in exhibits], out)
    index = out / "index.html"
    shown = [_exhibit(exhibit, page) for exhibit, page in zip(exhibits, pages, strict=True)]
    groups = [(name, list(rows)) for name, rows in groupby(shown, lambda row: row.exhibit.group)]
    _write(index, _render("gallery.html.j2", groups=groups, verdict=_verdict(exhibits)))
    return [index, *pages]


def _verdict(exhibits: Sequence[Exhibit]) -> str:
    """How many there are, and what comparing them came to."""
    compared = [exhibit.problems for exhibit in exhibits if exhibit.problems is not None]
    told = "1 story" if len(exhibits) == 1 else f"{len(exhibits)} stories"
    if compared:
        failed = sum(bool(problems) for problems in compared)
        told += f": {len(compared) - failed} passed, {failed} failed"
    return told


def _exhibit(exhibit: Exhibit, page: Path) -> _Shown:
    """Write an exhibit's page; its row of the index."""
    try:
        story = whole_story(exhibit.directory, exhibit.task)
    except FulfilError as error:
        if not exhibit.problems:
            raise
        _write(page, _render("broken.html.j2", exhibit=exhibit, error=error))
        return _Shown(exhibit, page.name, "bad", None, [])
    _write(page, render(story, exhibit=exhibit))
    marks = [str(moment.told.mark) for moment in story.moments]
    return _Shown(exhibit, page.name, _tone(story), story, marks)


def _tone(story: Story) -> str:
    return _TONE_OF_EXIT.get(EXIT_OF_STAGE[story.checkpoint.stage], "bad")


def _facts(story: Story, outside: Outside | None) -> list[tuple[str, str]]:
    """What is saved, for a person; only what is there."""
    saved = story.checkpoint
    facts: list[tuple[str, Any]] = [
        ("Directory", story.directory),
        ("Task", saved.id),
        ("Flow and goal", f"{saved.flow}, to go to {saved.goal}"),
        ("Revision", saved.revision),
    ]
    if saved.order is not None:
        facts.append(("Order", f"{saved.order.quantity} x {saved.order.sku}"))
        facts.append(("Address", saved.order.address))
    facts.append(("Known outside", story.known_outside))
    if outside is not None:
        facts.append(("The ledger says", outside.text))
    if saved.approval is not None:
        by = f"{saved.approval.decision} by {saved.approval.actor} at {saved.approval.at}"
        facts.append(("Decision", by))
    for label, issue in (
        ("Error", saved.error),
        ("Compensation error", saved.compensation_error),
        ("Uncertain", saved.uncertainty),
        ("Last attempt", saved.last_error),
        ("Given up", saved.dead_letter),
    ):
        if issue is not None:
            facts.append((label, f"{issue.code}: {issue.message}"))
    facts += [
        ("Attempts", saved.attempts),
        ("Next attempt", saved.next_attempt_at),
        ("To be decided by", saved.approval_expires_at),
        ("Catalog", saved.selected_source),
        ("Policy", _policy(saved.policy.to_json())),
        ("Plan", saved.plan_fingerprint),
        ("Source", saved.source_hash),
        ("Ledger", saved.ledger_id),
        ("Created", saved.created_at),
        ("Last change", saved.updated_at),
    ]
    return [(label, str(value)) for label, value in facts if value is not None]


def _policy(policy: dict[str, Any]) -> str:
    words = [f"{name} {_plain(value)}" for name, value in policy.items() if value not in (None, [])]
    return ", ".join(words)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _render(name: str, **values: Any) -> str:
    home = files("fulfillment_cli.viewing").joinpath("templates")
    texts = {one: home.joinpath(one).read_text(encoding="utf-8") for one in _TEMPLATES}
    environment = Environment(
        loader=DictLoader(texts),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # `shown`: characters that would reorder or hide what stands around them are escaped, too.
    environment.filters |= {
        "shown": lambda value: printable(str(value)),
        "exact": exact,
        "clock": lambda at: to_timestamp(at)[11:23],
        "day": lambda at: to_timestamp(at)[:10],
        "stamp": to_timestamp,
    }
    return environment.get_template(name).render(version=__version__, **values)


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    try:
        with draft.open("x", encoding="utf-8") as file:
            draft.chmod(0o600)  # it tells an address
            file.write(text)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise _not_writable(path, error) from None


def _not_writable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be written ({error.strerror}).", code="DIRECTORY_NOT_WRITABLE"
    )
