"""Runs ``assembled.py COMPILER ARGUMENT...``, and fails where ptxas slows a kernel down.

Where it cannot keep products of ``wgmma`` under way, or give a warp the registers that it asked
for, ptxas serialises them and says so in a line that no option makes an error. The kernel would be
right and several times slower. Builds whose kernels are not optimized run no ptxas.
"""

from __future__ import annotations

import re
import subprocess
import sys

# C7508 to C7519 and their like: lines about wgmma and setmaxnreg.
SLOWED = re.compile(r"^ptxas .*\(C75\d\d\).*$", re.MULTILINE)


def main(command: list[str]) -> int:
    """Run the command; its exit status, or 1 where ptxas mentions a slowed kernel."""
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(done.stderr)
    if done.returncode == 0 and SLOWED.search(done.stderr):
        sys.stderr.write("error: ptxas serialises products that were written to overlap\n")
        return 1
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
