"""Counting words, and columns of a terminal."""

from __future__ import annotations

import pytest

from fulfillment_cli.domain.text import columns_of, counted, padded, wrapped


def test_one_and_many() -> None:
    assert counted(1, "task") == "1 task"
    assert counted(0, "task") == "0 tasks"
    assert counted(2, "directory", "directories") == "2 directories"


@pytest.mark.parametrize(
    ("text", "columns"), [("", 0), ("Dock", 4), ("北京", 4), ("e\u0301", 1), ("Straße", 6)]
)
def test_columns(text: str, columns: int) -> None:
    assert columns_of(text) == columns
    assert columns_of(padded(text, 8)) == 8


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two three", ["one two", "three"]),
        ("abcdefghijk", ["abcdefgh", "ijk"]),
        ("to abcdefghijk x", ["to", "abcdefgh", "ijk x"]),
        ("北京市朝阳区", ["北京市朝", "阳区"]),
    ],
)
def test_lines_of_eight_columns(text: str, lines: list[str]) -> None:
    assert wrapped(text, 8) == lines
