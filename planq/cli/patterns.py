"""Options that are regular expressions."""

from __future__ import annotations

import re
import warnings

from planq.cli.failure import CommandError


def compiled(option: str, include: str | None) -> re.Pattern[str] | None:
    """Returns the regular expression of an option; None if it was not given.

    Raises:
        CommandError: It is none.
    """
    if include is None:
        return None
    try:
        with warnings.catch_warnings():  # syntax that a later Python may read otherwise
            warnings.simplefilter("ignore")
            return re.compile(include)
    except RecursionError as error:
        raise CommandError(f"{option}: not a regular expression: it is too deep") from error
    except (re.error, OverflowError, ValueError) as error:  # too large repeat counts give others
        raise CommandError(f"{option}: not a regular expression: {error}") from error
