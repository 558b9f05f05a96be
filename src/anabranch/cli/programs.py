"""Find programs in a user's file: it is imported, never run as `__main__`."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from anabranch.api.program import Program
from anabranch.errors import AnabranchError, ProgramError, Site, nearest

_MAKE_ONE = "make one where the file is imported, not in a function: program = ab.Program('name')"


def load(target: str) -> Program:
    """The program that `FILE` or `FILE:name` names; without a name the file's only one."""
    file, _, name = target.rpartition(":") if ".py:" in target else (target, "", "")
    module = _imported(Path(file).resolve())
    found = {key: value for key, value in vars(module).items() if isinstance(value, Program)}
    if name:
        if name not in found:
            message = f"{file} has no program called {name!r}"
            have = ", ".join(found) or "no programs"
            raise AnabranchError(message, have=have, so=nearest(name, found))
        return found[name]
    if len({id(each) for each in found.values()}) != 1:
        message = f"{file} has {len(found)} programs, and one is needed"
        so = f"name one, e.g. {file}:{next(iter(found))}" if found else _MAKE_ONE
        raise AnabranchError(message, have=", ".join(found) or None, so=so)
    return next(iter(found.values()))


def _imported(path: Path) -> ModuleType:
    if path.is_dir():
        message = f"{path} is a directory"
        raise AnabranchError(message, so="pass the path of a Python file with a program in it")
    if not path.is_file():
        message = f"no such file: {path}"
        raise AnabranchError(message, so="pass the path of a Python file with a program in it")
    spec = importlib.util.spec_from_file_location(f"anabranch_program_{path.stem}", path)
    if spec is None or spec.loader is None:
        message = f"not a Python file: {path}"
        raise AnabranchError(message, so="pass a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # A file's neighbours can be imported by it, as when Python runs it.
    sys.path.insert(0, str(path.parent.resolve()))
    # Compiled anew each time: bytecode is found stale by time and size, and an edit may keep both.
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except AnabranchError:
        raise
    except (Exception, SystemExit) as error:
        # A file that ends the process would end this one, without a word to who asked for JSON.
        message = f"{path} could not be imported: {type(error).__name__}: {error}"
        raise ProgramError(message, site=_where(error, path), so=_advice(error)) from error
    finally:
        sys.dont_write_bytecode = writes
        sys.path.pop(0)
    return module


def _advice(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"mend the name, or pip install what has {error.name} into {sys.executable}"
    return "mend that line"


def _where(error: BaseException, path: Path) -> Site | None:
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return Site(str(path), error.lineno, (error.text or "").strip())
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if Path(frame.filename) == path]
    last = inside[-1] if inside else None
    return None if last is None else Site(str(path), last.lineno or 0, last.line or "")
