"""What every run of the tests reports at its end."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says where the recorded digests are of other kernels than these."""
    from support import golden

    if problem := golden.unrecorded():
        terminalreporter.write_line(f"release: {problem}", yellow=True)
