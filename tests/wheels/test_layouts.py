"""The layout for the Hub's ``kernels``, of wheels without compiled code; and the recipe for conda.

``make layouts`` loads the layout through that package, and renders the recipe by rattler-build.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import hub
from wheels import check_layouts

PACKAGE = """__all__ = ["build_info", "number"]
number = 7
class build_info:
    cuda_version, architectures = {facts}
"""
FACTS = {
    "": ("13.0.88", "80-real,90-real,90-virtual,120-real"),
    "+host": ("", ""),
}
NAMES = {
    "": "torch-stable-abi210-cu130-x86_64-linux",
    "+host": "torch-stable-abi210-cpu-x86_64-linux",
}


def write(dist: Path, local: str, tag: str, library: bytes) -> None:
    """A wheel of the library for one interpreter."""
    name = f"planq-0.1.0{local}"
    with zipfile.ZipFile(dist / f"{name}-{tag}-manylinux_2_28_x86_64.whl", "w") as wheel:
        wheel.writestr("planq/__init__.py", PACKAGE.format(facts=FACTS[local]))
        wheel.writestr(f"planq/_core.{tag}.so", tag)
        wheel.writestr("planq/libplanq.so", library)
        wheel.writestr(f"{name}.dist-info/METADATA", f"of {tag}")
        wheel.writestr(f"{name}.dist-info/licenses/LICENSE", "a license")


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """Wheels of two libraries for two interpreters."""
    folder = tmp_path / "dist"
    folder.mkdir()
    for local in FACTS:
        for tag in ("cp311-cp311", "cp314-cp314t"):
            write(folder, local, tag, b"library" + local.encode())
    return folder


@pytest.mark.parametrize("local", FACTS)
def test_a_folder_has_the_modules_of_all_interpreters(
    dist: Path, tmp_path: Path, local: str
) -> None:
    """One for each library, and nothing of the wheels' own records."""
    hub.main(dist, tmp_path)
    assert {path.name for path in (tmp_path / "build").iterdir()} == set(NAMES.values())
    folder = tmp_path / "build" / NAMES[local]
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    package = {"__init__.py", "libplanq.so", "_core.cp311-cp311.so", "_core.cp314-cp314t.so"}
    assert files == {f"planq/{name}" for name in package} | {
        "__init__.py",
        "metadata.json",
        "LICENSE",
    }
    assert (folder / "planq" / "libplanq.so").read_bytes() == b"library" + local.encode()


def test_the_metadata_say_which_gpus_there_is_code_for(dist: Path, tmp_path: Path) -> None:
    """As kernels spells them; the host has none."""
    hub.main(dist, tmp_path)
    told = {
        local: json.loads((tmp_path / "build" / name / "metadata.json").read_text())
        for local, name in NAMES.items()
    }
    archs = ["8.0", "9.0", "9.0+PTX", "12.0"]
    assert told[""].pop("backend") == {"type": "cuda", "archs": archs}
    assert told["+host"].pop("backend") == {"type": "cpu"}
    assert told[""].pop("id") == "planq_0_1_0_torch_stable_abi210_cu130_x86_64_linux"
    assert told["+host"].pop("id") == "planq_0_1_0_torch_stable_abi210_cpu_x86_64_linux"
    rest = {"name": "planq", "version": 0, "license": "Apache-2.0", "python-depends": []}
    assert told[""] == told["+host"] == rest


def test_architectures_are_spelled_as_kernels_does() -> None:
    """Code, PTX, and both where CMake says neither."""
    assert hub.capabilities("90") == ["9.0", "9.0+PTX"]
    assert hub.capabilities("90a-real,103f-real") == ["9.0a", "10.3f"]
    assert hub.capabilities("90-virtual (unoptimized)") == ["9.0+PTX"]


# As kernels loads a folder: by a path, under the name that the metadata have.
LOAD = """import importlib.util, sys
if len(sys.argv) > 2:
    sys.path.insert(0, sys.argv[2])
    import planq
path = list(sys.path)
spec = importlib.util.spec_from_file_location("some_id", sys.argv[1] + "/__init__.py")
module = importlib.util.module_from_spec(spec)
sys.modules["some_id"] = module
spec.loader.exec_module(module)
import planq
assert sys.path == path
print(module.number, planq.__file__)
"""


def load(*folders: Path) -> subprocess.CompletedProcess[str]:
    """Loads the first folder; in a process that has planq of the second."""
    command = [sys.executable, "-I", "-c", LOAD, *map(str, folders)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_folder_loads_under_another_name(dist: Path, tmp_path: Path) -> None:
    """Also where its files are links, as in the Hub's cache; planq is that of the folder."""
    hub.main(dist, tmp_path)
    folder, links = tmp_path / "build" / NAMES["+host"], tmp_path / "links"
    (links / "planq").mkdir(parents=True)
    for name in ("__init__.py", "planq/__init__.py"):
        (links / name).symlink_to(folder / name)
    for each in (folder, links):
        done = load(each)
        assert (done.stdout, done.stderr) == (f"7 {each / 'planq' / '__init__.py'}\n", "")


def test_a_process_has_one_planq(dist: Path, tmp_path: Path) -> None:
    """Another that was imported before is named, instead of two mixed."""
    hub.main(dist, tmp_path)
    first, second = (tmp_path / "build" / name for name in NAMES.values())
    done = load(first, second)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: planq: expected that of {first}, got {second}")


def test_wheels_that_do_not_belong_together_are_refused(dist: Path, tmp_path: Path) -> None:
    """Of another library under one name, of another project, and none."""
    write(dist, "", "cp312-cp312", b"another library")
    with pytest.raises(SystemExit, match=r"another planq/libplanq.so"):
        hub.main(dist, tmp_path)
    (dist / "other-1.0-py3-none-any.whl").touch()
    with pytest.raises(SystemExit, match="expected a wheel that make wheel made"):
        hub.main(dist, tmp_path)
    with pytest.raises(SystemExit, match="no wheels"):
        hub.main(tmp_path / "build", tmp_path)


def test_the_recipe_says_what_pyproject_says() -> None:
    """Version, license, entry points and requirements."""
    assert check_layouts.differences(check_layouts.recipe(), "recipe") == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("context", "version"), "0.0.9"),
        (("about", "license"), "MIT"),
        (("build", "python", "entry_points"), ["planq = planq.cli:other"]),
        (("requirements", "run"), ["python >=3.11"]),
        (("requirements", "host"), ["python", "pip", "pybind11 >=2"]),
        (("requirements", "build"), ["cmake >=3.26"]),
        (("requirements", "run_constraints"), []),
    ],
)
def test_a_recipe_that_says_something_else_is_told(where: tuple[str, ...], value: Any) -> None:
    """By the name of what differs."""
    recipe = copy.deepcopy(check_layouts.recipe())
    *path, name = where
    table: Any = recipe
    for each in path:
        table = table[each]
    table[name] = value
    (told,) = check_layouts.differences(recipe, "recipe")
    assert told.startswith(f"recipe: {name}: expected ")
