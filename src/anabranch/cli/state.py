"""`anabranch state DIR`: what a checkpoint holds; whether it is whole; and all of it as Parquet."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anabranch.cli.checkpoints import Seen, Source, look, place, seen
from anabranch.cli.export import Exported, export
from anabranch.cli.failure import told as failure
from anabranch.cli.kept import Kept, read_kept
from anabranch.cli.kept_values import as_text
from anabranch.cli.lasting import Lasting
from anabranch.cli.live import size
from anabranch.cli.verify import Checked, verify
from anabranch.observe.shown import moment
from anabranch.state.delta import SLICE
from anabranch.state.description import Facts
from anabranch.state.layout import STATE, delta_of
from anabranch.state.recovery import Recovered, read_description, recover
from anabranch.state.retention import Link
from anabranch.state.store import Store

EXAMPLES = (
    ("state ckpt", "sources, operators, slices, sizes, some keys; also while the query runs"),
    ("state ckpt --keys 20", "more keys of each operator"),
    ("state ckpt --verify", "read all that the last commit needs; 1 if something is wrong"),
    ("state ckpt --export state.parquet", "one file: operator, slice, key and value as JSON"),
    ("state ckpt --export state --force", "a directory with a file for each operator"),
)

_SAMPLED = 64 << 20
"""Bytes of an operator's files that are read for its keys, the newest first."""
_WIDE = 100
"""Letters of a key that are shown."""


@dataclass(frozen=True, slots=True)
class Inside:
    """What is inside an operator's state."""

    name: str
    kind: str
    key: tuple[str, ...]
    lanes: int
    files: int
    bytes: int
    epochs: tuple[int, int]
    """The first and last epoch that its files end with: its oldest and its newest version."""
    snapshots: int
    slices: int
    """Those that have rows."""
    rows: int
    whole: bool
    """Whether slices, rows and keys are of all files, or of the newest alone."""
    keys: tuple[dict[str, Any], ...]


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument("directory", type=place, metavar="DIR", help="a checkpoint, in use or not")
    command.add_argument(
        "--keys", type=_count, default=5, metavar="N", help="keys of each operator to show (5)"
    )
    command.add_argument(
        "--verify",
        action="store_true",
        help="read every file that the last commit needs, and check checksums, chains and slices",
    )
    command.add_argument(
        "--export",
        type=Path,
        metavar="FILE",
        help="write the state as Parquet: to a file that ends in .parquet, else to a directory",
    )
    command.add_argument("--force", action="store_true", help="replace what is there already")
    command.set_defaults(call=state)


