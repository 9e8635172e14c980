"""Runs one fuzzer that is guided by coverage: ``run.py TARGET SECONDS``, or ``run.py --list``.

What it finds new goes to ``build/fuzz/corpus``, an input that breaks a promise to
``build/fuzz/TARGET-*``; ``run.py TARGET FILE|FOLDER...`` repeats some,
those of native readers under sanitizers.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

from fuzz import native
from support.hostile import Chaos

if TYPE_CHECKING:
    from collections.abc import Callable

CORPUS = Path(__file__).with_name("corpus")
OUTPUT = native.ROOT / "build" / "fuzz"
_LONGEST = 8192
# What marks cost and readers do not call: operators, references, and the rest of the audit.
_UNMARKED = ("planq.audit", "planq.ops", "planq.torch", "planq.distributed")
_MARKED = ("planq.audit.report",)


def _unmarked() -> list[str]:
    """The modules that are not instrumented."""
    (package,) = importlib.util.find_spec("planq").submodule_search_locations
    paths = (path.relative_to(Path(package).parent) for path in Path(package).rglob("*.py"))
    names = (".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths)
    return [name for name in names if name.startswith(_UNMARKED) and name not in _MARKED]


def _target(name: str) -> Callable[[bytes], bool]:
    if name in native.READERS:
        library = native.build(sanitized=False)
        native.guide(library, next(Path(atheris.__file__).parent.glob("core_with_libfuzzer*.so")))
        return _native(name, library)
    with atheris.instrument_imports(
        include=["planq"], exclude=_unmarked(), enable_loader_override=False
    ):
        from fuzz.targets import TARGETS
    return TARGETS[name]


def _native(name: str, library: Path) -> Callable[[bytes], bool]:
    answer, check = native.load(library, name), native.READERS[name]
    return lambda data: check(data, answer)


def _mutated(data: bytes, longest: int, seed: int) -> bytes:
    """Other bytes; where a part up to a NUL is JSON, half of the time other JSON in its place."""
    chaos = Chaos(seed)
    parts = data.split(b"\0")
    at = chaos.randrange(min(len(parts), 3))
    try:
        if chaos.random() < 0.5:
            raise ValueError
        tree = chaos.tampered(json.loads(parts[at]))
        parts[at] = json.dumps(tree, ensure_ascii=chaos.random() < 0.9).encode()
    except (ValueError, RecursionError):
        return bytes(atheris.Mutate(data, longest))
    made = b"\0".join(parts)
    return made if len(made) <= longest else bytes(atheris.Mutate(data, longest))


def _fuzz(name: str, seconds: str) -> None:
    """Fuzzes until the time is up, or something breaks, which ends the process."""
    found = OUTPUT / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    options = [
        *(f"-max_total_time={seconds}", f"-max_len={_LONGEST}", "-timeout=20"),
        *("-rss_limit_mb=3000", "-print_final_stats=1", "-use_value_profile=1"),
        f"-artifact_prefix={OUTPUT / name}-",
    ]
    folders = [str(found), str(CORPUS / name)]
    target = _target(name)

    def judge(data: bytes) -> None:
        target(data)

    atheris.Setup([sys.argv[0], *options, *folders], judge, custom_mutator=_mutated)
    atheris.Fuzz()


def _repeat(name: str, files: list[str]) -> None:
    """Runs some inputs once; those of a native reader under sanitizers, in a process of theirs."""
    if name in native.READERS and "libasan" not in os.environ.get("LD_PRELOAD", ""):
        environment = {
            **os.environ,
            "LD_PRELOAD": native.preloaded(),
            "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        command = [sys.executable, "-P", __file__, name, *files]
        native.build(sanitized=True)
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)
    library = native.BUILD / "sanitized" / "readers.so"
    target = _native(name, library) if name in native.READERS else _target(name)
    for place in map(Path, files):
        for file in sorted(place.iterdir()) if place.is_dir() else [place]:
            target(file.read_bytes())


def main() -> None:
    """Does what the arguments say; the exit status is not 0 if a promise broke."""
    if sys.argv[1:] == ["--list"]:
        sys.stdout.write("\n".join(sorted(each.name for each in CORPUS.iterdir())) + "\n")
        return
    name, *how = sys.argv[1:]
    if how[0].isdigit():
        _fuzz(name, how[0])
    else:
        _repeat(name, how)


if __name__ == "__main__":
    main()
