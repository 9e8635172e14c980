"""Installs a wheel into a bare environment of the Python that runs this, and runs ``use.py`` there.

``install.py WHEEL PACKAGES FOLDER``: PACKAGES is a folder with the wheels of what planq needs, and
FOLDER is where the environment is made anew. Prints one line of what was measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

USE = Path(__file__).resolve().with_name("use.py")
LIMITS = {"install": 10.0, "import": 0.15}


def install(python: Path, *arguments: str) -> float:
    """Runs pip without an index, and returns how many seconds it took."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    begin = time.perf_counter()
    subprocess.run([*command, "--no-index", *arguments], check=True)
    return time.perf_counter() - begin


def use(python: Path, folder: Path) -> tuple[float, str]:
    """Runs ``use.py`` where nothing is but the environment: seconds of the import, and its line."""
    command = [str(python), "-I", "-W", "error", str(USE)]
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        # The module asks for the GIL, of which the interpreter warns.
        command[3] = "default"
    line = subprocess.check_output(command, cwd=folder, text=True).strip()
    return float(line.split()[0]), line


def main(wheel: Path, packages: str, folder: Path) -> int:
    """Install, import and run; 1 where something takes longer than it may."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        del os.environ[name]
    os.environ["PIP_CONFIG_FILE"] = os.devnull
    venv.create(folder, clear=True, with_pip=True)
    python = folder / "bin" / "python"
    install(python, "--find-links", packages, "numpy")
    installed = install(python, str(wheel))
    # The least of what a processor takes is the same beside other programs.
    imported, line = min(use(python, folder) for _ in range(5))
    print(f"{wheel.name}: {installed:.1f} s install, {line}", flush=True)
    return int(installed > LIMITS["install"] or imported > LIMITS["import"])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2], Path(sys.argv[3]).resolve()))
