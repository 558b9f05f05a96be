"""`anabranch state DIR`: what a checkpoint holds."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anabranch.cli.checkpoints import Seen, Source, seen
from anabranch.observe.shown import moment

EXAMPLES = (("state ckpt", "sources, operators, slices, sizes, some keys"),)


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument("directory", type=Path, metavar="DIR", help="a checkpoint")
    command.set_defaults(call=state)


def state(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Tell what a checkpoint holds; it may be in use."""
    found = seen(options.directory)
    if not options.json:
        print(told(found))
    return 0, asdict(found)


def told(found: Seen) -> str:
    """A checkpoint in words."""
    lines = [
        f"{found.program}: {_some(found.epochs, 'epoch')} committed, {found.planned} planned",
        f"  begun     {moment(found.created)}, run {found.run}, id {found.id}",
    ]
    if found.committed_at is not None:
        lines.append(f"  committed {moment(found.committed_at)}")
    lines += [f"  source    {_source(each)}" for each in found.sources]
    if found.operators:
        lines.append(f"  state     {_some(found.slices, 'slice')} in {_some(found.lanes, 'lane')}")
    lines += [
        f"            {each.name}: {each.bytes:,} bytes in {_some(each.files, 'file')}"
        for each in found.operators
    ]
    if found.unpublished:
        lines.append(f"  waiting   {_some(found.unpublished, 'epoch')} to be published")
    return "\n".join(lines)


def _source(each: Source) -> str:
    rows, partitions = _some(each.rows, "row"), _some(each.partitions, "partition")
    return f"{each.name}: {rows} of {partitions}, watermark {moment(each.watermark)}"


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
