"""Counting a model's answers: right, refused, wrong but accepted, each with its interval."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist

import pytest

from fulfillment_cli.domain.order import Order
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.evaluation import __main__ as evaluation
from fulfillment_cli.evaluation.samples import free_form, generated, questions
from fulfillment_cli.evaluation.score import OUTCOMES, Score, wilson
from tests.scripted_model import Reply, Request, ScriptedModel, completion, right_answer

Run = Callable[..., int]


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [
        (0, 10, 0.0, 0.27753),
        (5, 10, 0.23659, 0.76341),
        (10, 10, 0.72247, 1.0),
        (1, 1, 0.20655, 1.0),
        (8, 10, 0.49016, 0.94332),
        (0, 300, 0.0, 0.01264),
        (95, 100, 0.88825, 0.97846),
    ],
)
def test_the_interval_is_wilsons(hits: int, total: int, low: float, high: float) -> None:
    assert wilson(hits, total) == pytest.approx((low, high), abs=1e-5)


@pytest.mark.parametrize(("hits", "total"), [(1, 3), (5, 10), (8, 10), (95, 100), (299, 300)])
def test_its_bounds_are_the_shares_that_the_score_test_just_keeps(hits: int, total: int) -> None:
    for bound in wilson(hits, total):
        deviation = abs(hits / total - bound) / math.sqrt(bound * (1 - bound) / total)
        assert deviation == pytest.approx(NormalDist().inv_cdf(0.975))


def test_the_interval_of_nothing_is_everything() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("total", [1, 7, 300])
def test_an_interval_holds_its_share_and_stays_within_bounds(total: int) -> None:
    for hits in range(total + 1):
        low, high = wilson(hits, total)
        assert 0 <= low <= hits / total + 1e-12
        assert hits / total - 1e-12 <= high <= 1
        mirrored = wilson(total - hits, total)
        assert mirrored == pytest.approx((1 - high, 1 - low))


def test_a_score_counts_each_outcome_and_notes_what_is_not_right() -> None:
    score = Score("set")
    score.add("a", "right", "not noted")
    score.add("b", "right")
    score.add("c", "refused", "MODEL_EMPTY")
    score.add("d", "wrong", "3 instead of 2")
    assert score.total == 4
    assert score.notes == ["c: refused: MODEL_EMPTY", "d: wrong: 3 instead of 2"]
    told = score.to_json()
    assert [told[outcome]["count"] for outcome in OUTCOMES] == [2, 1, 1]
    assert told["wrong"]["interval"] == [round(bound, 4) for bound in wilson(1, 4)]
    assert score.line() == (
        "set (4): right 2 [15.0%, 85.0%], refused 1 [4.6%, 69.9%], "
        "wrong but accepted 1 [4.6%, 69.9%]"
    )


# -- samples -------------------------------------------------------------------------------------


def test_generated_requests_follow_from_the_seed_and_hold_their_order() -> None:
    rows = generated(50, random.Random(7))
    assert rows == generated(50, random.Random(7))
    assert rows != generated(50, random.Random(8))
    for row in rows:
        assert row.expected is not None
        assert row.expected.sku in row.text
        assert row.expected.address in row.text
        assert str(row.expected.quantity) in row.text
    assert sum(row.text.startswith("Fulfillment request.") for row in rows) > 15
    assert len({row.text[:5] for row in rows}) > 3


def test_questions_follow_from_the_seed() -> None:
    rows = questions(50, random.Random(7))
    assert rows == questions(50, random.Random(7))
    assert {row.state.stage for row in rows} <= {str(stage) for stage in Stage}
    assert len({row.question for row in rows}) > 5


def test_samples_that_never_reach_a_model_are_left_out(requests: Path) -> None:
    names = {row.name: row.expected for row in free_form(requests)}
    assert names == {"good.txt": Order(sku="SKU-1", quantity=2, address="Dock"), "bad.txt": None}


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    """Three samples: one with an order, one that is to be refused, one that is no text."""
    directory = tmp_path / "fixtures" / "requests"
    directory.mkdir(parents=True)
    (directory / "good.txt").write_text("SKU: SKU-1; quantity: 2; delivery address: Dock.\n")
    (directory / "bad.txt").write_text("SKU: SKU-1; quantity: 200; delivery address: Dock.\n")
    (directory / "none.txt").write_bytes(b"\xff")
    expected = {
        "good.txt": {"order": {"sku": "SKU-1", "quantity": 2, "address": "Dock"}},
        "bad.txt": {"code": "ORDER_NOT_GROUNDED"},
        "none.txt": {"code": "SOURCE_INVALID"},
    }
    (directory / "expected.json").write_text(json.dumps(expected))
    return directory


@pytest.fixture
def run(
    requests: Path, tmp_path: Path, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> Run:
    config = tmp_path / "ditto.yaml"
    config.write_text(scripted.config(max_attempts=1))

    def call(*arguments: str, count: int = 4) -> int:
        line = ["--config", str(config), "--fixtures", str(requests.parent)]
        line += ["--generated", str(count), "--questions", str(count)]
        monkeypatch.setattr(sys, "argv", ["evaluation", *line, *arguments])
        return evaluation.main()

    return call


def _right(request: Request) -> Reply:
    """Right for every form that is generated: the only order that the schema allows."""
    schema = request.get("response_format", {}).get("json_schema", {})
    if schema.get("name") != "extraction":
        return right_answer(request)
    text = request["messages"][-1]["content"]
    for row in generated(4, random.Random(1)):
        if row.text.strip() == text:
            assert row.expected is not None
            return Reply(completion(json.dumps(row.expected.to_json())))
    answer = {"sku": "SKU-1", "quantity": 2, "address": "Dock"}
    return Reply(completion(json.dumps(answer if "200" not in text else {})))


def test_right_answers_are_counted_and_all_three_shares_are_printed(
    run: Run, scripted: ScriptedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted.script(then=_right)
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("generated (4): right 4 [51.0%, 100.0%], refused 0 [0.0%, 49.0%], ")
    assert lines[0].endswith("wrong but accepted 0 [0.0%, 49.0%]")
    assert lines[1].startswith("free-form (2): right 2 [34.2%, 100.0%], refused 0")
    assert lines[2].startswith("session (4): right 4 [51.0%, 100.0%], refused 0")
    assert lines[3].startswith("scripted:scripted sha256 None; ")
    assert "10 questions" in lines[3]
    assert "'requests': 10" in lines[3]
    assert "'total_tokens': 150" in lines[3]
    assert len(scripted.requests) == 10


def test_a_model_that_says_nothing_useful_is_refused_everywhere(
    run: Run, scripted: ScriptedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted.script(then=lambda _: Reply(completion("I do not know.")))
    assert run("--json") == 0  # nothing wrong was accepted
    report = json.loads(capsys.readouterr().out)
    counts = {row["set"]: [row[outcome]["count"] for outcome in OUTCOMES] for row in report["sets"]}
    assert counts == {"generated": [0, 4, 0], "free-form": [1, 1, 0], "session": [0, 4, 0]}
    assert all("MODEL_NOT_JSON" in note for row in report["sets"] for note in row["notes"])


def test_a_wrong_order_that_is_accepted_counts_as_wrong(
    run: Run, requests: Path, scripted: ScriptedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """Grounded, and not what the sample's author meant: the only thing that fails the run."""
    expected = json.loads((requests / "expected.json").read_text())
    expected["good.txt"]["order"]["address"] = "Dock 2"
    (requests / "expected.json").write_text(json.dumps(expected))
    scripted.script(then=_right)
    assert run("--json") == 1
    report = json.loads(capsys.readouterr().out)
    generated_, samples, session = report["sets"]
    assert [samples[outcome]["count"] for outcome in OUTCOMES] == [1, 0, 1]
    assert samples["wrong"]["interval"] == [round(bound, 4) for bound in wilson(1, 2)]
    (note,) = samples["notes"]
    assert note.startswith("good.txt: wrong: ")
    assert "Dock 2" in note
    assert generated_["wrong"]["count"] == session["wrong"]["count"] == 0


def test_an_order_from_a_sample_that_is_to_be_refused_counts_as_wrong(
    run: Run, requests: Path, scripted: ScriptedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = json.loads((requests / "expected.json").read_text())
    expected["good.txt"] = {"code": "ORDER_NOT_GROUNDED"}
    (requests / "expected.json").write_text(json.dumps(expected))
    scripted.script(then=_right)
    assert run() == 1
    printed = capsys.readouterr().out
    assert "free-form (2): right 1 " in printed
    assert "wrong but accepted 1 [" in printed
    assert "  good.txt: wrong: " in printed


def test_a_model_that_is_down_ends_it_with_its_code(
    run: Run, scripted: ScriptedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted.script(then=lambda _: Reply({}, status=503))
    assert run() == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("MODEL_UNAVAILABLE: ")


def test_a_directory_without_samples_is_named(
    run: Run, requests: Path, scripted: ScriptedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    (requests / "expected.json").unlink()
    assert run() == 2
    assert "holds no sample requests" in capsys.readouterr().err
    assert scripted.requests == []
