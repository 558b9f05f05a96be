"""How Sphinx makes the site: `./x docs` calls it. The source directory is the repository itself.

So a link in README.md or in docs/ means the same file on the site, in an editor and on a forge.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from anabranch import __version__  # noqa: E402 - the path is set above
from anabranch.cli.command import parser  # noqa: E402 - the same

project = "Anabranch"
author = "The authors of Anabranch"
project_copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/**/*.md", "bench/README.md"]
# Not looked into: they hold no pages, and some hold many files.
exclude_patterns = [".*", "build", "dist", "examples", "src", "tests", "tools", "**/__pycache__"]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# One backtick is code in our docstrings, as in Markdown.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autoclass_content = "both"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
python_use_unqualified_type_names = True
add_module_names = False
maximum_signature_line_length = 80

nitpicky = True
# Types in signatures: other libraries' pages are not ours to link, and many of ours have no page.
nitpick_ignore_regex = [(r"py:class", r".*")]

html_theme = "furo"
html_title = f"Anabranch {release}"
html_extra_path = ["site"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

DIRECTORY_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[\w./-]+)\)")


class CommandHelp(SphinxDirective):
    """`{command-help} run`: what `anabranch run --help` says, 80 columns wide."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        """Ask the command's own parser."""
        [command] = [found for name, found in commands() if name == self.arguments[0]]
        command.formatter_class = _formatter
        text = command.format_help()
        return [nodes.literal_block(text, text, language="text")]


def commands() -> list[tuple[str, argparse.ArgumentParser]]:
    """The commands of the command line, in order."""
    subparsers = next(
        action
        for action in parser()._actions  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - the same
    )
    return list(subparsers.choices.items())


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, width=80)


def without_directories(app: Sphinx, docname: str, content: list[str]) -> None:
    """Links to directories are for those who read the repository; on the site they are words."""
    here = (Path(app.srcdir) / docname).parent

    def plain(found: re.Match[str]) -> str:
        return found["text"] if (here / found["target"]).is_dir() else found[0]

    content[0] = DIRECTORY_LINK.sub(plain, content[0])


def setup(app: Sphinx) -> None:
    """Add what is ours."""
    app.add_directive("command-help", CommandHelp)
    app.connect("source-read", without_directories)
