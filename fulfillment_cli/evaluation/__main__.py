"""``python -m fulfillment_cli.evaluation``: ask the model, count, print."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fulfillment_cli.adapters.model import Model, open_model
from fulfillment_cli.domain.errors import AnswerRefused, FulfilError
from fulfillment_cli.domain.order import printable
from fulfillment_cli.evaluation.samples import Asked, Request, free_form, generated, questions
from fulfillment_cli.evaluation.score import Outcome, Score
from fulfillment_cli.settings import load_settings


def main() -> int:
    """Run it; 0 where nothing wrong was accepted, 1 where something was."""
    options = _options()
    try:
        report = asyncio.run(evaluate(options))
    except FulfilError as error:
        print(f"{error.code}: {error.message} {error.hint}", file=sys.stderr)
        return error.exit_status
    if options.json:
        print(json.dumps(report, ensure_ascii=False, indent=2))
    return 1 if any(row["wrong"]["count"] for row in report["sets"]) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fulfillment_cli.evaluation")
    parser.add_argument("--provider", help="a provider of the configuration; default: its own")
    parser.add_argument("--config", type=Path, help="default: ditto.yaml")
    parser.add_argument("--fixtures", type=Path, default=Path("fixtures"), metavar="DIR")
    parser.add_argument("--generated", type=int, default=300, metavar="N")
    parser.add_argument("--questions", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser.parse_args()


async def evaluate(options: argparse.Namespace) -> dict[str, Any]:
    """Ask all three sets and report.

    Raises:
        UsageError, ModelUnavailable, ModelError: The model cannot be asked.
    """
    chance = random.Random(options.seed)
    requests = generated(options.generated, chance)
    asked = questions(options.questions, chance)
    samples = free_form(options.fixtures / "requests")
    tell = (lambda _: None) if options.json else print
    started = time.monotonic()
    usage: Counter[str] = Counter()

    def observe(kind: str, data: dict[str, Any]) -> None:
        usage["requests"] += kind == "model-request"
        usage.update(data.get("usage") or {})

    settings = load_settings(options.config)
    async with open_model(settings, options.provider, _progress) as model:
        scores = []
        for name, rows in (("generated", requests), ("free-form", samples)):
            scores.append(await _extract_all(model, Score(name), rows, observe))
            _show(scores[-1], tell)
        scores.append(await _answer_all(model, asked, observe))
        _show(scores[-1], tell)
        report = {
            "provider": model.provider,
            "model": model.model,
            "weightsSha256": model.weights_sha256,
            "seed": options.seed,
            "seconds": round(time.monotonic() - started, 1),
            "questions": model.questions,
            "usage": dict(usage),
            "sets": [score.to_json() for score in scores],
        }
    tell(
        f"{model.provider}:{model.model} sha256 {model.weights_sha256}; {report['seconds']} s, "
        f"{model.questions} questions, {dict(usage)}"
    )
    return report


def _progress(line: str) -> None:
    print(line, file=sys.stderr)


def _show(score: Score, tell: Any) -> None:
    tell(score.line())
    for note in score.notes:
        tell(f"  {printable(note)}")


async def _extract_all(model: Model, score: Score, rows: list[Request], observe: Any) -> Score:
    for row in rows:
        try:
            order = await model.extract(row.text, observe)
        except AnswerRefused as error:
            refusal: Outcome = "right" if row.expected is None else "refused"
            score.add(row.name, refusal, f"{error.code}: {error.message}")
            continue
        score.add(
            row.name,
            "right" if order == row.expected else "wrong",
            f"{order.to_json()} instead of {row.expected and row.expected.to_json()}",
        )
    return score


async def _answer_all(model: Model, rows: list[Asked], observe: Any) -> Score:
    score = Score("session")
    for number, row in enumerate(rows, 1):
        try:
            await model.answer(row.state, row.question, observe)
        except AnswerRefused as error:
            score.add(f"question-{number}", "refused", f"{error.code}: {row.question}")
            continue
        # The model's facts were compared with the state: an accepted answer is a right one.
        score.add(f"question-{number}", "right")
    return score


if __name__ == "__main__":
    sys.exit(main())
