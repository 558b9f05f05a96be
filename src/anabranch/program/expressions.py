"""Polars expressions as values, and the proof that they look at one row at a time (M8).

Polars' own `meta.is_row_separable` judges the root node alone and panics on some expressions, so
the serialised expression is walked node by node against an allow-list. The rule is sound because it
is closed: a node or function that is not listed here is refused, whatever it may do.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import polars as pl
from polars.exceptions import ColumnNotFoundError, PolarsError

from anabranch.errors import ProgramError, nearest
from anabranch.program.schema import as_schema, describe, empty_frame

Node: TypeAlias = Any

_NODES = frozenset(
    [
        "Column",
        "Alias",
        "BinaryExpr",
        "Cast",
        "Ternary",
        "Selector",
        "KeepName",
        "RenameAlias",
        "Field",
        "StructEval",
    ]
)

_FUNCTIONS = {
    "": """Abs AsList AsStruct Atan2 Ceil Clip Coalesce Cut Erf Erfc Exp FillNull Floor Hash Log
        Log1p MaxHorizontal MeanHorizontal MinHorizontal Negate RepeatBy Replace ReplaceStrict Round
        RoundSF Sign SumHorizontal ToPhysical Truncate Reinterpret""",
    "Boolean": """AllHorizontal AnyHorizontal IsBetween IsClose IsFinite IsIn IsInfinite IsNan
        IsNotNan IsNotNull IsNull Not""",
    "Trigonometry": """ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh Cos Cosh Cot Degrees Radians Sin
        Sinh Tan Tanh""",
    "Bitwise": "CountOnes CountZeros LeadingOnes LeadingZeros TrailingOnes TrailingZeros",
    "Pow": "Cbrt Generic Sqrt",
    "StringExpr": """Base64Decode Base64Encode ConcatHorizontal Contains ContainsAny CountMatches
        EndsWith EscapeRegex Extract ExtractAll ExtractGroups ExtractMany Find FindMany Format Head
        HexDecode HexEncode JsonDecode JsonPathMatch LenBytes LenChars Lowercase Normalize PadEnd
        PadStart Replace ReplaceMany Reverse Slice Split SplitExact SplitN StartsWith StripChars
        StripCharsEnd StripCharsStart StripPrefix StripSuffix Strptime Tail Titlecase ToDecimal
        ToInteger Uppercase ZFill""",
    "Business": "AddBusinessDay BusinessDayCount IsBusinessDay",
    "TemporalExpr": """BaseUtcOffset CastTimeUnit Century Combine ConvertTimeZone DSTOffset Date
        DatetimeFunction Day DaysInMonth Duration Hour IsLeapYear IsoYear Microsecond Millennium
        Millisecond Minute Month MonthEnd MonthStart Nanosecond OffsetBy OrdinalDay Quarter Replace
        ReplaceTimeZone Round Second Time TimeStamp ToString TotalDays TotalHours TotalMicroseconds
        TotalMilliseconds TotalMinutes TotalNanoseconds TotalSeconds Truncate Week WeekDay
        WithTimeUnit Year""",
    "ListExpr": """ArgMax ArgMin Concat Contains CountMatches Diff DropNulls Gather GatherEvery Get
        Join Length Max Mean Median Min SetOperation Shift Slice Sort Std Sum ToArray ToStruct
        Unique NUnique Reverse Var""",
    "ArrayExpr": """ArgMax ArgMin Concat Contains CountMatches Dot Get Join Length Max Mean Median
        Min Shift Slice Sort Std Sum ToList ToStruct Unique NUnique Reverse Var""",
    "StructExpr": """Drop FieldByName JsonEncode MapFieldNames PrefixFields RenameFields
        SelectFields SuffixFields WithFields""",
    "BinaryExpr": """Base64Decode Base64Encode Contains EndsWith FromBuffer Get Head HexDecode
        HexEncode Size Slice StartsWith Tail""",
    "Categorical": "EndsWith LenBytes LenChars Physical Slice StartsWith To GetCategories",
    "Range": "DateRanges DatetimeRanges IntRanges TimeRanges",
}
ROW_WISE = {family: frozenset(names.split()) for family, names in _FUNCTIONS.items()}
"""Functions whose result for a row depends on that row alone, by Polars' serialised names."""

