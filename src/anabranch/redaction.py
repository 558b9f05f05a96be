"""What may be a secret is not told: not in an error, a plan, a log or a page.

By its form, since nobody says which text is secret: who is named before the host of a URL, and the
value of an option whose name sounds like that of a secret, as Spark knows them by
`spark.redaction.regex`.
"""

from __future__ import annotations

import re

HIDDEN = "***"

_NAME = (
    r"(?:secret|passw(?:or)?d|token|credential|(?:access|api|account|private)[._-]?key)[\w.-]{,99}"
)
# All repetitions are bounded: a message may hold a record of any size, and is looked through once.
# A password with a slash in it is wrong in a URL, and common; a path with an @ behind a port is
# hidden with it. One slash: a URL that was taken for a path has lost the other.
_IN_URL = re.compile(
    r"""\b([a-z][a-z0-9+.-]{,30}:/{1,3})"""
    r"""(?:[^\s'"<>@/:]{,4000}:[^\s'"<>@]{,4000}|[^\s'"<>@/]{,4000})@""",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    rf"""({_NAME}["']?\s{{,9}}[:=]\s{{,9}}[bfr]?)(["'])(?:\\.|(?!\2).){{,9999}}\2""", re.IGNORECASE
)
# Not any name=value: in a line of Python it may be a column, and its value an expression.
_IN_QUERY = re.compile(rf"""([?&;][\w.-]{{,99}}{_NAME}=)[^\s&;'"<>]+""", re.IGNORECASE)


def scrubbed(text: str) -> str:
    """Text in which nothing of such a form is left.

    >>> scrubbed("no such host: https://me:hunter2@example.org/a")
    'no such host: https://***@example.org/a'
    >>> scrubbed("Orders(url, password='hunter2', user='me')")
    "Orders(url, password='***', user='me')"
    >>> scrubbed('{"spark.hadoop.fs.s3a.secret.key": "hunter2"}')
    '{"spark.hadoop.fs.s3a.secret.key": "***"}'
    >>> scrubbed("jdbc:postgresql://db/x?user=me&password=hunter2")
    'jdbc:postgresql://db/x?user=me&password=***'
    >>> scrubbed('.agg(tokens=ab.count(), user=pl.col("token").max())')
    '.agg(tokens=ab.count(), user=pl.col("token").max())'
    """
    text = _IN_URL.sub(rf"\1{HIDDEN}@", text)
    text = _QUOTED.sub(rf"\1\2{HIDDEN}\2", text)
    return _IN_QUERY.sub(rf"\1{HIDDEN}", text)
