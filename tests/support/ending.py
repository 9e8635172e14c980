"""A section whose process ends: for processes that have to import it."""

from __future__ import annotations

import os

from planq.audit import sections


def end_at_fill(section: sections.Section, most: int | None) -> tuple[sections.Audited, ...]:
    """Ends the process where the section is fill's."""
    if section.operator == "fill":
        os._exit(3)
    return sections.audit_section(section, most)
