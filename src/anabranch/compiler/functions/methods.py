"""Methods and attributes of the builtin types, by name.

On a plain object whose type is not known, a name means the method of whichever plain type has it;
all that have it agree in what is said here. Names that are not here are not understood.
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


SCALAR_METHODS = words(
    "capitalize casefold center count decode encode endswith expandtabs find index isalnum"
    " isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace"
    " istitle isupper join ljust lower lstrip removeprefix removesuffix replace rfind rindex"
    " rjust rstrip startswith strip swapcase title translate upper zfill hex as_integer_ratio"
    " bit_count bit_length conjugate is_integer to_bytes limit_denominator adjusted quantize"
    " normalize is_nan is_finite is_infinite is_zero is_signed copy_abs copy_negate sqrt"
    " to_integral_value to_integral exp ln log10 compare date time timetz isoformat"
    " isoweekday weekday toordinal total_seconds utcoffset isocalendar strftime strptime dst"
    " group start end span digest hexdigest search match fullmatch geturl"
)
"""Pure, and of plain arguments they make an immutable object."""

PLAIN_METHODS = words(
    "partition rpartition split rsplit splitlines groups groupdict findall timetuple"
    " utctimetuple as_tuple _asdict indices"
)
"""Pure, and they make fresh plain objects."""

CLASS_METHODS = words(
    "fromisoformat fromisocalendar fromordinal combine utcfromtimestamp fromhex from_bytes"
    " maketrans from_float from_decimal"
)
"""Pure functions of builtin classes that make an immutable object."""

ATTRIBUTES = words(
    "year month day hour minute second microsecond fold tzinfo days seconds microseconds real"
    " imag numerator denominator min max resolution pattern flags lastindex lastgroup string"
    " scheme netloc path query fragment hostname port username password params int bytes"
    " version week is_private is_global is_loopback is_multicast utc"
)
"""Attributes that hold an immutable object."""

READERS = words(
    "get keys values items copy most_common elements total issubset issuperset isdisjoint"
    " union intersection difference symmetric_difference count index"
)  # fmt: skip
"""Methods of containers that change nothing."""

MUTATORS = words(
    "append extend insert remove pop clear sort reverse update setdefault popitem add discard"
    " difference_update intersection_update symmetric_difference_update appendleft extendleft"
    " popleft rotate move_to_end subtract"
)
"""Methods of containers that change them."""

LOCAL = frozenset({"timestamp", "astimezone", "fromtimestamp", "now", "today", "utcnow", "ctime"})
"""Methods of dates that ask the machine for its clock or its time zone."""

_SAFE_DIRECTIVES = frozenset("YmdHMSfjyzGVuUWwFTDe%:")
_LOCALE_FORMATS = ("n",)


def safe_time_format(text: str) -> bool:
    """Whether a format of strftime says the same everywhere.

    >>> safe_time_format("%Y-%m-%d"), safe_time_format("%A")
    (True, False)
    """
    parts = text.split("%")
    return all(part[:1] in _SAFE_DIRECTIVES for part in parts[1:] if part)


def safe_spec(text: str) -> bool:
    """Whether what stands behind the colon of a format says the same everywhere.

    >>> safe_spec(".2f"), safe_spec("n"), safe_spec("%A")
    (True, False, False)
    """
    if text.endswith(_LOCALE_FORMATS):
        return False
    return (text.endswith("%") and text.count("%") == 1) or safe_time_format(text)
