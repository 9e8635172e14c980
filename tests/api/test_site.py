"""`make docs` shows every page and every public name; that it builds, it says itself."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

import planq
from support import docs


@pytest.fixture(scope="module")
def conf() -> Any:
    """The settings of the site, which import Sphinx only when it runs."""
    spec = importlib.util.spec_from_file_location("conf", docs.ROOT / "docs/site/conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed(page: str) -> list[list[str]]:
    """What the directives of a page of interfaces name: a module, and perhaps some names of it."""
    text = (docs.ROOT / f"docs/site/api/{page}.rst").read_text()
    found = re.findall(r"^\.\. exported:: (.+(?:\n +.+)*)$", text, flags=re.MULTILINE)
    return [each.split() for each in found]


def test_every_page_is_in_the_navigation_once(conf: Any) -> None:
    """Those of docs, and those of other folders that they link to."""
    pages = conf.PAGES
    assert len(pages) == len(set(pages))
    files = [docs.ROOT / f"{page}.{'rst' if '/api/' in page else 'md'}" for page in pages]
    assert all(file.is_file() for file in files)
    for file in (docs.ROOT / "docs").rglob("*.md"):
        assert file in files
    for file in (docs.ROOT / "docs/site/api").iterdir():
        assert file in files
    for file in files:
        for link in re.findall(r"\]\(((?!https?:)[^)\s#]+\.md)", file.read_text()):
            assert (file.parent / link).resolve() in files, (file, link)


def test_every_name_of_planq_is_on_a_page(conf: Any) -> None:
    """Modules have sections, operators those of their families, and the rest are listed."""
    own = [name for module, *names in listed("plans") for name in names if module == "planq"]
    families = [module for module, *_ in listed("operators")]
    modules = [module for module, *_ in listed("modules")]
    operators = [name for family in families for name in conf.exported(family)]
    told = [*own, *operators, *(each.removeprefix("planq.") for each in modules), "__version__"]
    assert set(planq.__all__) <= set(told)
    assert len(told) == len(set(told))
    for name in own:
        assert conf.documented("planq", name).startswith(".. autoapi"), name


def test_every_public_package_has_a_section(conf: Any) -> None:
    """Of those that programs import; the command line and the audit have pages of their own."""
    modules = {module for module, *_ in listed("modules")}
    packages = {f"planq.{file.parent.name}" for file in (docs.ROOT / "planq").glob("*/__init__.py")}
    inside = {"planq.audit", "planq.cli", "planq.ops", "planq.recording"}
    assert packages - inside <= modules
    for module in modules:
        assert any(conf.documented(module, name) for name in conf.exported(module)), module


def test_the_kind_of_a_name_is_that_of_its_definition(conf: Any) -> None:
    """Wherever that is: in the module, behind imports, or in a stub."""
    for module, name, told in (
        ("planq", "Plan", ".. autoapiclass:: planq.Plan\n   :members:"),
        ("planq", "Launch", ".. autoapiclass:: planq.Launch\n   :members:"),
        ("planq", "HOST", ".. autoapidata:: planq.HOST"),
        ("planq", "explain", ".. autoapifunction:: planq.explain"),
        ("planq", "layouts", ""),
        ("planq.ops.gather", "SampleArgs", ".. autoapiclass:: planq.SampleArgs"),
        ("planq.ops.gather", "SamplePlan", ""),
    ):
        assert conf.documented(module, name) == told
