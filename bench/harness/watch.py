"""A progress bar on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console


class Bar:
    """Shows which case and system is measured; gone when the measuring is over."""

    def __init__(self, console: Console) -> None:
        """Draw on a console; nothing is drawn before it is entered."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._task: TaskID | None = None
        self._case = ""

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Clear what was drawn."""
        self._progress.stop()

    def begin(self, case: str, steps: int) -> None:
        """Replace the bar of the case before."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._case = case
        self._task = self._progress.add_task(case, total=steps)

    def step(self, system: str) -> None:
        """Move on by one run."""
        if self._task is not None:
            self._progress.update(self._task, advance=1, description=f"{self._case}: {system}")