# The lists these functions compare with must be the same for every row.
_LITERAL_LISTS = {("", "Replace"), ("", "ReplaceStrict")}
_EVALS = ("List", "ListAgg", "ArrayAgg")
_RANDOM = ("Random", "Sample", "AnonymousFunction", "RustUDF")


@dataclass(frozen=True, slots=True)
class Expression:
    """A Polars expression that can be compared and hashed; Polars' own `==` builds another one."""

    form: str | None = field(repr=False)
    """The serialised expression; None where a Python function inside has none."""
    text: str
    expr: pl.Expr = field(compare=False, repr=False)

    @classmethod
    def of(cls, given: pl.Expr | str) -> Expression:
        """Wrap an expression; a string names a column.

        >>> Expression.of("a") == Expression.of(pl.col("a")) != Expression.of("b")
        True
        """
        expr = pl.col(given) if isinstance(given, str) else given
        if not isinstance(expr, pl.Expr):
            message = f"expected a Polars expression or a column name, got {given!r}"
            raise ProgramError(message, so='use pl.col("name") or pl.lit(value)')
        return cls(_serialised(expr), str(expr), expr)


def require_row_wise(expression: Expression, schema: pl.Schema, what: str) -> None:
    """Refuse an expression that looks beyond one row, saying which part does and what to use."""
    for wrong, so in _offences(_node(expression), schema):
        message = f"{what}: {wrong}"
        raise ProgramError(message, why=f"in {expression.text}", so=so)


def projected(
    schema: pl.Schema, expressions: Sequence[Expression], what: str, *, keep: bool = False
) -> pl.Schema:
    """The schema these expressions give, with the given columns kept or not.

    `collect_schema` misses type errors that running on the empty frame finds; so it is run.
    """
    frame = empty_frame(schema)
    exprs = [each.expr for each in expressions]
    try:
        lazy = frame.lazy().with_columns(exprs) if keep else frame.lazy().select(exprs)
        lazy.collect_schema()
        result = frame.with_columns(exprs) if keep else frame.select(exprs)
    except PolarsError as error:
        raise _refused(error, schema, what) from None
    return as_schema(result.schema, what)


def scalar(schema: pl.Schema, expression: Expression, what: str) -> pl.DataType:
    """The type of an aggregation over any number of rows, refused if it is not one value."""
    try:
        heights = {frame.select(expression.expr).height for frame in _samples(schema)}
        result = empty_frame(schema).select(expression.expr)
    except PolarsError as error:
        raise _refused(error, schema, what) from None
    if heights != {1} or result.width != 1:
        message = f"{what}: not one value a window: {expression.text}"
        so = "end it with an aggregation such as .sum() or .max()"
        raise ProgramError(message, so=so)
    return result.dtypes[0]


def _samples(schema: pl.Schema) -> Iterator[pl.DataFrame]:
    yield empty_frame(schema)
    yield pl.DataFrame({name: [None, None] for name in schema}, schema=schema)


def _refused(error: PolarsError, schema: pl.Schema, what: str) -> ProgramError:
    first = str(error).splitlines()[0]
    if isinstance(error, ColumnNotFoundError):
        name = first.split('"')[1] if '"' in first else first
        message = f"{what}: no column {name!r}"
        return ProgramError(message, have=describe(schema), so=nearest(name, schema))
    return ProgramError(f"{what}: {first}", have=describe(schema))


def _serialised(expr: pl.Expr) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the JSON form is marked unstable; Polars is pinned
            return expr.meta.serialize(format="json")
    except (PolarsError, TypeError, ValueError):
        return None


def _node(expression: Expression) -> Node:
    return {"AnonymousFunction": None} if expression.form is None else json.loads(expression.form)


