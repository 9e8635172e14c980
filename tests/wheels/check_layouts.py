"""Judges what ``build_backend/hub.py`` made, and the recipe of a conda package. Publishes nothing.

``check_layouts.py FOLDER TOOLS``: TOOLS is a folder with the packages of the extra ``layouts``.
Each folder of FOLDER/build has to load through ``kernels`` and run plans; the recipe has to render
through rattler-build, and to say what pyproject.toml says. The exit status is 1 if one does not.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CONDA = ROOT / "build_backend" / "conda"
LOAD = Path(__file__).resolve().with_name("load_kernel.py")


def pyproject() -> dict[str, Any]:
    """The whole of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def recipe() -> dict[str, Any]:
    """The recipe as it is written, before anything is put in for its expressions."""
    found: dict[str, Any] = yaml.safe_load((CONDA / "recipe.yaml").read_text())
    return found


def spelled(requirement: str) -> str:
    """A requirement as conda spells it: ``numpy >=1.26``."""
    return re.sub(r"^([\w.-]+)(?=[<>=])", r"\1 ", requirement)


def expected(table: dict[str, Any]) -> dict[str, Any]:
    """What pyproject.toml demands of a recipe."""
    project, build = table["project"], table["tool"]["scikit-build"]
    return {
        "version": project["version"],
        "license": project["license"],
        "summary": project["description"],
        "entry_points": [f"{name} = {call}" for name, call in project["scripts"].items()],
        "run": [f"python {project['requires-python']}", *map(spelled, project["dependencies"])],
        "run_constraints": [spelled(each) for each in project["optional-dependencies"]["cli"]],
        "host": [spelled(each) for each in table["build-system"]["requires"]],
        "build": [f"cmake {build['cmake']['version']}", f"ninja {build['ninja']['version']}"],
    }


def said(written: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """What a recipe says of the same; of what builds, what is among more."""
    needs = written["requirements"]
    found = {
        "version": written["context"]["version"],
        "license": written["about"]["license"],
        "summary": written["about"]["summary"],
        "entry_points": written["build"]["python"]["entry_points"],
        "run": needs["run"],
        "run_constraints": needs["run_constraints"],
    }
    return found | {
        where: [each for each in needs[where] if each in wanted[where]]
        for where in ("host", "build")
    }


def differences(written: dict[str, Any], what: str) -> list[str]:
    """Where a recipe says anything else than pyproject.toml."""
    wanted = expected(pyproject())
    found = said(written, wanted)
    return [
        f"{what}: {name}: expected {wanted[name]}, got {found[name]}"
        for name in wanted
        if found[name] != wanted[name]
    ]


def rendered() -> Iterator[str]:
    """What is wrong with the packages that rattler-build makes of the recipe and its variants."""
    rattler = importlib.import_module("rattler_build")
    variants = yaml.safe_load((CONDA / "variants.yaml").read_text())
    listed = rattler.Stage0Recipe.from_file(CONDA / "recipe.yaml").render(
        rattler.VariantConfig.from_file(CONDA / "variants.yaml")
    )
    names = set()
    for each in listed:
        told = each.recipe.to_dict()
        name = told["build"]["string"]
        names.add(name)
        yield from differences(told, name)
        if told["package"] != {"name": "planq", "version": told["context"]["version"]}:
            yield f"{name}: {told['package']}"
        on = told["build"]["script"]["env"]["PLANQ_CUDA"]
        has_nvcc = any(need.startswith("cuda-nvcc") for need in told["requirements"]["build"])
        if (on == "ON") != has_nvcc or name.startswith("host") == has_nvcc:
            yield f"{name}: PLANQ_CUDA={on}, and nvcc is {'' if has_nvcc else 'not '}there"
    count = len(variants["python"]) * len(variants["cuda_compiler_version"])
    if len(names) != count:
        yield f"recipe.yaml: expected {count} packages, got {sorted(names)}"
    print(f"{len(names)} conda packages rendered, none built")


def loaded(folder: Path, tools: Path) -> Iterator[str]:
    """What is wrong with the folders of the Hub, by ``kernels``."""
    variants = sorted((folder / "build").glob("*"))
    if not variants:
        yield f"{folder}: no folders; make wheel and build_backend/hub.py make them"
    for variant in variants:
        backend = "cpu" if "-cpu-" in variant.name else "cuda"
        environment = {**os.environ, "PYTHONPATH": str(tools), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-P", "-W", "error", str(LOAD), str(variant), backend]
        done = subprocess.run(command, env=environment, check=False, text=True, capture_output=True)
        if done.returncode:
            yield f"{variant.name}: does not load and run as it should\n{done.stderr}"
        else:
            print(f"{variant.name}: loads and runs, {done.stdout.split(', ')[-1].strip()}")


def main(folder: Path, tools: Path) -> int:
    """Print what was found; the exit status is 1 if there is a problem."""
    sys.path.append(str(tools))
    problems = [*differences(recipe(), "recipe.yaml"), *rendered(), *loaded(folder, tools)]
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
