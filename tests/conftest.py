"""What every run of the tests reports at its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says where the recorded digests are of other kernels than these; what fuzzers came to."""
    from support import golden
    from support.fuzz import tally

    if problem := golden.unrecorded():
        terminalreporter.write_line(f"release: {problem}", yellow=True)
    if not os.environ.get("PLANQ_FUZZ"):
        return
    found = tally.gathered(fuzzed(terminalreporter))
    for line in tally.lines(found):
        terminalreporter.write_line(line)
    for name in tally.unreached(found):
        terminalreporter.write_line(f"never reached: {name}", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A long run of the fuzzers that leaves a kernel out has failed."""
    from support.fuzz import tally

    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("PLANQ_FUZZ") or reporter is None or session.exitstatus:
        return
    if tally.unreached(tally.gathered(fuzzed(reporter))):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def fuzzed(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    """The reports of all tests that ran."""
    return [r for outcome in ("passed", "failed") for r in reporter.stats.get(outcome, ())]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch's threads take longer to wake than small networks take to run."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
