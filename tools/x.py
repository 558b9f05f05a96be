"""Makes the project's environment and runs the project's commands in it.

Started by `./x`, by any Python from 3.11 on, with the standard library alone: nothing else is sure
to be there. The environment is `.venv`; `.venv/stamp` is written last, so an environment with the
right stamp is whole, and one without is made anew. Whoever makes the environment holds `.x/lock`
alone; whoever runs in it shares it, so one `./x` never pulls the environment from under another.
"""

import fcntl
import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
MOST_TESTERS = 4
LOCK = ROOT / "requirements.lock"
VENV = ROOT / ".venv"
STAMP = VENV / "stamp"
# Beside the environment, not in it: these outlive its remaking.
SIDE = ROOT / ".x"

OLDEST_PYTHON = (3, 11)
# Raise it when an environment made by the code before must be remade.
LAYOUT = 1
# PySpark is published as source. What builds it is installed from the lock first and used without
# build isolation, which would fetch whatever setuptools is newest, unpinned.
BUILD_TOOLS = ("setuptools",)
# These would lead Python out of the environment.
OUTSIDE = {"PYTHONHOME", "PYTHONPATH", "__PYVENV_LAUNCHER__"}
LINTED = ("src", "tests", "bench", "tools", "examples", "docs")

PIP_FETCHES = re.compile(
    r"\s*(?:Downloading|Using cached|Processing) (?:\S+/)?"
    r"(\S+?)(?:-py\S+|-cp\S+|\.tar\.gz)( \(.*\))?$"
)
PIP_CHATTER = re.compile(
    r"\s*(?:$|Building|Collecting|Created|Downloading|Getting|Ignoring|Installing|Looking|Preparing"
    r"|Processing|Requirement|Stored|Success|Using|━)"
)

HELP = """\
usage: ./x COMMAND [ARGUMENT ...]

  demo                 run the demonstration
  test [--quick | --chaos] [PATH ...] [-k NAME]
                       run the tests
  lint [--fix]         check style, types and the import rule
  bench NAME [...]     run a benchmark
  docs [--serve [PORT]]
                       check the documentation, make its site and show it
  python ...           run Python in the project's environment
  lock                 resolve the dependencies anew and write requirements.lock

The first command makes an isolated environment in .venv from requirements.lock, later ones find it.
`./x COMMAND --help` says more. X_PYTHON=python3.12 ./x ... chooses the Python.
"""

USAGE = {
    "demo": """\
usage: ./x demo [ARGUMENT ...]

Runs the demonstration; arguments go to `anabranch demo`.
""",
    "test": """\
usage: ./x test [--quick | --chaos] [PATH ...] [-k NAME] [PYTEST OPTION ...]

Runs the tests, in PATHs and of NAMEs if given.

  --quick   leave out what takes longer than a moment
  --chaos   run the tests that kill, delay and repeat at random, and only these

Every other argument goes to pytest.
""",
    "lint": """\
usage: ./x lint [--fix]

Runs every check, also after one has failed, and says which failed.

  --fix     first repair what can be repaired
""",
    "bench": """\
usage: ./x bench NAME [ARGUMENT ...]

Runs the benchmark of that name; without one, says which there are.
""",
    "docs": """\
usage: ./x docs [--serve [PORT]]

Checks the links and compiles the Python blocks of all pages, then makes the site in build/docs,
where every warning is an error. `./x test tests/docs` runs the blocks.

  --serve   then show it at http://127.0.0.1:PORT/ (8000) until Ctrl-C
""",
    "lock": """\
usage: ./x lock

Resolves the dependencies in pyproject.toml to the newest versions and writes requirements.lock.
""",
}


class Trouble(Exception):
    """What the user is told in one line, when there is no way on."""


def say(text: str) -> None:
    """Tell the user how far things are; standard output belongs to the commands."""
    print(f"x: {text}", file=sys.stderr, flush=True)


# --- the lock file -------------------------------------------------------------------------------


def read_lock(text: str) -> dict[str, str]:
    r"""Split a lock into its requirements, hashes included, by name.

    A name that is locked at two versions (for different Pythons) keeps both.

    >>> read_lock("# by x\na==1 \\\n  --hash=sha256:00\nb==2 \\\n  --hash=sha256:11\n")["b"]
    'b==2 \\\n  --hash=sha256:11\n'
    """
    requirements: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#") or not line.strip():
            continue
        if not line[0].isspace():
            name = re.split(r"[=\s;]", line, maxsplit=1)[0]
        requirements[name] = requirements.get(name, "") + line + "\n"
    return requirements


