"""The request text: bounded, from a regular file only, and the one the task was made with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fulfillment_cli.adapters.source import decode, read_bounded, read_source, source_hash
from fulfillment_cli.domain.errors import SourceError, SourceTooLarge
from fulfillment_cli.domain.order import MAX_SOURCE_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "task.txt"


def read(path: Path, content: bytes, limit: int = MAX_SOURCE_BYTES) -> str:
    path.write_bytes(content)
    return read_source(path, source_hash(content), limit)


@pytest.mark.parametrize("size", [1, 16, MAX_SOURCE_BYTES])
def test_a_text_as_long_as_the_limit_is_read(path: Path, size: int) -> None:
    assert read(path, b"x" * size, size) == "x" * size


@pytest.mark.parametrize(("size", "limit"), [(17, 16), (MAX_SOURCE_BYTES, MAX_SOURCE_BYTES - 1)])
def test_a_longer_text_says_how_long_it_is_and_that_reading_again_helps(
    path: Path, size: int, limit: int
) -> None:
    with pytest.raises(SourceTooLarge) as error:
        read(path, b"x" * size, limit)
    assert (error.value.required_bytes, error.value.retryable) == (size, True)
    assert read(path, b"x" * size, error.value.required_bytes) == "x" * size


@pytest.mark.parametrize("size", [MAX_SOURCE_BYTES + 1, 10 * MAX_SOURCE_BYTES])
def test_a_text_beyond_any_limit_says_that_reading_again_does_not_help(
    path: Path, size: int
) -> None:
    with pytest.raises(SourceTooLarge) as error:
        read(path, b"x" * size, 16)
    assert (error.value.required_bytes, error.value.retryable) == (size, False)


def test_no_more_is_read_than_is_allowed(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 36)  # a hole; whoever reads all of it runs out of memory
    with pytest.raises(SourceTooLarge) as error:
        read_bounded(path, 16)
    assert (error.value.required_bytes, error.value.retryable) == (1 << 36, False)


def test_a_file_that_pretends_to_be_empty_is_not_read_beyond_the_limit() -> None:
    with pytest.raises(SourceTooLarge):
        read_bounded(Path("/proc/self/maps"), 16)  # its size is said to be 0


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "SOURCE_EMPTY"),
        (b" \r\n\t", "SOURCE_EMPTY"),
        (b"\xef\xbb\xbf", "SOURCE_EMPTY"),
        (b"caf\xe9", "SOURCE_INVALID"),
        (b"\xff\xfeO\x00", "SOURCE_INVALID"),
        (b"order\x00", "SOURCE_INVALID"),
        (b"\xed\xa0\x80", "SOURCE_INVALID"),
    ],
    ids=["empty", "blank", "only a mark", "latin-1", "utf-16", "NUL", "surrogate"],
)
def test_what_is_no_text_has_its_code(path: Path, content: bytes, code: str) -> None:
    with pytest.raises(SourceError) as error:
        read(path, content)
    assert error.value.code == code


def test_a_byte_order_mark_is_not_part_of_the_text(path: Path) -> None:
    assert read(path, b"\xef\xbb\xbforder\r\n") == "order\r\n"


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"another order", "SOURCE_CHANGED"), (b"order\n", "SOURCE_CHANGED"), (b"", "SOURCE_EMPTY")],
)
def test_a_changed_text_is_refused(path: Path, content: bytes, code: str) -> None:
    path.write_bytes(content)
    with pytest.raises(SourceError) as error:
        read_source(path, source_hash(b"order"), MAX_SOURCE_BYTES)
    assert error.value.code == code


def test_a_missing_text_is_not_found(path: Path) -> None:
    with pytest.raises(SourceError) as error:
        read_bounded(path, 16)
    assert error.value.code == "SOURCE_NOT_FOUND"


def test_only_a_regular_file_is_read(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"order")
    symlink, dangling = tmp_path / "symlink", tmp_path / "dangling"
    symlink.symlink_to(target)
    dangling.symlink_to(tmp_path / "nothing")
    fifo, directory = tmp_path / "fifo", tmp_path / "directory"
    os.mkfifo(fifo)  # nobody writes into it: waiting would be for ever
    directory.mkdir()
    for unusable in (symlink, dangling, fifo, directory, Path("/dev/null")):
        with pytest.raises(SourceError) as error:
            read_bounded(unusable, 16)
        assert error.value.code == "SOURCE_INVALID", unusable


def test_a_source_error_never_shows_what_the_text_says() -> None:
    with pytest.raises(SourceError) as error:
        decode(b"secret order \xff")
    assert "secret" not in error.value.message
