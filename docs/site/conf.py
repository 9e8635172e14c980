"""What Sphinx builds the site of: the repository's own pages, under the paths that they have.

``make docs`` runs it. A link leads to the same page as in the repository, and a file that is no
page is copied. The pages of ``api`` are made of docstrings, which are read without importing planq.
"""

from __future__ import annotations

import ast
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
# The navigation behind the front page: headings, and pages without their suffix.
NAVIGATION = {
    "Start": ["docs/concepts", "docs/engines", "docs/coming-from", "docs/origins"],
    "Engines": [
        "docs/c",
        "examples/engine_cpp/README",
        "examples/engine_rust/README",
        "docs/torch",
        "docs/distributed",
        "docs/integrations/README",
    ],
    "Models": ["docs/checkpoints", "docs/networks", "docs/command-line"],
    "Bits": ["docs/determinism", "docs/audit", "docs/tensor-cores", "docs/numerics/README"],
    "Speed": ["docs/performance", "benchmarks/README"],
    "Reference": [
        "docs/matrix",
        "docs/errors",
        "docs/site/api/plans",
        "docs/site/api/operators",
        "docs/site/api/modules",
        "docs/site/api/c",
        "docs/site/api/cpp",
    ],
    "Contributing": [
        "CONTRIBUTING",
        "docs/adding-an-operator",
        "tests/gpu/README",
        "SECURITY",
        "CHANGELOG",
    ],
}
# Pages under another one, which is the README of their folder.
BELOW = {
    f"{folder}/README": sorted(
        f"{folder}/{path.stem}" for path in (ROOT / folder).glob("*.md") if path.stem != "README"
    )
    for folder in ("docs/integrations", "docs/numerics")
}
KINDS = {
    ast.ClassDef: "class",
    ast.FunctionDef: "function",
    ast.Assign: "data",
    ast.AnnAssign: "data",
}
PAGES = ["README", *itertools.chain(*NAVIGATION.values(), *BELOW.values())]

project = html_title = "planq"
root_doc = "README"
include_patterns = [f"{page}.*" for page in PAGES]
extensions = ["myst_parser", "sphinx.ext.napoleon", "autoapi.extension"]
html_theme = "furo"
html_static_path, html_extra_path = ["static"], ["index.html"]
html_css_files = ["site.css"]
html_copy_source = html_show_sphinx = html_show_copyright = False
myst_heading_anchors = 4
autoapi_dirs = [str(ROOT / "planq")]
autoapi_ignore = ["*/planq/audit/*", "*/planq/cli/*"]
autoapi_generate_api_docs = False
autoapi_options = ["members"]
autoapi_python_class_content = "both"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
default_role = "code"
napoleon_custom_sections = [
    *("When to use", "Formula", "Dtypes", "Shapes", "Workspace", "Guarantee", "Source"),
    *("Exactness", "Operands", "Threads and tasks", "Tensors", "Arguments", "Results", "Plans"),
    *("Compiled programs", "Preferences", "Streams", "Gradients", "Bits", "Errors", "Levels"),
    *("Options", "States", "Steps", "Paging", "Streams and memory", "Loss scaling"),
    *("DistributedDataParallel",),
    ("Attributes", "params_style"),
]
# Constants of modules that are not read are no part of any page.
suppress_warnings = ["autoapi.python_import_resolution"]


def setup(app: Sphinx) -> None:
    """Adds what the pages of the repository do not have."""
    from sphinx.util.docutils import SphinxDirective

    class Exported(SphinxDirective):
        """What a module says of itself and of all that it exports; or of some names alone."""

        required_arguments, optional_arguments, final_argument_whitespace = 1, 1, True

        def run(self) -> list[Any]:
            """The same as directives of autoapi."""
            module, *names = " ".join(self.arguments).split()
            made = [documented(module, name) for name in names or exported(module)]
            whole = [] if names else [f".. autoapimodule:: {module}"]
            return self.parse_text_to_nodes("\n\n".join([*whole, *made]))

    app.add_directive("exported", Exported)
    app.connect("source-read", navigate)


def navigate(app: Sphinx, page: str, source: list[str]) -> None:
    """Puts the navigation on the front page, and pages under theirs."""
    del app
    trees = NAVIGATION if page == "README" else {"": BELOW[page]} if page in BELOW else {}
    for title, pages in trees.items():
        # Pages below have short names: that of the page above says the rest.
        named = (f"/{each}" if title else f"{Path(each).name} </{each}>" for each in pages)
        listed = "\n".join(named)
        caption = f":caption: {title}\n" if title else ""
        source[0] += f"\n```{{toctree}}\n:hidden:\n{caption}\n{listed}\n```\n"


def exported(module: str) -> list[str]:
    """The names that a module exports, the descriptor of an operator before its args."""
    names: list[str] = ast.literal_eval(node_of(module, "__all__").value)
    return sorted(names, key=lambda name: name.replace("Args", "~"))


def documented(module: str, name: str) -> str:
    """A directive for a name; none for subclasses of plans, which have no members of their own."""
    kind = KINDS.get(type(node_of(module, name)))
    if kind is None or (name.endswith("Plan") and name != "Plan"):
        return ""
    # Programs call operators by the names of planq. Docstrings of classes tell of their fields.
    told = "planq" if module.startswith("planq.ops.") else module
    members = kind == "class" and not name.endswith(("Descriptor", "Args"))
    return f".. autoapi{kind}:: {told}.{name}" + "\n   :members:" * members


def node_of(module: str, name: str) -> Any:
    """Where a name is defined, beginning in a module that has it; None: it is a module."""
    for node in ast.parse(file_of(module).read_text()).body:
        if isinstance(node, ast.ImportFrom) and name in [each.name for each in node.names]:
            return None if node.module == module else node_of(str(node.module), name)
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if getattr(node, "name", None) == name or name in map(ast.unparse, filter(None, targets)):
            return node
    return None


def file_of(module: str) -> Path:
    """The source of a module, or its stub."""
    path = ROOT / module.replace(".", "/")
    files = (path / "__init__.py", path.with_suffix(".py"), path.with_suffix(".pyi"))
    return next(filter(Path.is_file, files))
