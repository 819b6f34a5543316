"""What stays on a terminal: nothing half-drawn, nothing cut, and hints that can be run."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Done
from tests.cli.test_cli_output import on_a_terminal

STYLE = re.compile(r"\x1b\[[0-9;]*m")
SPINNER = re.compile("[\u2800-\u28ff]")


def test_the_spinner_is_gone_before_a_table_is_drawn(cli: Cli) -> None:
    shown, status = on_a_terminal(cli, "experiments", "--only", "retry-exhausted", COLUMNS="100")

    assert status == 0
    before, table = shown.split("experiment ", 1)
    assert SPINNER.search(before)
    assert not SPINNER.search(table)


def test_the_spinner_turns_in_ascii_where_the_encoding_is_not_unicode(cli: Cli) -> None:
    shown, status = on_a_terminal(cli, "checkpoint", PYTHONIOENCODING="ascii")

    assert status == 0
    assert "\x1b[?25l" in shown  # it turned: the cursor was hidden
    assert "\\u28" not in shown


def test_a_list_on_a_narrow_terminal_puts_below_what_does_not_fit(cli: Cli) -> None:
    directory = Path(cli.json("checkpoint")["directory"])

    shown, _ = on_a_terminal(cli, "list", COLUMNS="50")

    lines = STYLE.sub("", shown).splitlines()
    assert lines[0].split() == ["AGE", "STAGE", "ORDER", "ATTEMPTS", "TASK"]
    assert lines[2].strip() == f".fulfil-tasks/{directory.name}"
    assert lines[3].strip() == "waits for an explicit checkpoint"


@pytest.mark.parametrize(("command", "seen"), [("show", "left; the task"), ("events", " left ")])
def test_whoever_stops_watching_is_told_nothing(command: str, seen: str, cli: Cli) -> None:
    directory = cli.json("pause")["directory"]
    process = cli.start(command, directory, "--follow")
    assert process.stdout is not None
    while seen not in process.stdout.readline():
        pass

    process.send_signal(signal.SIGINT)

    done = cli.end(process)
    assert (done.status, done.stderr) == (130, "")


def test_hints_name_the_command_and_the_directory_that_are_known(
    cli: Cli, inside: Callable[..., Done]
) -> None:
    directory = cli.json("pause")["directory"]

    excluded = inside("pause", "--quiet", "--verbose")
    assert "See `fulfil pause --help`." in excluded.stderr
    undecided = inside("pause", "--directory", directory, "--decision", "approve")
    assert f"fulfil pause --directory {directory} --decision approve" in undecided.stderr
    other = inside("retry", "--directory", directory)
    assert "Use `fulfil pause` or `fulfil checkpoint` or `fulfil session`" in other.stderr
    shown = inside("show", directory)
    assert f"Decide: `fulfil pause --directory {directory} --decision" in shown.stdout


def test_an_end_without_a_next_command_says_what_to_do(cli: Cli) -> None:
    failed = cli.run("fallback", "--allow-source", "primary", "--fault", "primaryUnavailable")

    assert failed.status == 1
    assert failed.stdout.splitlines()[-1].startswith("do: Nothing was posted. Start a new task")
    assert "next:" not in failed.stdout


def test_a_flag_of_the_help_takes_no_value(inside: Callable[..., Done]) -> None:
    for words in (["--help"], ["recover", "--help"], ["checkpoint", "--help"]):
        shown = inside(*words).stdout
        assert "--help" in shown
        assert "<bool>" not in shown


def test_sentences_are_broken_at_spaces_and_commands_are_not(cli: Cli) -> None:
    directory = cli.json("pause")["directory"]

    shown, _ = on_a_terminal(cli, "show", directory)

    lines = STYLE.sub("", shown).splitlines()
    at = lines.index("safe to do: Decide:")
    command = f"`fulfil pause --directory {directory} --decision approve|reject --actor NAME`."
    assert lines[at + 1] == f"  {command}"
    error, _ = on_a_terminal(cli, "show", "nowhere", NO_COLOR="1")
    *_, last = error.splitlines()
    assert last == "  the directories below .fulfil-tasks."


def test_a_story_on_a_narrow_terminal_stands_below_its_times(cli: Cli) -> None:
    directory = cli.json("pause")["directory"]

    shown, _ = on_a_terminal(cli, "show", directory)

    story = STYLE.sub("", shown).split(" UTC\n", 1)[1].splitlines()
    assert story[1] == "  created for pause, to go to completed"
    assert max(map(len, story)) <= 40