def _offences(node: Node, schema: pl.Schema) -> Iterator[tuple[str, str]]:
    kind, body = _split(node)
    if kind == "Literal":
        if isinstance(body, dict) and "Series" in body:
            yield "a literal of many values stands beside each row", "use pl.lit(value)"
    elif kind == "Function":
        yield from _function_offences(body, schema)
    elif kind == "Eval":
        yield from _eval_offences(body, schema)
    elif kind in _NODES:
        for child in _children(kind, body):
            yield from _offences(child, schema)
    else:
        yield _advice(kind, body)


def _function_offences(body: Node, schema: pl.Schema) -> Iterator[tuple[str, str]]:
    family, name = _function_name(body["function"])
    if name not in ROW_WISE.get(family, ()):
        yield _advice(name, body)
    if (family, name) == ("StringExpr", "Strptime") and _format_missing(body["function"]):
        yield "the format of the time is guessed from all rows", "pass the format, e.g. '%Y-%m-%d'"
    lists = body["input"][1:]
    if (family, name) == ("Boolean", "IsIn") and not _is_list(lists[0], schema):
        yield "is_in looks at a whole column", "use a literal list, or .lookup(table, on=...)"
    if (family, name) in _LITERAL_LISTS and any(_split(each)[0] != "Literal" for each in lists):
        yield f"{name.lower()} looks at whole columns", "use literal lists, or .lookup(...)"
    # Holidays are a list beside every row alike, not a column.
    for child in body["input"][:1] if family == "Business" else body["input"]:
        yield from _offences(child, schema)


def _eval_offences(body: Node, schema: pl.Schema) -> Iterator[tuple[str, str]]:
    """Inside a list everything belongs to one row, except what is random or Python's."""
    variant = _split(body["variant"])[0]
    if variant not in (*_EVALS, "Array"):
        yield _advice("cumulative_eval", body)
    if random := sorted(word for word in _RANDOM if f'"{word}"' in json.dumps(body["evaluation"])):
        yield _advice(random[0], body)
    yield from _offences(body["expr"], schema)


def _is_list(node: Node, schema: pl.Schema) -> bool:
    if _split(node)[0] == "Literal":
        return True
    expr = pl.Expr.deserialize(io.BytesIO(json.dumps(node).encode()), format="json")
    try:
        return isinstance(empty_frame(schema).select(expr).dtypes[0], (pl.List, pl.Array))
    except PolarsError:
        return True  # whatever is wrong with it, `projected` says it better


def _format_missing(function: Node) -> bool:
    return '"format": null' in json.dumps(function)


def _function_name(function: Node) -> tuple[str, str]:
    outer, inner = _split(function)
    if outer in ROW_WISE and inner is not None:
        return outer, _split(inner)[0]
    return "", outer


def _split(node: Node) -> tuple[str, Node]:
    if isinstance(node, dict) and len(node) == 1:
        return next(iter(node.items()))
    return (node, None) if isinstance(node, str) else ("?", node)


def _children(kind: str, body: Node) -> Iterator[Node]:
    if kind in ("Column", "Selector", "Field"):
        return
    if kind == "Alias":
        yield body[0]
    elif kind == "KeepName":
        yield body
    elif kind == "StructEval":
        yield from (body["expr"], *body["evaluation"])
    else:
        names = ("left", "right", "expr", "predicate", "truthy", "falsy")
        yield from (body[name] for name in names if name in body)


def _advice(name: str, body: Node) -> tuple[str, str]:
    if name in ("AnonymousFunction", "RustUDF"):
        return (
            "a Python function inside a Polars expression",
            "use .map(fn, out=...) or .filter(fn)",
        )
    if name in ("Agg", "Len"):
        inner = f"{_split(body)[0].lower()}()" if body is not None else "len()"
        return f"{inner} looks at other rows", "use .window(...).agg(...) for aggregates"
    if name == "Over":
        return "over() looks at other rows", "use .window(..., by=...) or .key_by(...).process(fn)"
    so = "use .window(...) for groups of rows or .key_by(...).process(fn) for earlier ones"
    known_as = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return f"{known_as} is not known to look at one row alone", so
