"""What the five papers claim, and what the results files say to it.

    ./x bench claims          # all of them, from bench/results; nothing is measured

Each case is a claim (`bench/claims/claims.json`). `figure`: `paper` is what it says, `anabranch` is
the row of a results file that is to be compared with it, a peer's row stands beside it. Where the
paper's figure was scaled (to two cores, to 1 GB) the claim says how. `reached`: 1 or 0. A claim
without a figure of its own in the paper has none of these, and one that no results file answers has
only the paper's: below the table each claim is told in a line, with its verdict.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.claims.claim import Claim, Judged, judged
from bench.harness import results
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared
from bench.harness.table import amount

FILE = Path(__file__).parents[1] / "claims" / "claims.json"
PAPERS = {
    "schneider": "Schneider et al. 2012",
    "streambox": "Miao et al. 2017",
    "prasaad": "Prasaad et al. 2018",
    "chronostream": "Wu, Tan 2015",
    "klink": "Farhat, Daudjee, Querzoni 2021",
}
OURS, PAPER, PEER = "anabranch", "paper", "peer"


def measure(stand: Stand) -> list[Row]:
    """Read, judge, tell."""
    known = known_rows(results.FOLDER)
    found = [judged(claim, known) for claim in claims()]
    stand.notes.extend(lines(found))
    return [row for each in found for row in rows_of(each)]


def claims() -> list[Claim]:
    """All of them."""
    return [Claim.of(each) for each in json.loads(FILE.read_text(encoding="utf-8"))]


def known_rows(folder: Path) -> Mapping[str, Sequence[Row]]:
    """The rows of each benchmark, of its newest results files first."""
    files = [file for file in sorted(folder.glob("*.json")) if not results.has_series(file)]
    reports = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    reports.sort(key=lambda each: str(each["header"]["date"]), reverse=True)
    found: dict[str, list[Row]] = {}
    for report in reports:
        found.setdefault(report["bench"], []).extend(Row(**row) for row in report["rows"])
    return found


def rows_of(each: Judged) -> list[Row]:
    """A claim as rows: the paper's figure, ours, a peer's, and whether it is reached."""
    claim, rows = each.claim, list[Row]()
    unit = "" if each.row is None else ("x" if _is_ratio(each) else each.row.unit)
    samples: dict[str, list[float]] = {}
    if each.ours is not None:
        samples[OURS] = [each.ours]
    if each.peer is not None:
        samples[PEER] = [each.peer]
    if claim.value is not None:
        samples[PAPER] = [claim.value]
    pairs = [(OURS, PAPER)] if {OURS, PAPER} <= samples.keys() else []
    rows += compared(Metric(claim.id, "figure", unit), samples, pairs)
    if each.verdict in ("reached", "missed"):
        metric = Metric(claim.id, "reached", "1 = yes")
        rows.append(bare(metric, OURS, [float(each.verdict == "reached")]))
    return rows


def lines(found: Sequence[Judged]) -> list[str]:
    """Every claim in a line, behind how many came out how."""
    counts = Counter(each.verdict for each in found)
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    return [f"{len(found)} claims: {told}.", *(line(each) for each in found)]


def line(each: Judged) -> str:
    """A claim for people."""
    claim = each.claim
    where = f"{PAPERS[claim.paper]}, {claim.where}"
    said = f"{each.verdict.upper()} {claim.id}: {claim.claim} There: {claim.figure} ({where})."
    if each.ours is None or claim.ours is None:
        return f"{said} Would be measured by: {claim.wanted or claim.comparable}"
    unit = (
        f"x {claim.ours.against}" if _is_ratio(each) else "" if each.row is None else each.row.unit
    )
    place = f"{claim.ours.bench}, {claim.ours.case}, {claim.ours.metric}, {claim.ours.system}"
    return f"{said} Here: {amount(each.ours)} {unit} ({place}). {claim.comparable}"


def _is_ratio(each: Judged) -> bool:
    return each.claim.ours is not None and each.claim.ours.take == "ratio"
