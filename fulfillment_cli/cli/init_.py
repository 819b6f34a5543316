"""``fulfil init``: a configuration to start from, in the working directory."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fulfillment_cli.cli.options import OutputOptions
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.report import GOOD, Line, Report

_PACKAGED = {"ditto.yaml": "ditto.yaml", ".env.example": "env.example"}


def init(options: OutputOptions) -> Report:
    """Write ditto.yaml and .env.example here; what is there already is left as it is."""
    written: list[str] = []
    kept: list[str] = []
    for name, packaged in _PACKAGED.items():
        text = files("fulfillment_cli").joinpath(packaged).read_text(encoding="utf-8")
        (written if _write_new(Path(name), text) else kept).append(name)
    lines = [Line("written", name, GOOD) for name in written]
    lines += [Line("kept", f"{name} is there already; it was left as it is") for name in kept]
    if written:
        lines.append(Line("next", "fulfil doctor", "bold"))
    return Report({"written": written, "kept": kept}, tuple(lines))


def _write_new(path: Path, text: str) -> bool:
    """Write a file that is not there; whether it was not.

    Raises:
        UsageError: ``DIRECTORY_NOT_WRITABLE``.
    """
    try:
        # "x" also refuses a link that leads nowhere: nothing is ever written through one.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    except OSError as error:
        raise UsageError(
            f"{path.absolute()} cannot be written ({error.strerror}).",
            code="DIRECTORY_NOT_WRITABLE",
        ) from None
    return True
