"""Makes the wheels of a release out of one that was built: one for each interpreter.

They hold the same ``libplanq.so``, byte for byte, and each its interpreter's ``_core``. Their
names say ``manylinux_2_28``, which ``auditwheel`` has to confirm. A wheel of the host backend alone
has the local version ``host``, so that no two wheels with one name have different contents.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

MODULE = re.compile(r"(?:.*/)?_core\.cpython-(3\d+)(t?)-[^/]*\.so")
NEWEST_GLIBC = (2, 28)
PLATFORM = f"manylinux_{NEWEST_GLIBC[0]}_{NEWEST_GLIBC[1]}_{platform.machine()}"

Contents = dict[str, bytes]


def interpreter(module: str) -> tuple[str, str]:
    """The tags of a module's interpreter and ABI, such as ``cp314`` and ``cp314t``."""
    found = MODULE.fullmatch(module)
    if found is None:
        raise ValueError(f"{module}: no module of CPython")
    return f"cp{found[1]}", f"cp{found[1]}{found[2]}"


def with_version(contents: Contents, version: str) -> Contents:
    """The same members, with this version in METADATA and in the name of its folder."""
    (metadata,) = (name for name in contents if name.endswith(".dist-info/METADATA"))
    name = metadata.split("-")[0]
    folder, named = metadata.removesuffix("METADATA"), f"{name}-{version}.dist-info/"
    changed = re.sub(
        rb"(?m)^Version: .*$", f"Version: {version}".encode(), contents[metadata], count=1
    )
    contents = {**contents, metadata: changed}
    return {key.replace(folder, named): value for key, value in contents.items()}


def with_module(contents: Contents, module: str, code: bytes) -> Contents:
    """The same members with another interpreter's module, and its tag in WHEEL."""
    changed = {key: value for key, value in contents.items() if not MODULE.fullmatch(key)}
    changed[f"planq/{module}"] = code
    (wheel,) = (name for name in contents if name.endswith(".dist-info/WHEEL"))
    tag = "-".join((*interpreter(module), PLATFORM))
    changed[wheel] = re.sub(rb"(?m)^Tag: .*$", f"Tag: {tag}".encode(), contents[wheel])
    return changed


def record(contents: Contents) -> Contents:
    """The same members in the order of their names, metadata last, with a RECORD of them."""
    (name,) = (key for key in contents if key.endswith(".dist-info/RECORD"))
    order = sorted(contents.keys() - {name}, key=lambda key: (".dist-info/" in key, key))
    members = {key: contents[key] for key in order}
    lines = []
    for key, value in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(value).digest()).rstrip(b"=").decode()
        lines.append(f"{key},sha256={digest},{len(value)}\n")
    return {**members, name: "".join([*lines, f"{name},,\n"]).encode()}


def write(contents: Contents, like: zipfile.ZipInfo, path: Path) -> None:
    """Writes a wheel whose members have the date of ``like``; libraries may be executed."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, value in contents.items():
            member = zipfile.ZipInfo(name, like.date_time)
            member.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(member, value)


def audit(wheel: Path) -> None:
    """Fails unless ``auditwheel`` finds that a system with glibc 2.28 has all that it needs."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    found = re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", told["overall_tag"])
    if found is None or (int(found[1]), int(found[2])) > NEWEST_GLIBC or told["external_libs"]:
        raise SystemExit(f"{wheel.name}: {told['overall_tag']} by auditwheel, for {told}")


def release(built: Path, build: Path, local: str) -> list[Path]:
    """Replaces a wheel by those of a release.

    Args:
        built: The wheel, with the module of the interpreter that built it.
        build: The folder of the build, with the modules of other interpreters.
        local: What the version says after a ``+``, or nothing.
    """
    with zipfile.ZipFile(built) as wheel:
        like = wheel.infolist()[0]
        contents = {name: wheel.read(name) for name in wheel.namelist()}
    built.unlink()
    name, version = built.name.split("-")[:2]
    if local:
        version = f"{version}+{local}"
        contents = with_version(contents, version)
    (own,) = (key for key in contents if MODULE.fullmatch(key))
    modules = {path.name: path.read_bytes() for path in build.glob("_core.*.so")}
    modules[Path(own).name] = contents[own]
    made = []
    for module, code in sorted(modules.items()):
        path = built.with_name(f"{name}-{version}-{'-'.join(interpreter(module))}-{PLATFORM}.whl")
        write(record(with_module(contents, module, code)), like, path)
        audit(path)
        made.append(path)
    return made
