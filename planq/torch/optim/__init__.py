"""Optimizers for torch on ``optimizer_step``: 8- or 32-bit state, all tensors in few launches.

Use them like those of ``torch.optim``::

    import planq.torch.optim

    optimizer = planq.torch.optim.AdamW8bit(model.parameters(), lr=1e-4)

Bits:
    They are those of the plans: the same on the host and on every GPU. A tensor's bits do not
    depend on the other tensors of a step. docs/numerics/optimizer.md has the formulas.

Options:
    Every optimizer takes the :class:`Options`: as arguments for all parameters, in a param group
    for its parameters, and by :meth:`Optimizer.override` for one parameter. They are parsed like
    fields of descriptors. An option that has no effect is refused by name.

Steps:
    Parameters of a group that share device, dtype and number of steps take a step together. The
    number of steps stays on the device, so that a captured graph trains. A learning rate that is a
    tensor is read when the graph runs; one that is a number is fixed in the graph. All groups are
    checked before the first parameter changes. Parameters and gradients may have any strides: if
    they are not contiguous, they are copied for a step.

Loss scaling:
    ``torch.amp.GradScaler`` passes its scale and its flag as tensors; nothing waits for the device.

Paging:
    With the ``Paged`` classes or the option ``paged``, states of parameters with 100,000 elements
    or more are managed memory: :class:`planq.memory.PagePool`. They move to the GPU before a step,
    the last ones first. State dicts hold them like any others.

States:
    ``state1`` to ``state3``, with ``absmax1`` to ``absmax3`` for 8-bit states. These are names of
    bitsandbytes; :meth:`Optimizer.load_state_dict` reads its state dicts. Adam and AdamW also read
    those of torch's Adam and AdamW.
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