def stamp_of(lock: bytes, python: tuple[int, int], root: Path, version: str) -> str:
    """Name the environment that these would make; equal stamps, equal environments.

    The root is part of it because scripts in it hold the path: a moved clone needs its own.
    """
    parts = (str(LAYOUT), dotted(python), str(root), version, hashlib.sha256(lock).hexdigest())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def dotted(version: tuple[int, int]) -> str:
    """Write a version as people do."""
    return f"{version[0]}.{version[1]}"


def project_version() -> str:
    """Return the version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def wanted_stamp() -> str:
    """Return the stamp of the environment that this Python would make now."""
    return stamp_of(LOCK.read_bytes(), sys.version_info[:2], ROOT, project_version())


def is_ready() -> bool:
    """Say whether the environment is whole and is the one wanted."""
    try:
        return STAMP.read_text() == wanted_stamp() and (VENV / "bin" / "python").exists()
    except FileNotFoundError:
        return False


# --- one at a time -------------------------------------------------------------------------------


def hold(file: int, mode: int) -> None:
    """Take the lock in this mode, saying so if that means waiting."""
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another ./x that uses .venv")
        fcntl.flock(file, mode)


def enter_environment() -> int:
    """Make the environment if need be; share it until this process, or what it becomes, ends.

    To be called once in a process. Returns the lock's descriptor.
    """
    SIDE.mkdir(exist_ok=True)
    file = os.open(SIDE / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    # The command replaces this process and keeps the share. Its children, if started by Python's
    # subprocess, do not: a forgotten one holds up nobody.
    os.set_inheritable(file, True)  # noqa: FBT003 - the function takes no keyword
    hold(file, fcntl.LOCK_SH)
    while not is_ready():
        # Given up before it is taken alone, since two who share it would wait for each other.
        # So another may have made the environment in between: look again.
        fcntl.flock(file, fcntl.LOCK_UN)
        hold(file, fcntl.LOCK_EX)
        if not is_ready():
            make_environment()
        hold(file, fcntl.LOCK_SH)
    return file


# --- installing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Installer:
    """A program that makes environments and puts locked packages into them."""

    name: str
    make: tuple[str, ...]
    install: tuple[str, ...]
    # Shows its own progress; pip's is counted here.
    is_uv: bool


def base_python() -> str:
    """Return the Python to make environments from: not this one, if it is in an environment."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)


def uv_installer(uv: str, name: str) -> Installer:
    """Return uv, which is the fastest and needs neither venv nor pip."""
    python = str(VENV / "bin" / "python")
    return Installer(
        name,
        make=(
            uv,
            "venv",
            "--quiet",
            "--no-project",
            "--clear",
            "--python",
            base_python(),
            str(VENV),
        ),
        install=(uv, "pip", "install", "--python", python),
        is_uv=True,
    )


def venv_installer() -> Installer:
    """Return the standard library's venv with the pip it brings along."""
    return Installer(
        "venv and pip",
        make=(base_python(), "-m", "venv", "--clear", str(VENV)),
        install=(str(VENV / "bin" / "python"), "-m", "pip", "install"),
        is_uv=False,
    )


def outside_pip_installer(pip: tuple[str, ...]) -> Installer:
    """Return a bare venv that a pip from elsewhere fills."""
    python = str(VENV / "bin" / "python")
    return Installer(
        f"venv and {' '.join(pip)}",
        make=(base_python(), "-m", "venv", "--without-pip", "--clear", str(VENV)),
        install=(*pip, "--python", python, "install"),
        is_uv=False,
    )


def succeeds(*command: str) -> bool:
    """Say whether a command can be run and ends well."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def can_import(*modules: str) -> bool:
    """Say whether the base Python has these modules."""
    return succeeds(base_python(), "-I", "-c", f"import {', '.join(modules)}")


def outside_pips() -> Iterator[tuple[str, ...]]:
    """Find every pip there is: this Python's, those on PATH, those of other Pythons."""
    pythons = ("python3", "python3.11", "python3.12", "python3.13", "python3.14", "python")
    for command in (
        (base_python(), "-m", "pip"),
        ("pip3",),
        ("pip",),
        *((python, "-m", "pip") for python in pythons),
    ):
        if succeeds(*command, "--version"):
            yield command


