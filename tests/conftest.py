"""What every run of the tests reports at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says where the recorded digests are of other kernels than these."""
    from support import golden

    if problem := golden.unrecorded():
        terminalreporter.write_line(f"release: {problem}", yellow=True)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch's threads take longer to wake than small networks take to run."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
