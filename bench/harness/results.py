"""Results files: `<bench>.json` for programs and `<bench>.txt` for readers, of the same run.

Where there are series, for pictures, they are in `<bench>.series.json`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness.report import Series
from bench.harness.table import text

if TYPE_CHECKING:
    from bench.harness.report import Report

FOLDER = Path(__file__).parents[1] / "results"
SERIES = "series.json"


def as_json_text(report: Report) -> str:
    """The report as JSON, one field a line, so that two results can be compared as text."""
    return json.dumps(report.as_json(), indent=2, allow_nan=False) + "\n"


def series_text(series: Sequence[Series]) -> str:
    """Series as JSON, one of them a line."""
    lines = (json.dumps(asdict(each), allow_nan=False) for each in series)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def has_series(file: Path) -> bool:
    """Whether a file has series, and no report."""
    return file.name.endswith(f".{SERIES}")


def series_from(file: Path) -> list[Series]:
    """The series of a file."""
    found = json.loads(file.read_text(encoding="utf-8"))
    return [Series(**{**each, "points": tuple(map(tuple, each["points"]))}) for each in found]


def save(report: Report, folder: Path = FOLDER, name: str | None = None) -> tuple[Path, ...]:
    """Write the files; a reader sees the old ones or the new ones, never a part.

    They have the benchmark's name, unless another is given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = name or report.bench
    contents = {"json": as_json_text(report), "txt": text(report)}
    if report.series:
        contents[SERIES] = series_text(report.series)
    return tuple(_write_whole(folder / f"{stem}.{kind}", it) for kind, it in contents.items())


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