def fetched_uv() -> Installer | None:
    """Fetch the locked uv with any pip there is; that pip need not be able to do more than that."""
    home = SIDE / "bootstrap"
    for pip in outside_pips():
        shutil.rmtree(home, ignore_errors=True)
        with requirement_file("uv") as file:
            options = ("--quiet", "--require-hashes", "--no-deps", "--target", str(home))
            if succeeds(*pip, "install", *options, "--requirement", str(file)):
                return uv_installer(str(home / "bin" / "uv"), "the locked uv")
    return None


def installers() -> Iterator[Installer]:
    """Find the ways to make an environment here, the best first; the later are for bare Pythons."""
    uv = shutil.which("uv")
    if uv:
        yield uv_installer(uv, "uv")
    if can_import("venv", "ensurepip"):
        yield venv_installer()
    if can_import("venv"):
        for pip in outside_pips():
            if succeeds(*pip, "--python", base_python(), "--version"):
                yield outside_pip_installer(pip)
                break
    fetched = fetched_uv()
    if fetched:
        yield fetched


@contextmanager
def requirement_file(*names: str) -> Iterator[Path]:
    """Write the part of the lock that holds these names, or all of it, to a file."""
    requirements = read_lock(LOCK.read_text())
    with tempfile.TemporaryDirectory(prefix="anabranch-x-") as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("".join(requirements[name] for name in names or sorted(requirements)))
        yield file


def installer_settings() -> dict[str, str]:
    """Return the environment variables that installers need here; what the user has set stays."""
    settings = {}
    home = os.environ.get("HOME", "")
    if not (home and os.access(home, os.W_OK)):
        cache = SIDE / "cache"
        settings = {"UV_CACHE_DIR": str(cache / "uv"), "PIP_CACHE_DIR": str(cache / "pip")}
    # Where a proxy signs with a certificate of its own, the system knows it and uv's own list does
    # not; a bare container has none, and uv's own list serves.
    if system_certificates():
        settings["UV_SYSTEM_CERTS"] = "1"
    return {name: value for name, value in settings.items() if name not in os.environ}


def system_certificates() -> bool:
    """Say whether the system has certificates to trust."""
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile or (paths.capath and any(Path(paths.capath).iterdir())))


def make_environment() -> None:
    """Make the environment in the first way that works; holds the lock alone."""
    started = time.monotonic()
    count = len(read_lock(LOCK.read_text()))
    os.environ.update(installer_settings())
    reached_end = False
    failed = []
    for installer in installers():
        STAMP.unlink(missing_ok=True)
        say(f"making .venv with Python {sys.version.split()[0]}, using {installer.name}")
        try:
            fill_environment(installer, count)
        except subprocess.CalledProcessError as error:
            failed.append(installer.name)
            say(f"{installer.name} failed (exit code {error.returncode})")
            continue
        reached_end = True
        break
    if not reached_end:
        raise Trouble(no_way(failed))
    link_project()
    write_whole(STAMP, wanted_stamp())
    say(f"environment ready after {time.monotonic() - started:.0f} s")


def no_way(failed: Sequence[str]) -> str:
    """Say in one line what to do when no installer worked."""
    if failed:
        return f"could not install the dependencies with {', nor with '.join(failed)}: see above"
    return (
        "this Python can make no environment: install pip, Python's venv package "
        "(python3-venv on Debian and Ubuntu) or uv, then run this again"
    )


def fill_environment(installer: Installer, count: int) -> None:
    """Make an empty environment and install the locked packages into it."""
    run_loud(installer.make)
    options = ("--require-hashes", "--no-deps")
    with requirement_file(*BUILD_TOOLS) as file:
        run_loud((*installer.install, "--quiet", *options, "--requirement", str(file)))
    say(f"installing {count} locked packages (about 0.7 GB to fetch the first time)")
    with requirement_file() as file:
        if installer.is_uv:
            run_loud((*installer.install, *options, "--no-build-isolation", "-r", str(file)))
            return
        # Without --use-pep517, pips of before 25.3 want the wheel package for PySpark's build.
        pep517 = ("--no-build-isolation", "--use-pep517")
        pip_quiet = ("--disable-pip-version-check", "--no-input")
        run_counted((*installer.install, *options, *pep517, *pip_quiet, "-r", str(file)), count)


