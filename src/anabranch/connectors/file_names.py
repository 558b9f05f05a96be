"""Names of files that come back from a checkpoint or in a split: anybody may have written them."""

from __future__ import annotations

from anabranch.errors import CheckpointError


def remembered(memory: object, *, sized: bool) -> tuple[list[str], dict[str, int]]:
    """The names in a source's memory, and the sizes of those files."""
    names, sizes = list[str](), dict[str, int]()
    for each in memory if isinstance(memory, list) else [None]:
        match each:
            case str(name) if not sized and is_plain(name):
                names.append(name)
            case [str(name), int(size)] if sized and is_plain(name) and size >= 0:
                names.append(name)
                sizes[name] = size
            case _:
                message = "the memory of a Files source cannot be read"
                why = "it is no list of relative file names" + (" and sizes" if sized else "")
                raise CheckpointError(message, why=why)
    return names, sizes


def checked(name: object) -> str:
    """A name, if it stays inside the directory."""
    if isinstance(name, str) and is_plain(name):
        return name
    message = f"a split of a Files source names no file in its directory: {name!r}"
    raise CheckpointError(message)


def is_plain(name: object) -> bool:
    """Whether a name stays inside the directory: it may come from a checkpoint anybody wrote."""
    if not isinstance(name, str) or "\0" in name:
        return False
    return bool(name) and all(part not in ("", ".", "..") for part in name.split("/"))
