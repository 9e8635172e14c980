"""Lists what each translation unit of a build took, from ninja's own log.

    python3 benchmarks/build_times.py build/dev/.ninja_log [--json PATH --architectures 80-real]

Times are wall clock, beside the other units that were compiled at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Final

from harness.native.native import processor_name

LIMIT_S: Final = 60.0


def unit_seconds(log: str) -> dict[str, float]:
    """Seconds by translation unit, the slowest first; of each the last time that it was compiled.

    Raises:
        ValueError: A line has not the five fields of a ninja log.
    """
    seconds: dict[str, float] = {}
    for number, line in enumerate(log.splitlines(), 1):
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 5 or not (fields[0].isdecimal() and fields[1].isdecimal()):
            raise ValueError(f"line {number}: expected begin, end, mtime, output, command: {line}")
        if fields[3].endswith(".o"):
            seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return dict(sorted(seconds.items(), key=lambda unit: (-unit[1], unit[0])))


def report(seconds: dict[str, float]) -> str:
    """The table, the sum, and the units above the limit."""
    lines = [f"{time:>8.1f}  {unit}" for unit, time in seconds.items()]
    above = [unit for unit, time in seconds.items() if time > LIMIT_S]
    lines.append(f"{sum(seconds.values()):>8.1f}  s, the sum of {len(seconds)} units")
    lines.append(f"{len(above):>8}  above {LIMIT_S:.0f} s: {', '.join(above) or 'none'}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="List seconds per translation unit.")
    parser.add_argument("log", type=Path)
    parser.add_argument("--json", type=Path, metavar="PATH")
    parser.add_argument("--architectures", default="", help="as CUDAARCHS had them")
    arguments = parser.parse_args()
    try:
        seconds = unit_seconds(arguments.log.read_text())
    except (OSError, ValueError) as error:
        parser.error(f"{arguments.log}: {error}")
    print(report(seconds))
    if arguments.json:
        content = {
            "machine": {"processor": processor_name(), "cores": os.cpu_count()},
            "architectures": arguments.architectures.replace(";", ",").split(","),
            "units": seconds,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