def run_loud(command: Sequence[str]) -> None:
    """Run an installer with its output on standard error."""
    # It inherits the lock: if this process is killed, nobody starts before the installer has ended.
    subprocess.run(command, stdout=sys.stderr.fileno(), close_fds=False, check=True)


def run_counted(command: Sequence[str], count: int) -> None:
    """Run pip and turn what it says into progress; what is no progress is passed on."""
    done = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, close_fds=False) as process:
        for line in process.stdout or ():
            done += line.startswith(("Collecting ", "Processing ", "Requirement already"))
            progress = pip_progress(line, done, count)
            if progress:
                say(progress)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def pip_progress(line: str, done: int, count: int) -> str:
    """Turn a line of pip's output into a line of progress, or into nothing.

    >>> pip_progress("  Downloading rich-15.0.0-py3-none-any.whl (243 kB)", 7, 34)
    '[7/34] rich-15.0.0 (243 kB)'
    """
    fetched = PIP_FETCHES.match(line)
    if fetched:
        return f"[{done}/{count}] {fetched[1]}{fetched[2] or ''}"
    if line.startswith("Building wheels"):
        return "building PySpark's wheel: it is published as source, this takes a minute"
    if line.startswith("Installing collected"):
        return "unpacking"
    return "" if PIP_CHATTER.match(line) else line.rstrip()


def link_project() -> None:
    """Make `import anabranch` and the command `anabranch` work in the environment.

    By hand, because an install proper would fetch a build backend.
    """
    version = project_version()
    packages = next((VENV / "lib").glob("python*/site-packages"))
    # Relative to the file's directory. The root is there for `bench`, which Spark's workers import.
    (packages / "anabranch.pth").write_text("../../../../src\n../../../..\n")
    info = packages / f"anabranch-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: anabranch\nVersion: {version}\n")
    (info / "INSTALLER").write_text("x\n")
    (info / "entry_points.txt").write_text("[console_scripts]\nanabranch = anabranch.cli:main\n")
    (info / "RECORD").write_text(
        "".join(f"{file.relative_to(packages)},,\n" for file in info.iterdir())
    )
    script = VENV / "bin" / "anabranch"
    script.write_text(
        f"#!{VENV}/bin/python\nimport sys\nfrom anabranch.cli import main\n\nsys.exit(main())\n"
    )
    script.chmod(0o755)


def write_whole(file: Path, text: str) -> None:
    """Write a file so that it is never seen in part."""
    draft = file.with_suffix(".new")
    draft.write_text(text)
    draft.replace(file)


# --- commands ------------------------------------------------------------------------------------


def settings() -> dict[str, str]:
    """Return the environment variables of commands."""
    own = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
    path = os.environ.get("PATH", os.defpath)
    return own | {"VIRTUAL_ENV": str(VENV), "PATH": f"{VENV}/bin{os.pathsep}{path}"}


def become(*arguments: str, folder: Path | None = None) -> NoReturn:
    """Become the environment's Python, so that exit codes and signals need no passing on."""
    enter_environment()
    if folder:
        os.chdir(folder)
    python = str(VENV / "bin" / "python")
    os.execve(python, [python, *arguments], settings())  # noqa: S606 - no shell is wanted


def demo(arguments: list[str]) -> NoReturn:
    """Run the demonstration."""
    become("-m", "anabranch.cli", "demo", *arguments)


def test(arguments: list[str]) -> NoReturn:
    """Run the tests."""
    marks = "not chaos"
    if "--quick" in arguments:
        marks = "not slow and not chaos"
    if "--chaos" in arguments:
        marks = "chaos"
    rest = [argument for argument in arguments if argument not in {"--quick", "--chaos"}]
    become("-m", "pytest", "-m", marks, *beside_each_other(arguments, rest), *rest, folder=ROOT)


