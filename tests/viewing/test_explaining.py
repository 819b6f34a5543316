"""``fulfil explain``: every code and stage, from the tables that the rest uses too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from fulfillment_cli.cli.app import COMMANDS
from fulfillment_cli.domain.codes import CODES
from fulfillment_cli.domain.stage_info import STAGE_INFO
from fulfillment_cli.domain.stages import FINAL, Stage


def test_every_code_and_stage_is_explained(fulfil: Callable[..., Any]) -> None:
    done = fulfil("explain", "--output", "json")
    names = {(one["kind"], one["name"]) for one in json.loads(done.out)["explained"]}

    assert done.status == 0
    assert names == {("code", code) for code in CODES} | {("stage", stage.value) for stage in Stage}
    assert set(STAGE_INFO) == set(Stage)


@pytest.mark.parametrize("name", ["OUTCOME_UNKNOWN", "outcome-unknown", "Outcome_Unknown"])
def test_a_code_is_found_however_it_is_written(fulfil: Callable[..., Any], name: str) -> None:
    done = fulfil("explain", name)

    assert done.status == 0
    assert done.out.splitlines()[0] == "code: OUTCOME_UNKNOWN"
    assert CODES["OUTCOME_UNKNOWN"].hint in done.out
    assert "exit status: 4" in done.out


def test_a_stage_says_where_it_leads(fulfil: Callable[..., Any]) -> None:
    document = json.loads(fulfil("explain", "timed_out", "--output", "json").out)

    assert document["leadsTo"] == ["prepared"]
    assert document["exitStatus"] == 4
    assert "fulfil checkpoint" in document["hint"]
    for stage in FINAL - {Stage.NEEDS_REVIEW}:
        assert "it is final" in fulfil("explain", stage.value).out


def test_a_name_that_is_none_gets_the_nearest(fulfil: Callable[..., Any]) -> None:
    done = fulfil("explain", "OUTCOME_UNKWN")

    assert done.status == 2
    assert "Did you mean OUTCOME_UNKNOWN?" in done.err
    assert "lists them all" in fulfil("explain", "zzzzzz").err


def test_every_command_that_a_hint_names_is_there() -> None:
    hints = [info.hint for info in CODES.values()] + [info.hint for info in STAGE_INFO.values()]
    named = [word for hint in hints for word in re.findall(r"`fulfil ([a-z-]+)", hint)]

    assert len(named) > 5
    assert set(named) <= set(COMMANDS)
