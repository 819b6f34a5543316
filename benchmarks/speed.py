"""How fast the command line is, as ratios to the imports it cannot do without.

``python benchmarks/speed.py [RUNS]``: runs each command and its yardstick in turn, RUNS times
(9 by default), and prints the medians and the median of the pairwise ratios. Against the scripted
model of the tests, so that only this program is timed. Not a test: it judges nothing.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests"


def seconds(command: list[str], directory: Path) -> float:
    """Wall time of one whole process."""
    started = time.perf_counter()
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return time.perf_counter() - started


def compare(
    name: str,
    command: Callable[[], list[str]],
    imports: str,
    target: float,
    directory: Path,
    runs: int,
) -> None:
    """Time both in turn and print one line."""
    yardstick = [sys.executable, "-c", f"import {imports}"]
    pairs = []
    for run in range(runs + 1):
        ours = seconds(command(), directory)
        theirs = seconds(yardstick, directory)
        if run:  # the first pair warms the caches
            pairs.append((ours, theirs))
    ours_median = statistics.median(ours for ours, _ in pairs)
    theirs_median = statistics.median(theirs for _, theirs in pairs)
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    print(
        f"{name:34} {ours_median:6.3f} s   import {imports}: {theirs_median:6.3f} s   "
        f"ratio {ratio:4.2f} (aim: {target})",
        flush=True,
    )


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    fulfil = [sys.executable, "-m", "fulfillment_cli"]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        endpoint = subprocess.Popen(
            [sys.executable, str(TESTS / "scripted_model.py")],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert endpoint.stdout is not None
            model = json.loads(endpoint.stdout.readline())
            provider = {
                "kind": "openai-compatible",
                "base_url": model["base_url"],
                "model": "scripted",
            }
            (work / "ditto.yaml").write_text(
                json.dumps(
                    {
                        "provider": "scripted",
                        "providers": {"scripted": provider},
                        "sandbox": {"network": [model["origin"]]},
                    }
                )
            )
            compare("fulfil --help", lambda: [*fulfil, "--help"], "typer", 2.5, work, runs)
            compare(
                "fulfil checkpoint (new)",
                lambda: [*fulfil, "checkpoint"],
                "typer, httpx, pydantic, openai",
                2.0,
                work,
                runs,
            )
            prepared = _prepared(fulfil, work, runs + 1)
            compare(
                "fulfil checkpoint (from prepared)",
                lambda: [*fulfil, "checkpoint", "--directory", prepared.pop()],
                "typer, httpx, pydantic",
                2.5,
                work,
                runs,
            )
        finally:
            endpoint.kill()
            endpoint.wait()


def _prepared(fulfil: list[str], work: Path, count: int) -> list[str]:
    """Directories of prepared tasks, one for each run: a task is continued only once."""
    shutil.rmtree(work / ".fulfil-tasks", ignore_errors=True)
    command = [*fulfil, "checkpoint", "--stop-after", "prepared"]
    for _ in range(count):
        subprocess.run(command, cwd=work, check=True, capture_output=True)
    return [str(path) for path in (work / ".fulfil-tasks").iterdir()]


if __name__ == "__main__":
    main()
