"""Loads planq as a kernel of the Hub, through the package ``kernels``, and runs plans of it.

``load_kernel.py VARIANT BACKEND``: the folder of a build. It is loaded from a repository that has
links to its files alone, as the Hub's cache has; where BACKEND is ``cpu``, ``kernels`` chooses it.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from pathlib import Path

import kernels

USE = Path(__file__).resolve().with_name("use.py")


def linked(variant: Path, repository: Path) -> Path:
    """The folder with a link for each of its files."""
    folder = repository / "build" / variant.name
    for path in variant.rglob("*"):
        if path.is_file():
            link = folder / path.relative_to(variant)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    return folder


def main(variant: Path, backend: str) -> None:
    """Load and run."""
    with tempfile.TemporaryDirectory() as folder:
        made = linked(variant, Path(folder))
        # Which machine has CUDA is not asked: a folder that is named is taken.
        kernel = kernels.get_local_kernel(Path(folder) if backend == "cpu" else made, backend="cpu")
        (loaded,) = kernels.get_loaded_kernels()
        planq = sys.modules["planq"]
        assert kernel.Plan is planq.Plan
        assert Path(planq.__file__) == made / "planq" / "__init__.py"
        assert set(planq.__all__) <= set(vars(kernel))
        assert loaded.metadata.id == kernel.__name__
        runpy.run_path(str(USE))


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
