"""Logs one CSV line per event under ``PLANQ_VERBOSE=select,run``, before the launch.

Lines go to ``logging.getLogger("planq")``: ``planq,<event>,<sku>,<device>,<descriptor as JSON>``.
When off, it costs a comparison in ``select`` and nothing in ``run``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from planq import _core
from planq.dtypes import Backend

if TYPE_CHECKING:
    from planq.plan import Plan

_EVENTS: Final = frozenset(filter(None, os.environ.get("PLANQ_VERBOSE", "").split(",")))


def _log(event: str, plan: Plan) -> None:
    import csv
    import io
    import logging

    line = io.StringIO()
    device = plan.device
    where = "host" if device.backend is Backend.HOST else f"cuda:{device.index}"
    fields = ["planq", event, plan.sku, where, plan.descriptor.to_json()]
    csv.writer(line, lineterminator="").writerow(fields)
    logging.getLogger("planq").info(line.getvalue())


def log_select(plan: Plan) -> None:
    """Logs a selection, if ``select`` events are on."""
    if "select" in _EVENTS:
        _log("select", plan)


def install() -> None:
    """Turns on what ``PLANQ_VERBOSE`` asks for; called once on import."""
    if not _EVENTS:
        return
    import logging

    logger = logging.getLogger("planq")
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    if "run" in _EVENTS:
        _core.set_verbose_hook(_log)
