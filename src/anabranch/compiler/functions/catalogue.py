"""Functions and classes of the standard library that are known to be pure, and what they return.

An entry says: given plain arguments the result depends on them alone, nothing else is read,
nothing is kept, nothing changed. Left out on purpose: whatever reads the clock, randomness, the
environment, the time zone of the machine, the locale, files, the hash seed (`hash`) or addresses.

An object is in the table only if it is the library's own: C code, or code of a library file. So a
name that somebody has put another function under is not found.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

SCALARS = {
    "builtins": "abs ascii bin bool bytes chr complex float hex int len oct ord pow repr round str"
    " issubclass",
    "math": "*",
    "cmath": "*",
    "datetime": "date time datetime timedelta timezone",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "operator": "abs add and_ concat contains countOf eq floordiv ge gt index indexOf inv invert"
    " le lshift lt mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor",
    "string": "capwords",
    "textwrap": "dedent fill indent shorten",
    "html": "escape unescape",
    "unicodedata": "bidirectional category combining decimal digit east_asian_width mirrored name"
    " normalize numeric is_normalized lookup",
    "binascii": "a2b_base64 a2b_hex b2a_base64 b2a_hex crc32 hexlify unhexlify",
    "zlib": "adler32 compress crc32 decompress",
    "base64": "b16decode b16encode b32decode b32encode b64decode b64encode b85decode b85encode"
    " standard_b64decode standard_b64encode urlsafe_b64decode urlsafe_b64encode",
    "json": "dumps",
    "re": "escape fullmatch match search compile",
    "statistics": "fmean geometric_mean harmonic_mean mean median median_grouped pstdev pvariance"
    " stdev variance correlation covariance",
    "struct": "calcsize pack",
    "uuid": "UUID uuid3 uuid5",
    "urllib.parse": "quote quote_plus quote_from_bytes unquote unquote_plus unquote_to_bytes"
    " urldefrag urlencode urljoin urlparse urlsplit urlunparse urlunsplit",
    "bisect": "bisect bisect_left bisect_right",
    "fnmatch": "fnmatchcase translate",
    "ipaddress": "ip_address ip_interface ip_network IPv4Address IPv6Address IPv4Network"
    " IPv6Network",
    "calendar": "isleap leapdays monthrange weekday timegm",
    "colorsys": "hls_to_rgb hsv_to_rgb rgb_to_hls rgb_to_hsv rgb_to_yiq yiq_to_rgb",
    "keyword": "iskeyword issoftkeyword",
    "posixpath": "basename commonprefix dirname isabs join normpath split splitext",
}
"""Of plain arguments they make an immutable object."""

PLAINS = {
    "builtins": "divmod bytearray",
    "json": "loads",
    "re": "findall split",
    "struct": "unpack",
    "textwrap": "wrap",
    "statistics": "multimode quantiles linear_regression",
    "urllib.parse": "parse_qs parse_qsl",
    "hashlib": "blake2b blake2s md5 sha1 sha224 sha256 sha384 sha512 sha3_224 sha3_256"
    " sha3_384 sha3_512",
    "shlex": "split",
}
"""Of plain arguments they make fresh plain objects."""

SPECIAL = {
    "builtins": "all any dict enumerate filter format frozenset getattr isinstance iter list map"
    " max min next range reversed set slice sorted sum tuple type zip",
    "collections": "Counter OrderedDict defaultdict deque",
    "copy": "copy deepcopy",
    "dataclasses": "asdict astuple",
    "functools": "reduce",
    "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
    "bisect": "insort insort_left insort_right",
    "itertools": "accumulate batched chain combinations combinations_with_replacement compress"
    " count cycle dropwhile filterfalse groupby islice pairwise permutations product repeat starmap"
    " takewhile zip_longest",
    "operator": "getitem itemgetter",
    "re": "finditer sub subn",
    "statistics": "median_high median_low mode",
    "typing": "cast",
}
"""They pass on what they are given, or call it: `library.py` says how."""

ADVICE = {
    "print": "it writes to the console",
    "open": "it opens a file: read it through a source or a lookup table",
    "input": "it waits for the user",
    "hash": "it depends on the process: use zlib.crc32 or hashlib",
    "id": "it is an address: use a column of the record",
    "eval": "it runs text as code",
    "exec": "it runs text as code",
    "compile": "it runs text as code",
    "globals": "it reads and changes variables by name",
    "locals": "it reads variables by name",
    "vars": "it reads and changes attributes by name",
    "setattr": "it changes attributes by name",
    "delattr": "it changes attributes by name",
    "__import__": "it imports by name",
    "time": "it reads the clock: use the record's event time",
    "random": "it draws at random: take the randomness from a column, as hashlib.sha256 of an id",
    "secrets": "it draws at random: take the randomness from a column, as hashlib.sha256 of an id",
    "uuid": "it draws at random: use uuid.uuid5 of a column",
    "os": "it depends on the machine: read it outside and pass it in as a plain value",
    "sys": "it depends on the process: read it outside and pass it in as a plain value",
    "logging": "it writes a log",
    "locale": "it depends on the machine's settings",
    "functools": "what it keeps outlives the call",
}
"""What to say of well-known functions and modules that are not pure."""

_LIBRARY = tuple(
    str(Path(path).resolve())
    for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
)
_NAMES = tuple(dict.fromkeys((*SCALARS, *PLAINS, *SPECIAL)))
_tables: dict[str, dict[int, tuple[Any, str, str]]] = {}
_all: dict[int, tuple[Any, str, str]] = {}


def find(real: Any) -> tuple[str, str] | None:
    """The sort ("scalar", "plain", "special") and full name of a library function or class.

    >>> find(len)
    ('scalar', 'builtins.len')
    >>> find(print) is None
    True
    """
    for module in _NAMES:
        if module not in _tables and module in sys.modules:
            _tables[module] = _table(module)
            _all.update(_tables[module])
    found = _all.get(id(real))
    return found[1:] if found is not None and found[0] is real else None


def advice(real: Any, written: str) -> str:
    """Why a function that is not in the table cannot be taken as pure."""
    module = str(getattr(real, "__module__", None) or "").partition(".")[0]
    name = str(getattr(real, "__name__", ""))
    own = ADVICE.get(name) if module in {"builtins", "io", "_io"} else None
    public = module.removeprefix("_")
    first = written.partition(".")[0]
    return own or ADVICE.get(public) or ADVICE.get(first) or "nothing is known about it"


def _table(module: str) -> dict[int, tuple[Any, str, str]]:
    """The genuine objects of one module; the objects are held, so their ids stay theirs."""
    home = sys.modules[module]
    found: dict[int, tuple[Any, str, str]] = {}
    for sort, table in (("scalar", SCALARS), ("plain", PLAINS), ("special", SPECIAL)):
        for name in _names(home, table.get(module, "")):
            real = getattr(home, name, None)
            if real is not None and genuine(real) and _called(real, name):
                found[id(real)] = (real, sort, f"{module}.{name}")
    return found


def _names(home: ModuleType, listed: str) -> list[str]:
    if listed != "*":
        return listed.split()
    return [name for name in vars(home) if callable(getattr(home, name)) and name[0] != "_"]


def _called(real: Any, name: str) -> bool:
    """Whether it has that name from birth: `math.sqrt = print` is no square root."""
    own = str(getattr(real, "__name__", ""))
    return own == name or own.endswith(f"_{name}") or own.startswith(f"{name}_")


def genuine(real: Any) -> bool:
    """Whether it is the standard library's own, in C or from one of its files."""
    real = getattr(real, "__wrapped__", real) if not isinstance(real, FunctionType | type) else real
    if isinstance(real, BuiltinFunctionType):
        return True
    if isinstance(real, FunctionType):
        return from_library(real.__code__.co_filename)
    return isinstance(real, type) and _genuine_class(real)


def _genuine_class(kind: type) -> bool:
    heap = kind.__flags__ & (1 << 9)
    functions = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
    if not heap or not functions:
        home = sys.modules.get(kind.__module__)
        file = getattr(home, "__file__", None)
        return not heap or file is None or from_library(file)
    return all(from_library(each.__code__.co_filename) for each in functions)


def from_library(file: str) -> bool:
    """Whether a file belongs to the standard library; packages of others lie in it, too."""
    if file.startswith("<frozen "):
        return True
    inside = any(file.startswith(root) for root in _LIBRARY)
    return inside and "site-packages" not in file and "dist-packages" not in file
