"""``fulfil recover --create N`` and ``--cleanup``: interrupted tasks to try a sweep on."""

from __future__ import annotations

import random
import secrets
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from fulfillment_cli.cli.recovery_options import RecoveryOptions
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.text import counted
from fulfillment_cli.experiments.interrupted import STAGES, interrupt
from fulfillment_cli.experiments.lab import random_order
from fulfillment_cli.report import Line, Report
from fulfillment_cli.settings import PACKAGED, load_settings

MARK = ".made-by-fulfil-recover-create"
"""Stands in every directory that was made for a trial; only those are ever removed."""


def make_or_remove(
    options: RecoveryOptions, root: Path, count: int | None, *, cleanup: bool
) -> Report:
    """Make ``count`` interrupted tasks below ``root``, or remove all that were made there."""
    if count is not None and cleanup:
        raise UsageError("--create and --cleanup exclude each other.")
    if count is not None:
        if options.service_url is not None:
            raise UsageError("--create makes tasks with ledgers of their own.")
        return options.invocation.run(_create(options, root.absolute(), count))
    removed = []
    for mark in sorted(root.absolute().glob(f"*/{MARK}")):
        shutil.rmtree(mark.parent)
        removed.append(str(mark.parent))
    return Report(
        {"removed": removed}, (Line("removed", counted(len(removed), "directory", "directories")),)
    )


async def _create(options: RecoveryOptions, root: Path, count: int) -> Report:
    settings = load_settings(options.config, options.env_file)
    settings.select(options.provider)
    repeated = [
        part
        for name, value in options.repeated().items()
        for part in (f"--{name.replace('_', '-')}", value)
    ]
    if settings.source != PACKAGED and options.config is None:
        repeated += ["--config", str(Path(settings.source).absolute())]
    if options.env_file is None and Path(".env").is_file():
        repeated += ["--env-file", str(Path(".env").absolute())]
    made, lines = [], []
    with TemporaryDirectory(prefix="fulfil-recover-") as work:
        for number in range(count):
            stage = STAGES[number % len(STAGES)]
            directory = root / f"try-{secrets.token_hex(4)}"
            directory.mkdir(mode=0o700, parents=True)
            (directory / MARK).touch(mode=0o600)
            order = random_order(random.Random())
            killed = await interrupt(directory, stage, Path(work), settings, repeated, *order)
            options.invocation.say(f"killed {killed.pid} at {stage}: {directory}")
            made.append({"directory": str(directory), "stage": stage, "pid": killed.pid})
            lines.append(Line(stage, str(directory)))
    return Report({"created": made}, tuple(lines))
