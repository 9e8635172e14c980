"""Optimizers for torch over ``optimizer_step``: state of 8 or 32 bits, all tensors in few launches.

Use them as those of ``torch.optim``::

    import planq.torch.optim

    optimizer = planq.torch.optim.AdamW8bit(model.parameters(), lr=1e-4)

Bits:
    Those of the plans: the same on the host and on every GPU, whatever tensors a step has beside
    one. docs/numerics/optimizer.md has the formulas.

Options:
    Every optimizer takes the :class:`Options`, for all parameters, in a param group for those of
    the group, and by :meth:`Optimizer.override` for one parameter. They are read as descriptors
    read them; one that means nothing is refused by name.

Steps:
    Parameters of a group that have one device, dtype and number of steps take a step together. The
    number stays on the device, so that a captured graph trains; a learning rate that is a tensor is
    read when the graph runs, one that is a number is part of it. All groups are checked before the
    first parameter changes. Parameters and gradients may have any strides: they are copied for a
    step where they are not contiguous.

Loss scaling:
    ``torch.amp.GradScaler`` hands its scale and its flag on: neither waits for the device.

Paging:
    States of the ``Paged`` classes, and those with the option ``paged``, are managed memory where
    parameters have 100,000 elements or more: :class:`planq.memory.PagePool`. They move to the GPU
    ahead of a step, the last ones first. State dicts hold them as any others.

States:
    ``state1`` to ``state3``, with ``absmax1`` to ``absmax3`` where they have 8 bits: names of
    bitsandbytes, whose state dicts :meth:`Optimizer.load_state_dict` reads, as Adam and AdamW read
    those of torch's.
"""

from __future__ import annotations

from planq.torch.optim._algorithms import (
    LAMB,
    LARS,
    SGD,
    Adagrad,
    Adagrad8bit,
    Adam,
    Adam8bit,
    AdamW,
    AdamW8bit,
    AdEMAMix,
    AdEMAMix8bit,
    LAMB8bit,
    LARS8bit,
    Lion,
    Lion8bit,
    PagedAdam,
    PagedAdam8bit,
    PagedAdamW,
    PagedAdamW8bit,
    PagedAdEMAMix,
    PagedAdEMAMix8bit,
    PagedLion,
    PagedLion8bit,
    RMSprop,
    RMSprop8bit,
    SGD8bit,
)
from planq.torch.optim._optimizer import Optimizer
from planq.torch.optim._options import Options

__all__ = [
    "LAMB",
    "LARS",
    "SGD",
    "AdEMAMix",
    "AdEMAMix8bit",
    "Adagrad",
    "Adagrad8bit",
    "Adam",
    "Adam8bit",
    "AdamW",
    "AdamW8bit",
    "LAMB8bit",
    "LARS8bit",
    "Lion",
    "Lion8bit",
    "Optimizer",
    "Options",
    "PagedAdEMAMix",
    "PagedAdEMAMix8bit",
    "PagedAdam",
    "PagedAdam8bit",
    "PagedAdamW",
    "PagedAdamW8bit",
    "PagedLion",
    "PagedLion8bit",
    "RMSprop",
    "RMSprop8bit",
    "SGD8bit",
]
