"""``fulfil experiments``: the end-to-end experiments and the crash matrix."""

from __future__ import annotations

import os
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fulfillment_cli.cli.live import LiveTable
from fulfillment_cli.cli.options import OutputOptions
from fulfillment_cli.cli.progress import Progress
from fulfillment_cli.domain.codes import EXIT_FAILED, EXIT_OK
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.stages import Flow
from fulfillment_cli.experiments import matrix
from fulfillment_cli.experiments.gallery import check_gallery, write_pages
from fulfillment_cli.experiments.provider import SharedModel, shared_model
from fulfillment_cli.experiments.runner import (
    EXPERIMENTS,
    Outcome,
    full_report,
    new_run_directory,
    run_experiments,
    select,
    write_report,
)
from fulfillment_cli.report import Line, Report
from fulfillment_cli.settings import load_settings


def _names(incomplete: str) -> list[str]:
    return [scenario.name for scenario in EXPERIMENTS if scenario.name.startswith(incomplete)]


@dataclass(frozen=True)
class Run:
    """What was asked for, with its defaults filled in."""

    directory: Path
    seed: int
    jobs: int
    report: Path | None
    html: Path | None


def experiments(
    options: OutputOptions,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="Run this one; * and ? match; repeatable.",
            autocompletion=_names,
        ),
    ] = None,
    crash_matrix: Annotated[
        bool,
        typer.Option(
            "--crash-matrix", help="Kill at every durable boundary of every flow instead."
        ),
    ] = False,
    flow: Annotated[
        list[Flow] | None,
        typer.Option("--flow", metavar="FLOW", help="Crash matrix of this flow only; repeatable."),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample", min=1, metavar="N", help="Only N boundaries of the crash matrix, by seed."
        ),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Name the experiments and run none.")
    ] = False,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAME", help="A real model provider.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Configuration.")
    ] = None,
    env_file: Annotated[
        Path | None, typer.Option("--env-file", metavar="FILE", help="Credentials.")
    ] = None,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", metavar="DIR", help="Where runs are kept.")
    ] = Path(".fulfil-experiments"),
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the JSON report here.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="DIR", help="Write a page for each experiment, and an index."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            max=64,
            metavar="N",
            help="Side by side. [default 1; crash matrix: one for each processor]",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="N", help="Of the random orders. [default random]"),
    ] = None,
) -> Report:
    """Run the promise: real model, real HTTP, two real ledgers, real SIGKILL."""
    if listed:
        lines = tuple(Line("", scenario.name) for scenario in EXPERIMENTS)
        return Report({"experiments": [scenario.name for scenario in EXPERIMENTS]}, lines)
    if crash_matrix and only:
        raise UsageError("--only names experiments; the crash matrix takes --flow.")
    if not crash_matrix and (flow or sample):
        raise UsageError("--flow and --sample go with --crash-matrix.")
    if crash_matrix and html is not None:
        raise UsageError(
            "--html draws experiments; the crash matrix is a table.",
            hint="Leave --crash-matrix out, or draw one task: `fulfil show DIR --html FILE`.",
        )
    chosen = select(only or [])
    if html is not None:
        check_gallery(chosen, html)
    settings = load_settings(config, env_file)
    settings.select(provider)
    run = Run(
        new_run_directory(output_dir),
        secrets.randbelow(2**32) if seed is None else seed,
        jobs or ((os.cpu_count() or 1) if crash_matrix else 1),
        report,
        html,
    )
    work: Any = (
        (lambda model: _matrix(options, run, model, flow or list(Flow), sample))
        if crash_matrix
        else (lambda model: _experiments(options, run, model, chosen))
    )

    async def with_model() -> Report:
        async with AsyncExitStack() as stack:
            with Progress(options.invocation) as progress:  # its line ends where the table begins
                progress(f"run directory: {run.directory}")
                model = await stack.enter_async_context(
                    shared_model(settings, provider, run.directory, progress)
                )
            found: Report = await work(model)
            options.invocation.outcome = found
        return found

    return options.invocation.run(with_model())