def state(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Tell what a checkpoint holds; it may be in use, and is left as it is."""
    if options.verify:
        return _verified(options)
    if options.export is not None:
        return _exported(options)
    found = seen(options.directory)
    inside = look(options.directory, lambda store: tuple(_inside(store, options.keys)))
    if not options.json:
        print(told(found, inside))
    return 0, {**asdict(found), "operators": [asdict(each) for each in inside]}


def _verified(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    checked = verify(look(options.directory, lambda store: store))
    if not options.json:
        print("\n".join(_checked(checked)))
    if not checked.problems:
        return 0, asdict(checked)
    message = f"{_some(len(checked.problems), 'problem')}: {checked.problems[0]}"
    return 1, {**asdict(checked), "error": failure("CheckpointError", message)}


def _checked(checked: Checked) -> Iterator[str]:
    if not checked.problems:
        yield f"whole: {_some(checked.files, 'file')} read, {size(checked.bytes)}"
        return
    yield f"{_some(len(checked.problems), 'problem')} in {_some(checked.files, 'file')}:"
    yield from (f"  {each}" for each in checked.problems)
    yield "so restore these files from a copy of the checkpoint, or start from a savepoint"


def _exported(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    done: Exported = look(
        options.directory,
        lambda store: export(_states(store), options.export, force=options.force),
    )
    if not options.json:
        for name, rows in done.rows.items():
            print(f"{name}: {_some(rows, 'row')}")
        print(f"written to {options.export}")
    return 0, asdict(done)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A checkpoint whose state is to be read."""

    store: Store
    found: Recovered
    operators: Mapping[str, Facts]

    @classmethod
    def of(cls, store: Store) -> _Opened:
        found = recover(store)
        run = found.described_by
        description = None if run is None else read_description(store, run)
        return cls(store, found, {} if description is None else description.operators)

    @property
    def names(self) -> list[str]:
        """The operators with state; some run in lanes and keep nothing."""
        return sorted(n for n in self.found.chains if n in self.operators or not self.operators)

    def read(self, name: str, links: Sequence[Link]) -> Kept:
        facts = self.operators.get(name, {})
        lasting = Lasting.of(facts, self.found.commit)
        return read_kept(self.store, links, facts, lasting)


def _states(store: Store) -> Iterator[Kept]:
    """The state of each operator, read when it is asked for."""
    opened = _Opened.of(store)
    for name in opened.names:
        yield opened.read(name, opened.found.chains[name])


def _inside(store: Store, keys: int) -> Iterator[Inside]:
    opened, known = _Opened.of(store), store.sizes(STATE)
    for name in opened.names:
        links = opened.found.chains[name]
        sizes = [known.get(link.path, 0) for link in links]
        some = _newest(links, sizes)
        kept = opened.read(name, some)
        facts = opened.operators.get(name, {})
        names = [each for link in links if (each := delta_of(link.path)) is not None]
        yield Inside(
            name,
            " ".join(facts.get("kind", ())) or "unknown",
            facts.get("key", ()),
            len({link.lane for link in links}),
            len(links),
            sum(sizes),
            (min(each.epoch for each in names), max(each.epoch for each in names)),
            sum(each.snapshot for each in names),
            kept.rows[SLICE].n_unique(),
            kept.rows.height,
            len(some) == len(links),
            tuple(_sampled(kept, keys)),
        )


def _newest(links: Sequence[Link], sizes: Sequence[int]) -> Sequence[Link]:
    """As many of the last files as may be read, one at least."""
    begin, left = len(links) - 1, _SAMPLED - sizes[-1]
    while begin and left >= sizes[begin - 1]:
        begin -= 1
        left -= sizes[begin]
    return links[begin:]


def _sampled(kept: Kept, count: int) -> Iterator[dict[str, Any]]:
    """Some keys, the same at each look at the same state."""
    if not kept.keys:
        return
    rows = kept.rows.select(SLICE, *kept.keys).unique(maintain_order=True)
    step = max(1, rows.height // count) if count else 1
    for row in rows.gather_every(step).head(count).to_dicts():
        yield {"slice": row.pop(SLICE), "key": row}


def told(found: Seen, inside: Sequence[Inside] = ()) -> str:
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
    for each in inside:
        lines += _operator(each)
    if found.unpublished:
        lines.append(f"  waiting   {_some(found.unpublished, 'epoch')} to be published")
    return "\n".join(lines)


def _operator(each: Inside) -> Iterator[str]:
    by = f" by {', '.join(each.key)}" if each.key else ""
    of = "" if each.whole else " in its newest files"
    first, last = each.epochs
    versions = f"epoch {last}" if first == last else f"epochs {first} to {last}"
    yield f"  operator  {each.name}: {each.kind}{by}"
    yield (
        f"            {size(each.bytes)} in {_some(each.files, 'file')} of "
        f"{_some(each.lanes, 'lane')}, {versions}, {_some(each.snapshots, 'snapshot')}"
    )
    yield f"            {_some(each.rows, 'row')} in {_some(each.slices, 'slice')}{of}"
    for sample in each.keys:
        text = as_text(sample["key"])
        short = text if len(text) <= _WIDE else f"{text[:_WIDE]}..."
        yield f"            slice {sample['slice']:>5}  {short}"


def _source(each: Source) -> str:
    rows, partitions = _some(each.rows, "row"), _some(each.partitions, "partition")
    return f"{each.name}: {rows} of {partitions}, watermark {moment(each.watermark)}"


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _count(given: str) -> int:
    if not given.isdecimal() or int(given) > 1000:
        message = f"a whole number from 0 to 1000, got {given!r}"
        raise argparse.ArgumentTypeError(message)
    return int(given)
