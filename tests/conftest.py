"""What every run of the tests reports at its end."""

from __future__ import annotations

from pytest import TerminalReporter  # noqa: PT013


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Says where the recorded digests are of other kernels than these."""
    from support import golden

    if problem := golden.unrecorded():
        terminalreporter.write_line(f"release: {problem}", yellow=True)
