"""What an audited planq is made of: a bill of materials in CycloneDX 1.6."""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final

import planq

# What planq and its audit import where they are installed.
PACKAGES: Final = ("numpy", "ml_dtypes", "cuda-core", "cuda-bindings", "typer", "rich", "torch")


def bill_of_materials(library_sha256: str) -> dict[str, Any]:
    """The library, what it was compiled with, and the packages that are installed beside it.

    Args:
        library_sha256: SHA-256 of the native library's file, in hexadecimal.
    """
    build = planq.build_info()
    library = {
        "type": "library",
        "bom-ref": "planq",
        "name": "planq",
        "version": build.version,
        "purl": f"pkg:pypi/planq@{build.version}",
        "hashes": [{"alg": "SHA-256", "content": library_sha256}],
        "properties": [
            {"name": f"planq:{name}", "value": str(getattr(build, name))}
            for name in ("build_id", "source_id", "flags", "cuda_flags", "architectures")
        ],
    }
    compilers = [{"type": "application", "name": "compiler", "version": build.compiler}]
    if build.cuda:
        compilers.append({"type": "application", "name": "nvcc", "version": build.cuda_version})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": library, "tools": {"components": compilers}},
        "components": [_package(name, version) for name, version in _installed()],
    }


def _installed() -> list[tuple[str, str]]:
    """The names and versions of those of the packages that are there."""
    found = []
    for name in PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return found


def _package(name: str, version: str) -> dict[str, str]:
    normal = name.lower().replace("_", "-")
    purl = f"pkg:pypi/{normal}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
