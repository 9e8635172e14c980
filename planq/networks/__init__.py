"""Whole networks of plans, on a host and on a GPU, with the same bits.

:mod:`planq.networks.machine` says where a network runs.
"""

from __future__ import annotations

from planq.networks.machine import Machine, machine_of, room

__all__ = ["Machine", "machine_of", "room"]
