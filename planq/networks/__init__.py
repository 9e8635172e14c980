"""Whole networks of plans, on a host and on a GPU, with the same bits.

:mod:`planq.networks.machine` says where a network runs, and :class:`Places` where its tensors lie.
"""

from __future__ import annotations

from planq.networks.machine import Machine, machine_of
from planq.networks.places import Places

__all__ = ["Machine", "Places", "machine_of"]