def beside_each_other(arguments: list[str], rest: list[str]) -> list[str]:
    """Run all tests in several processes: most of them keep one core busy, and wait for it.

    Each takes whole files, so that what tests of a file share is made once. Who asks for some
    tests, or for a way to run them, gets what he asked for; those that kill run alone.
    """
    cores = min(os.cpu_count() or 1, MOST_TESTERS)
    if "--chaos" in arguments or cores == 1 or any(not each.startswith("--") for each in rest):
        return []
    return ["--numprocesses", str(cores), "--dist", "loadfile"]


def bench(arguments: list[str]) -> NoReturn:
    """Run a benchmark."""
    become("-m", "bench", *arguments, folder=ROOT)


def python(arguments: list[str]) -> NoReturn:
    """Run Python."""
    become(*arguments)


def docs(arguments: list[str]) -> NoReturn:
    """Check the documentation and make its site."""
    become(str(ROOT / "tools" / "docs.py"), *arguments, folder=ROOT)


def lint(arguments: list[str]) -> int:
    """Run every check, also after one has failed."""
    fix = parse_flag("lint", "--fix", arguments)
    enter_environment()
    folders = [folder for folder in LINTED if (ROOT / folder).is_dir()]
    checks = {
        "ruff check": ("ruff", "check", *(("--fix",) if fix else ()), *folders),
        "ruff format": ("ruff", "format", *(() if fix else ("--check",)), *folders),
        "mypy": ("mypy", *folders),
        "import rule": ("lint-imports", "--no-cache", "--no-logo"),
    }
    failed = [name for name, check in checks.items() if not passes(name, check)]
    say(f"lint: {', '.join(failed)} failed" if failed else "lint: all passed")
    return 1 if failed else 0


def passes(name: str, check: tuple[str, ...]) -> bool:
    """Run one check of the environment and say whether it passed."""
    say(name)
    command = [str(VENV / "bin" / check[0]), *check[1:]]
    return subprocess.run(command, cwd=ROOT, env=settings(), check=False).returncode == 0


def lock(arguments: list[str]) -> int:
    """Resolve the dependencies anew."""
    parse_flag("lock", None, arguments)
    uv = shutil.which("uv") or locked_uv()
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    draft = LOCK.with_suffix(".new")
    options = (
        *("--universal", "--python-version", dotted(OLDEST_PYTHON)),
        *("--generate-hashes", "--no-emit-index-url", "--no-annotate"),
        *("--custom-compile-command", "./x lock", "--all-extras", "--upgrade", "--quiet"),
        *(word for group in groups for word in ("--group", group)),
    )
    command = (uv, "pip", "compile", "pyproject.toml", *options, "--output-file", str(draft))
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == 0:
        draft.replace(LOCK)
        say(f"requirements.lock holds {len(read_lock(LOCK.read_text()))} packages")
    draft.unlink(missing_ok=True)
    return code


def locked_uv() -> str:
    """Return the environment's own uv."""
    enter_environment()
    return str(VENV / "bin" / "uv")


def parse_flag(command: str, flag: str | None, arguments: list[str]) -> bool:
    """Say whether the one flag of a command was given; refuse everything else."""
    unknown = [argument for argument in arguments if argument != flag]
    if unknown:
        message = f"{command} knows nothing of {' '.join(unknown)}: see ./x {command} --help"
        raise Trouble(message)
    return bool(arguments)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "demo": demo,
    "test": test,
    "lint": lint,
    "bench": bench,
    "docs": docs,
    "python": python,
    "lock": lock,
}


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code, if the command did not take over this process."""
    if sys.version_info < OLDEST_PYTHON:
        raise Trouble(too_old(sys.version_info[:2]))
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(HELP, end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        message = f"there is no command {name!r}: there are {', '.join(COMMANDS)}"
        raise Trouble(message)
    # `./x python --help` is for Python; the others explain themselves.
    if name in USAGE and any(argument in {"-h", "--help"} for argument in rest):
        print(USAGE[name], end="")
        return 0
    return COMMANDS[name](rest)


def too_old(version: tuple[int, int]) -> str:
    """Say in one line that this Python is too old."""
    return f"Python {dotted(OLDEST_PYTHON)} or newer is needed; this is {dotted(version)}"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Trouble as trouble:
        say(str(trouble))
        sys.exit(1)
    except KeyboardInterrupt:
        say("interrupted; the next ./x starts this step again")
        sys.exit(130)
