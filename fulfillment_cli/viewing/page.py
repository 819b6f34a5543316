"""A story as one page that needs nothing else: no network, no script, no file beside it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import DictLoader, Environment, StrictUndefined, select_autoescape

from fulfillment_cli.adapters.clock import to_timestamp
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.exits import EXIT_OF_STAGE
from fulfillment_cli.domain.order import printable
from fulfillment_cli.domain.stage_info import STAGE_INFO
from fulfillment_cli.version import __version__
from fulfillment_cli.viewing.lanes import draw
from fulfillment_cli.viewing.spans import exact
from fulfillment_cli.viewing.story import Story, whole_story

if TYPE_CHECKING:
    from fulfillment_cli.viewing.outside import Outside

_TEMPLATES = ("base.html.j2", "task.html.j2", "gallery.html.j2")
_TONE_OF_EXIT = {0: "good", 4: "warn"}


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One page of a gallery.

    Attributes:
        title: What it shows.
        directory: The task directory.
        task: Id of the task; none: the only one.
        about: One line on what is to be seen.
    """

    title: str
    directory: Path
    task: str | None = None
    about: str = ""


def write_page(path: Path, story: Story, outside: Outside | None, following: str | None) -> None:
    """Write a story's page; replaces the file.

    Args:
        outside: What the ledger says, where it was asked.
        following: The command that continues the task, or none.

    Raises:
        UsageError: ``DIRECTORY_NOT_WRITABLE``.
    """
    _write(path, render(story, outside, following))


def render(story: Story, outside: Outside | None = None, following: str | None = None) -> str:
    """A story's page."""
    checkpoint = story.checkpoint
    hint = STAGE_INFO[checkpoint.stage].hint
    if checkpoint.intent is not None:
        hint = f"What may have been sent is looked up first. {hint}"
    return _render(
        "task.html.j2",
        story=story,
        checkpoint=checkpoint,
        chart=draw(story),
        facts=_facts(story, outside),
        info=STAGE_INFO[checkpoint.stage],
        hint=hint,
        tone=_tone(story),
        following=following,
        read_at=to_timestamp(story.now),
    )


def write_gallery(exhibits: Sequence[Exhibit], out: Path) -> list[Path]:
    """Write a page for each task and an ``index.html`` that leads to them.

    Args:
        exhibits: In the order of the index.
        out: A directory; made where it is missing. Pages of the same name are replaced.

    Returns:
        The files that were written, the index first.

    Raises:
        TaskNotFound, UsageError: A task cannot be read, or a file cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(out, error) from None
    index, shown = out / "index.html", []
    written: list[Path] = []
    for exhibit in exhibits:
        story = whole_story(exhibit.directory, exhibit.task)
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", exhibit.title).strip("-") or "task"
        page = out / f"{name}.html"
        if page in written or page == index:
            page = out / f"{name}-{len(written) + 1}.html"
        write_page(page, story, None, None)
        written.append(page)
        marks = [moment.told.mark for moment in story.moments]
        shown.append((exhibit, page.name, story, _tone(story), marks))
    _write(index, _render("gallery.html.j2", exhibits=shown))
    return [index, *written]


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
