"""Golden digests: recorded when PLANQ_RECORD_GOLDEN names a file, compared otherwise.

One test, whose processes are its own, whatever number of workers runs the others.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from planq.audit import golden_files
from support import golden
from support.gpu import Cuda


@pytest.mark.xdist_group("golden")
def test_every_row_reproduces_the_recorded_digests() -> None:
    """Or records them. Kernels that take the same case must agree in either event."""
    content = golden_files.record(Cuda(0), torch.cuda.get_device_name(0))
    target = os.environ.get("PLANQ_RECORD_GOLDEN")
    if target:
        golden_files.write(Path(target), content)
    known = json.loads(Path(target).read_text()) if target else golden.latest()
    assert content["operators"] == known["operators"]
