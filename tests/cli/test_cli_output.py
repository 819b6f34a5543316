"""What is printed where: streams, forms, colour, width, and readers that go away."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import DEADLINE, ROOT, Cli, Done, the_directory

ANSI = re.compile(r"\x1b\[")


def on_a_terminal(cli: Cli, *arguments: str, **environment: str) -> tuple[str, int]:
    """Run a command whose stdout and stderr are a terminal of 40 columns; what it showed."""
    ours, theirs = pty.openpty()
    process = cli.start(
        *arguments,
        stdout=theirs,
        stderr=theirs,
        env={"TERM": "xterm", "COLUMNS": "40"} | environment,
    )
    os.close(theirs)
    shown = b""
    try:
        while select.select([ours], [], [], DEADLINE)[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # EIO: the other end is closed
                break
            if not part:
                break
            shown += part
    finally:
        os.close(ours)
    return shown.decode().replace("\r\n", "\n"), process.wait(DEADLINE)


def test_text_for_a_pipe_is_plain_and_never_wrapped(cli: Cli) -> None:
    done = cli.run("checkpoint", env={"COLUMNS": "20"})

    directory = the_directory(cli)
    lines = done.stdout.splitlines()
    assert lines[0] == f"directory: {directory}"
    assert lines[1] == "result: reserved (1 question)"
    assert lines[2] == "checkpoint: task task, revision 4, flow checkpoint, goal reserved"
    assert lines[3].startswith("  order: ")
    assert lines[4] == "  reservation: task-reserve, active"
    assert lines[5] == f"next: fulfil checkpoint --directory {directory}"
    assert not ANSI.search(done.stdout + done.stderr)


def test_the_error_of_a_result_is_told(cli: Cli) -> None:
    done = cli.run("timeout")

    assert "error: CATALOG_TIMEOUT: The catalog read passed its 75 ms deadline." in done.stdout


def test_a_terminal_gets_colour_and_lines_that_can_be_copied(cli: Cli) -> None:
    shown, status = on_a_terminal(cli, "checkpoint")

    directory = the_directory(cli)
    assert status == 0
    assert ANSI.search(shown)
    assert f"fulfil checkpoint --directory {directory}" in shown


def test_no_color_and_dumb_terminals(cli: Cli) -> None:
    shown, _ = on_a_terminal(cli, "checkpoint", "--directory", "nowhere", NO_COLOR="1")
    assert shown.startswith("error DIRECTORY_NOT_FOUND: ")
    shown, _ = on_a_terminal(cli, "checkpoint", TERM="dumb")
    assert not ANSI.search(shown)


def test_force_color_reaches_a_pipe_but_never_json(cli: Cli) -> None:
    forced = {"FORCE_COLOR": "1", "COLUMNS": "20"}
    text = cli.run("checkpoint", env=forced)
    assert ANSI.search(text.stdout)
    assert len(text.stdout.splitlines()) == 6

    directory = str(the_directory(cli))
    done = cli.run("checkpoint", "--directory", directory, "--output", "json", env=forced)
    assert done.json["result"]["stage"] == "completed"
    both = cli.run("checkpoint", "--directory", directory, env=forced | {"NO_COLOR": "1"})
    assert not ANSI.search(both.stdout)


def test_quiet(cli: Cli) -> None:
    done = cli.run("checkpoint", "--quiet")

    assert done.stderr == ""
    assert done.stdout.startswith("directory: ")
    failed = cli.run("checkpoint", "--directory", "nowhere", "--quiet")
    assert failed.stderr.startswith("error DIRECTORY_NOT_FOUND")


def test_verbose_tells_the_parts_with_their_times(cli: Cli) -> None:
    done = cli.run("checkpoint", "--verbose", "--output", "json")

    assert done.json["result"]["stage"] == "reserved"
    timed = re.findall(r"^\[ *\d+\.\d{3} s\] (.+)$", done.stderr, re.MULTILINE)
    assert "starting the ledger service" in timed
    assert any("asking scripted:scripted" in line for line in timed)
    assert timed[-1] == "closed"


def test_the_packaged_default_is_told(cli: Cli) -> None:
    directory = cli.json("checkpoint", "--stop-after", "prepared")["directory"]
    (cli.directory / "ditto.yaml").unlink()

    done = cli.run("checkpoint", "--directory", directory)

    assert done.status == 0
    assert done.stderr == "config: the packaged default (there is no ditto.yaml here)\n"
    assert cli.run("checkpoint", "--directory", directory, "--quiet").stderr == ""


def test_what_strangers_write_cannot_forge_a_line(cli: Cli) -> None:
    (cli.directory / "order.txt").write_text(
        "Fulfillment request. SKU: LAMP-7; quantity: 3; "
        "delivery address: Dock\u202e\x1b[31m North.\n"
    )
    (cli.directory / "stock.json").write_text('{"LAMP-7": 5}')
    order = ("checkpoint", "--request", "order.txt", "--inventory", "stock.json")

    text = cli.run(*order)
    spoken = cli.run(*order, "--output", "json")

    assert text.status == spoken.status == 0, text
    assert "\\u202e\\u001b[31m North" in text.stdout
    for shown in (text.stdout, spoken.stdout):
        assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", shown)
    assert spoken.json["checkpoint"]["order"]["address"] == "Dock\u202e\x1b[31m North"


def test_a_reader_that_went_away_is_no_error(cli: Cli) -> None:
    directory = cli.json("checkpoint")["directory"]
    reading, writing = os.pipe()
    os.close(reading)
    process = cli.start("checkpoint", "--directory", directory, stdout=writing)
    os.close(writing)

    done = cli.end(process)

    assert (done.status, done.stderr) == (0, "")


def test_nobody_watches_stderr(cli: Cli) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = cli.start("checkpoint", "--output", "json", stderr=writing)
    os.close(writing)

    assert cli.end(process).json["result"]["stage"] == "reserved"


def test_a_result_that_cannot_be_written_is_an_error(cli: Cli) -> None:
    directory = cli.json("checkpoint")["directory"]
    with Path("/dev/full").open("w") as full:
        done = cli.run("checkpoint", "--directory", directory, stdout=full)

    assert (done.status, done.code) == (1, "INTERNAL")
    assert "Traceback" not in done.stderr
    assert cli.json("checkpoint", "--directory", directory)["result"]["stage"] == "completed"


def test_an_error_is_told_also_where_stdout_is_full(cli: Cli) -> None:
    with Path("/dev/full").open("w") as full:
        done = cli.run("checkpoint", "--bogus", "--output", "json", stdout=full)

    assert done.status == 2
    assert "error USAGE: No such option: --bogus" in done.stderr


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_that_cannot_be_written_is_no_bug(cli: Cli, option: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = cli.run(option, stdout=full)

    assert done.status == 1
    assert "could not be written" in done.stderr
    assert "report it" not in done.stderr


def closed(cli: Cli, *descriptors: int) -> Done:
    """A new task, by a process that is started without these streams."""
    return cli.run(
        *("checkpoint", "--output", "json"),
        preexec_fn=lambda: [os.close(descriptor) for descriptor in descriptors],
    )


@pytest.mark.parametrize("descriptors", [(0,), (2,), (0, 2)])
def test_a_stream_that_is_not_there_is_not_missed(cli: Cli, descriptors: tuple[int, ...]) -> None:
    done = closed(cli, *descriptors)

    assert (done.status, done.json["result"]["stage"]) == (0, "reserved")


def test_a_request_from_a_stdin_that_is_not_there(cli: Cli) -> None:
    (cli.directory / "stock.csv").write_text("sku,quantity\nSKU-1,10\n")

    done = cli.run(
        *("checkpoint", "--request", "-", "--inventory", "stock.csv"),
        preexec_fn=lambda: os.close(0),
    )

    assert (done.status, done.code) == (2, "REQUEST_INVALID")


def test_text_that_the_terminal_cannot_show_is_escaped(cli: Cli) -> None:
    (cli.directory / "order.txt").write_text(
        "Fulfillment request. SKU: LAMP-7; quantity: 3; delivery address: 北京.\n", encoding="utf-8"
    )
    (cli.directory / "stock.json").write_text('{"LAMP-7": 5}')

    done = cli.run(
        *("checkpoint", "--request", "order.txt", "--inventory", "stock.json"),
        *("--output", "json"),
        env={"PYTHONIOENCODING": "ascii"},
    )

    assert done.stdout.isascii()
    assert done.json["checkpoint"]["order"]["address"] == "北京"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]], ids=str)
def test_help_shows_the_eight_in_one_panel(arguments: list[str], cli: Cli) -> None:
    done = cli.run(*arguments, env={"COLUMNS": "100"})

    assert (done.status, done.stderr) == (0, "")
    panel = done.stdout.split("─ Flows ─", 1)[1].split("╰", 1)[0]
    rows = re.findall(r"^│ (\S+) +(\S.*?) +│$", panel, re.MULTILINE)
    assert [name for name, _ in rows] == [
        *("retry", "fallback", "timeout", "checkpoint", "pause", "session"),
        *("compensation", "side-effect"),
    ]
    assert all(purpose.endswith(".") for _, purpose in rows)
    assert "Example: `fulfil checkpoint`" in done.stdout


def test_every_command_has_help_and_loads_nothing_heavy_for_the_list() -> None:
    heavy = "pydantic openai httpx yaml dotenv sqlite3 asyncio"
    code = (
        "import sys\n"
        "from fulfillment_cli.cli.app import run, COMMANDS\n"
        "run(['--help'])\n"
        f"print('heavy:', [name for name in '{heavy}'.split() if name in sys.modules])\n"
        "for name in COMMANDS:\n"
        "    print('status:', run([name, '--help']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=DEADLINE,
        check=True,
    )

    assert "heavy: []" in done.stdout
    assert set(re.findall(r"status: (\d+)", done.stdout)) == {"0"}


def test_version(cli: Cli) -> None:
    from fulfillment_cli.version import __version__

    assert cli.run("--version").stdout == f"fulfil {__version__}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fulfil ", {"retry", "side-effect"}),
        ("fulfil comp", {"compensation"}),
        ("fulfil checkpoint --stop", {"--stop-after"}),
        ("fulfil checkpoint --stop-after ", {"prepared", "reserved"}),
        ("fulfil fallback --allow-source ", {"primary", "backup"}),
    ],
)
def test_shell_completion(words: str, expected: set[str], cli: Cli) -> None:
    done = cli.run(
        env={
            "_FULFIL_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
    )

    assert expected <= set(done.stdout.split()), done


def test_json_is_one_document_whatever_happens(cli: Cli) -> None:
    for arguments in (["checkpoint"], ["checkpoint", "--task", "a b"], ["nothing"]):
        done = cli.run(arguments[0], "--output", "json", *arguments[1:])
        assert len(done.stdout.splitlines()) == 1
        json.loads(done.stdout)