async def _experiments(
    options: OutputOptions, run: Run, model: SharedModel, chosen: list[Any]
) -> Report:
    headings = ("experiment", "stage", "seconds", "requests", "result")
    with LiveTable(options.invocation, headings) as live:
        outcomes = await run_experiments(
            chosen,
            run.directory,
            model,
            seed=run.seed,
            jobs=run.jobs,
            started=live.start,
            ended=lambda outcome: live.end(outcome.name, *_cells(outcome)),
        )
    document = full_report(outcomes, model, seed=run.seed, directory=run.directory)
    _save(run, document)
    if run.html is not None:
        document["html"] = str(_gallery(outcomes, run.html))
        options.invocation.say(f"gallery: {document['html']}")
    width = max(len(outcome.name) for outcome in outcomes)
    lines: list[Line] = []
    for outcome in outcomes:
        style = "green" if outcome.passed else "bold red"
        row = f"{outcome.name:{width}}  " + "  ".join(_cells(outcome))
        lines.append(Line("", row, style))
        lines += [Line("    differs", problem) for problem in outcome.problems]
    described = document["model"]
    weights = described["weightsSha256"] or described["endpoint"]
    lines += [
        Line("model", f"{described['provider']}: {described['model']} ({weights})"),
        Line("usage", ", ".join(f"{n} {c}" for n, c in described["usage"].items()) or "not told"),
        Line("kept in", str(run.directory)),
        Line("result", f"{document['passed']} passed, {document['failed']} failed"),
    ]
    status = EXIT_FAILED if document["failed"] else EXIT_OK
    return Report(document, tuple(lines), status)


def _gallery(outcomes: list[Outcome], directory: Path) -> Path:
    """Write the pages; the path of their index."""
    from fulfillment_cli.cli.app import COMMANDS

    return write_pages(
        outcomes, directory, {name: command.purpose for name, command in COMMANDS.items()}
    )


def _cells(outcome: Outcome) -> tuple[str, ...]:
    return (
        f"{outcome.stage or '-':12}",
        f"{outcome.seconds:6.2f} s",
        f"{outcome.requests:3} request{'s' if outcome.requests != 1 else ' '}",
        "passed" if outcome.passed else "FAILED",
    )


async def _matrix(
    options: OutputOptions, run: Run, model: SharedModel, flows: list[Flow], count: int | None
) -> Report:
    with LiveTable(options.invocation, ("boundary", "", "")) as live:
        live.start("enumerating the boundaries")
        cases, findings = await matrix.enumerate_cases(flows, run.directory, model, run.seed)
        live.end("enumerating the boundaries", f"{len(cases)} found")
        if count is not None:
            cases = matrix.sample(cases, count, run.seed)
        done = 0

        def ended(finding: matrix.Finding) -> None:
            nonlocal done
            done += 1
            if finding.violations:
                live.end(f"{finding.case}", *finding.violations)
            elif done % 50 == 0 or done == len(cases):
                live.end("killed and continued", f"{done} of {len(cases)}")

        findings += await matrix.run_cases(
            cases, run.directory, model, seed=run.seed, jobs=run.jobs, ended=ended
        )
    document = matrix.matrix_report(findings, run.seed) | {"model": model.describe()}
    _save(run, document)
    headings, rows = matrix.table(findings)
    lines = [Line("", row) for row in _aligned([headings, *rows])]
    for finding in findings:
        lines += [Line(f"{finding.case}", text, "bold red") for text in finding.violations]
    broken = document["violations"]
    lines.append(
        Line(
            "result", f"{len(findings)} boundaries, {broken} violations", "bold red" * bool(broken)
        )
    )
    return Report(document, tuple(lines), EXIT_FAILED if broken else EXIT_OK)


def _aligned(rows: list[list[str]]) -> list[str]:
    """A table as lines: the first row stands upright as a legend, so that rows stay narrow."""
    headings, *body = rows
    legend = [f"{letter}  {name}" for letter, name in zip(_LETTERS, headings[1:], strict=False)]
    table = [[headings[0], *_LETTERS[: len(headings) - 1]], *body]
    widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
    return [*legend, "", *lines]


_LETTERS = list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def _save(run: Run, document: dict[str, Any]) -> None:
    write_report(run.directory / "report.json", document)
    if run.report is not None:
        write_report(run.report, document)
