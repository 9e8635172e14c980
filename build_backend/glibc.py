"""Makes a folder with which libraries link that run on glibc 2.28, whatever glibc this machine has.

``glibc.py COMPILER FOLDER``. A newer glibc gives some names newer versions, which an older one does
not have: 2.34 moved the functions of libpthread, libdl and librt into libc. It has the older
versions as well, but the linker takes the newest. The folder holds a ``libc.so`` for ``-L``, which
brings before glibc's own libraries that have these names, and nothing else, in the old versions.

A function that has no older version is not helped: ``auditwheel`` and the tests name it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

OLDEST = (2, 28)

# Where the functions were before 2.34 moved them, by how their names begin.
MOVED = {
    "libpthread.so.0": ("pthread_", "__pthread_", "sem_"),
    "libdl.so.2": ("dl",),
    "librt.so.1": ("shm_",),
}

# What GCC's headers and libstdc++ ask glibc 2.32 for: whether there is one thread alone. A zero
# says that there may be more.
SINGLE_THREADED = """
  .section .note.GNU-stack,"",%progbits
  .section .bss.__libc_single_threaded,"aw",%nobits
  .globl __libc_single_threaded
  .hidden __libc_single_threaded
  .type __libc_single_threaded, %object
  .size __libc_single_threaded, 1
__libc_single_threaded:
  .zero 1
"""

Version = tuple[int, ...]


def versions(libc: Path) -> dict[str, dict[bool, list[Version]]]:
    """The versions of every name in a libc.so.6: under True the one that linkers take."""
    command = ["readelf", "--dyn-syms", "--wide", str(libc)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, dict[bool, list[Version]]] = defaultdict(lambda: {True: [], False: []})
    for name, mark, version in re.findall(r" (\w+)(@@?)GLIBC_([0-9.]+)$", told, re.MULTILINE):
        found[name][mark == "@@"].append(tuple(map(int, version.split("."))))
    return found


def moved(libc: Path) -> dict[str, dict[Version, list[str]]]:
    """The names whose newest version is too new: where they were, and in which version."""
    found: dict[str, dict[Version, list[str]]] = {library: defaultdict(list) for library in MOVED}
    for name, known in sorted(versions(libc).items()):
        old = [version for version in known[False] if version <= OLDEST]
        if not old or not known[True] or known[True][0] <= OLDEST:
            continue
        for library, beginnings in MOVED.items():
            if name.startswith(beginnings):
                found[library][max(old)].append(name)
    return {library: names for library, names in found.items() if names}


def write_library(compiler: str, path: Path, names: dict[Version, list[str]]) -> None:
    """Links a library that has these names in these versions, and is never loaded."""
    code, script = ['  .section .note.GNU-stack,"",%progbits', "  .text"], []
    for version, members in sorted(names.items()):
        code += [f"  .globl {name}\n  .type {name}, %function\n{name}:" for name in members]
        spelled = ".".join(map(str, version))
        script.append(f"GLIBC_{spelled} {{ global: {'; '.join(members)}; local: *; }};")
    source, exports = path.with_suffix(".s"), path.with_suffix(".map")
    source.write_text("\n".join(code) + "\n  .byte 0\n")
    exports.write_text("\n".join(script) + "\n")
    options = [f"-Wl,-soname,{path.name}", f"-Wl,--version-script={exports}", "-Wl,--build-id=none"]
    command = [compiler, "-shared", "-nostdlib", *options, "-o", str(path), str(source)]
    subprocess.run(command, check=True)


def library_of(compiler: str, name: str) -> Path:
    """A file that this compiler links with."""
    command = [compiler, f"-print-file-name={name}"]
    return Path(subprocess.check_output(command, text=True).strip()).resolve(strict=True)


def main(compiler: str, folder: Path) -> None:
    """Write the folder, or leave it empty where this machine's glibc is old enough."""
    folder.mkdir(parents=True, exist_ok=True)
    libc = library_of(compiler, "libc.so.6")
    script = library_of(compiler, "libc.so")
    libraries = moved(libc)
    if not libraries:
        return
    first = folder / "single_threaded.o"
    (folder / "single_threaded.s").write_text(SINGLE_THREADED)
    source = str(folder / "single_threaded.s")
    subprocess.run([compiler, "-c", "-o", str(first), source], check=True)
    for library, names in libraries.items():
        write_library(compiler, folder / library, names)
    inputs = " ".join(f'"{folder / library}"' for library in libraries)
    text = f'INPUT("{first}")\nGROUP(AS_NEEDED({inputs}))\nINPUT("{script}")\n'
    (folder / "libc.so").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve())
