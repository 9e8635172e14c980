"""benchmarks/build_times.py counts each translation unit once, with its last time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "build_times.py"
LOG = """# ninja log v7
0\t90000\t1\ta.cpp.o\tff
5\t70505\t1\tb.cu.o\tff
7\t1307\t2\ta.cpp.o\tff
9\t99\t2\t_core.so\tff
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the script as a user does."""
    # The script imports its neighbours from its own folder, which a safe path leaves out.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_units_are_listed_and_recorded_slowest_first(tmp_path: Path) -> None:
    """Linked files are no units, and a unit that was compiled again counts once."""
    log, record = tmp_path / "log", tmp_path / "new" / "record.json"
    log.write_text(LOG)
    done = run(log, "--json", record, "--architectures", "80-real;90-real")
    assert (done.returncode, done.stderr) == (0, "")
    assert [" ".join(line.split()) for line in done.stdout.splitlines()] == [
        "70.5 b.cu.o",
        "1.3 a.cpp.o",
        "71.8 s, the sum of 2 units",
        "1 above 60 s: b.cu.o",
    ]
    content = json.loads(record.read_text())
    assert list(content["units"].items()) == [("b.cu.o", 70.5), ("a.cpp.o", 1.3)]
    assert content["architectures"] == ["80-real", "90-real"]


def test_another_file_is_refused(tmp_path: Path) -> None:
    """With the line that is none of ninja's."""
    log = tmp_path / "log"
    log.write_text("# ninja log v7\nno log\n")
    done = run(log)
    assert done.returncode == 2
    assert "line 2: expected begin, end, mtime, output, command: no log" in done.stderr
