"""Runs programs that were compiled for another processor, and compares what they compute.

``check.py FOLDER EVERY RUNNER...``: FOLDER has the programs of this project, ``digests`` and
``engine/engine``, and RUNNER is what runs them, such as ``qemu-aarch64 -L /usr/aarch64-linux-gnu``.
``digests`` runs one in EVERY of the cases whose digests GPUs recorded in ``planq/audit/golden``;
``engine`` quantizes a weight, with the digests that planq has on this machine. The exit status is 1
if anything differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from c.engine import digests, results, write_safetensors
from c.programs import run
from planq.audit.digests import recorded
from planq.audit.operators import OPERATORS, Case, all_cases, inputs_of
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array


def chosen(operator: str, every: int) -> list[Case]:
    """One in so many of an operator's recorded cases, and at least one."""
    return [case for case in all_cases(operator) if case.id in recorded()[operator]][::every]


def stored(operator: str, case: Case) -> bytes:
    """A case as the program reads it: lines, and the bytes of its tensors."""
    given: dict[str, Array] = inputs_of(case)
    descriptor = OPERATORS[operator].descriptor(case.problem).to_json()
    parts = [f"{case.id}\n{descriptor}\n{len(given)}\n".encode()]
    for tensor, values in given.items():
        parts += [f"{tensor} {values.nbytes}\n".encode(), values.tobytes()]
    return b"".join(parts)


def compare(folder: Path, every: int, runner: list[str]) -> list[str]:
    """Runs the cases, operator by operator; a line for each case with another digest."""
    wrong, count = [], 0
    path = folder / "cases"
    for operator, known in recorded().items():
        cases = {case.id: case for case in chosen(operator, every)}
        path.write_bytes(b"".join(stored(operator, case) for case in cases.values()))
        lines = run(*runner, folder / "digests", path).splitlines()
        found = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
        assert found.keys() == cases.keys(), f"{operator}: other cases ran"
        wrong += [f"{operator}: {name}" for name in cases if found[name] != known[name]]
        count += len(cases)
    path.unlink()
    print(f"{count} cases of {len(recorded())} operators, {len(wrong)} with other digests")
    return wrong


def compare_engine(folder: Path, runner: list[str]) -> list[str]:
    """Runs the engine; a line for each result that is not this machine's."""
    values = inputs.make("normal", (96, 300), "float32", 7)
    path = folder / "weight.safetensors"
    write_safetensors(path, "weight", values)
    known = digests(values)
    found = results(Path(runner[0]), *runner[1:], folder / "engine" / "engine", path, "weight")
    assert found.keys() == known.keys(), "engine: other results"
    wrong = [f"engine: {name}" for name in known if found[name] != known[name]]
    print(f"{len(known)} results of the engine, {len(wrong)} with other digests")
    return wrong


def main(folder: Path, every: int, runner: list[str]) -> int:
    """Run, compare and print; the exit status is 1 if anything differs."""
    wrong = compare_engine(folder, runner) + compare(folder, every, runner)
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
