"""bitsandbytes' functions on its CPU backend, imported without its warnings about GPUs."""

from __future__ import annotations

import logging
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from bitsandbytes import functional as bnb
    from bitsandbytes import optim
    from bitsandbytes.nn import Params4bit

    logging.disable(logging.NOTSET)

__all__ = ["Params4bit", "bnb", "optim"]
