"""Elementary functions of the host for all 2^32 inputs: digests, and equal bits of all levels.

python tests/functions/exhaustive.py [--level LEVEL ...] [FUNCTION ...]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from planq.audit.every_input import RECORDED, Words, digest
from support.functions import HostLoops


def check(loops: HostLoops, levels: list[str], function: str) -> bool:
    """Digests the results of the widest level, and compares those of the others with them."""
    unequal = dict.fromkeys(levels[:-1], 0)

    def apply(words: Words) -> Words:
        results = loops.apply(levels[-1], function, words)
        for level in unequal:
            unequal[level] += int((loops.apply(level, function, words) != results).sum())
        return results

    right = digest(apply) == RECORDED[function]["sha256"]
    verdicts = [f"{levels[-1]}: digest {'right' if right else 'wrong'}"]
    verdicts += [f"{level}: {count} results differ" for level, count in unequal.items()]
    sys.stdout.write(f"{function:16} {', '.join(verdicts)}\n")
    sys.stdout.flush()
    return right and not any(unequal.values())


def main() -> int:
    """Says of each function what holds; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("functions", nargs="*", metavar="FUNCTION")
    parser.add_argument("--level", action="append", help="of the processor's; default: all")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        loops = HostLoops(Path(folder))
        levels = [each for each in loops.levels if not given.level or each in given.level]
        functions = given.functions or loops.functions
        if not levels or set(functions) - set(loops.functions):
            parser.error(f"levels: {' '.join(loops.levels)}; functions: {' '.join(RECORDED)}")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return (
                0 if all(list(pool.map(lambda each: check(loops, levels, each), functions))) else 1
            )


if __name__ == "__main__":
    sys.exit(main())
