"""What must not be shown: values of settings that are called as secrets are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SHOWN = "*****"

_TELLING = r"(?:secret|passw|token|credential|access[._-]?key|private[._-]?key)"
"""Spark's own `spark.redaction.regex`, and a little more."""
_SECRET = re.compile(_TELLING, re.IGNORECASE)
_SETTING = re.compile(rf"([\w.\-]*{_TELLING}[\w.\-]*\s*[=:]\s*)[^\s,'\"]+", re.IGNORECASE)
_SHORTEST = 4
"""Shorter values may be part of any word, and protect nothing."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Values that are hidden wherever they are met.

    >>> Secrets.of({"spark.ssl.keyPassword": "hunter2"}).hidden("cannot open it with hunter2")
    'cannot open it with *****'
    """

    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, str] | Iterable[tuple[str, str]]) -> Secrets:
        """The values of those settings whose names tell that they are secret."""
        secret = {value for name, value in dict(settings).items() if _SECRET.search(name)}
        # The longest first: one may be the beginning of another.
        long = (value for value in secret if len(value) >= _SHORTEST)
        return cls(tuple(sorted(long, key=len, reverse=True)))

    def hidden(self, text: str) -> str:
        """The same text without these values."""
        for value in self.values:
            text = text.replace(value, SHOWN)
        return text


def without_settings(text: str) -> str:
    """A text of what a user wrote on the command line, without values beside telling names.

    >>> without_settings("unrecognized arguments: --config spark.x.password=a")
    'unrecognized arguments: --config spark.x.password=*****'
    """
    return _SETTING.sub(rf"\1{SHOWN}", text)
