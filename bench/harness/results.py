"""Results files: `<bench>.json` for programs and `<bench>.txt` for readers, of the same run."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness.table import text

if TYPE_CHECKING:
    from bench.harness.report import Report

FOLDER = Path(__file__).parents[1] / "results"


def as_json_text(report: Report) -> str:
    """The report as JSON, one field a line, so that two results can be compared as text."""
    return json.dumps(report.as_json(), indent=2, allow_nan=False) + "\n"


def save(report: Report, folder: Path = FOLDER, name: str | None = None) -> tuple[Path, Path]:
    """Write both files; a reader sees the old ones or the new ones, never a part.

    They have the benchmark's name, unless another is given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = name or report.bench
    return (
        _write_whole(folder / f"{stem}.json", as_json_text(report)),
        _write_whole(folder / f"{stem}.txt", text(report)),
    )


def _write_whole(file: Path, content: str) -> Path:
    """Write beside the file and rename: within one folder a rename is atomic."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".tmp")
    draft = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
        draft.chmod(0o644)  # mkstemp's are private, results are not
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return file
