"""How much memory a matrix takes in each :class:`planq.Layout`."""

from __future__ import annotations

from collections.abc import Sequence

from planq.dtypes import parse_member
from planq.ops.outlier.transform_layout import TransformLayoutDescriptor
from planq.ops.outlier.vocabulary import Layout

__all__ = ["buffer_shape"]


def buffer_shape(shape: Sequence[int], layout: Layout | str) -> tuple[int, ...]:
    """The shape of the tensor that holds a matrix in a layout, padding included.

    Args:
        shape: The shape of the matrix: columns are the last axis, rows all axes before it.
        layout: A member of Layout, or its name.

    Returns:
        ``shape`` itself for ROW; for R rows and C columns (C, R) for COL, (R, ceil32(C)) for COL32,
        (ceil8(R), ceil32(C)) for COL_TURING and (ceil32(R), ceil32(C)) for COL_AMPERE.

    Raises:
        DescriptorError: The shape has fewer than two axes, or there is no such layout.
    """
    # The operator that writes the layouts is the single source of their shapes.
    parsed = parse_member(Layout, layout, "layout")
    desc = TransformLayoutDescriptor(shape=tuple(shape), to_layout=parsed)
    return tuple(desc.operands()["output"].shape)
