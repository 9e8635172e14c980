"""GPTQ: weights changed so that their codes err less in what a layer makes of its inputs.

Frantar et al., arXiv 2210.17323. Columns are quantized one after another, and what is lost in one
is made good in those that follow. Scales are those of the weight as it was, and columns come in
falling order of their inputs' energy: static groups and act-order, as the paper's own code calls
them. Codes stand in the file in the order of the weight.

**The formula.** X has the rows that the layer was fed, and n columns; ``H = X^T X``, as
`planq.checkpoint.layer_inputs` sums it. ``fl`` is one operation in IEEE float64. Columns are
renumbered: 0 is the one with the largest ``H_jj``; of equal ones the left one comes first.

First ``fl(0.01 * fl(sum of all H_jj / n))`` is added to every ``H_jj``; the sum is rounded once.
Then ``H = R R^T``, R upper triangular. For j from n - 1 down to 0::

    R_jj = fl(sqrt(H_jj))      R_ij = fl(H_ij / R_jj), i < j
    H_ik = fl(H_ik - fl(R_ij * R_kj)), i <= k < j

For a row w of the weight, with what is lost, ``e_k = fl(w_k - y_k)``, and for j from 0 up::

    s = 0;  s = fl(s + fl(R_kj * e_k)), k from 0 to j - 1
    c_j = T(fl(w_j + fl(s / R_jj)))

T rounds to the weight's type, to bfloat16 by way of float32. ``y_j`` is what the code of ``c_j``
restores, by the formulas of the operators `quantize` and `dequantize`.

The squared error of the row's outputs, and of the damping, is the sum over j of
``(R_0j e_0 + ... + R_jj e_j)^2``, and ``c_j`` makes term j least, given the columns before. The
paper says the same with the Cholesky factor of the inverse of H, which is the inverse of R,
transposed, and takes more work.

**The same bytes everywhere.** Every operation is elementwise, and every sum has the order of the
formula, whatever the sizes of the blocks below, which keep the numbers at hand in the cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import planq
from planq.checkpoint.groups import rounded
from planq.checkpoint.quality import decoded, widened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planq.executors import Bytes

Float64 = npt.NDArray[np.float64]

DAMPING = 0.01
# Columns that are done before the others learn of them, columns that learn at once, and rows.
_BLOCK, _TILE, _BAND = 32, 32, 512

_quietly = np.errstate(all="ignore")  # what overflows is found in the end


class Hessian:
    """The curvature of a layer's squared error, without the factor 2.

    Args:
        gram: ``X^T X``.

    Attributes:
        gram: The same.
    """

    def __init__(self, gram: Float64) -> None:
        self.gram = gram

    @cached_property
    def factor(self) -> Factor:
        """The triangle of the damped matrix."""
        diagonal = self.gram.diagonal()
        order = np.argsort(-diagonal, kind="stable")
        # From the last column to the first: a Cholesky factor of the matrix turned about.
        last_first = order[::-1]
        turned = self.gram[np.ix_(last_first, last_first)]
        turned.flat[:: len(order) + 1] += DAMPING * (math.fsum(diagonal) / len(order))
        _factorize(turned)
        return Factor(order, np.ascontiguousarray(np.triu(turned)[::-1, ::-1].T))


@dataclass(frozen=True, slots=True)
class Factor:
    """``R`` of the damped matrix.

    Attributes:
        order: The column of the weight that each column of R is of.
        upper: R; below its diagonal there are zeros.
    """

    order: npt.NDArray[np.intp]
    upper: Float64


def _factorize(a: Float64) -> None:
    """Puts U with ``U^T U = a`` in the place of the upper triangle.

    No pivot is negative: damping is far above what rounding can take away.
    """
    n = len(a)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        for j in range(start, stop):
            a[j, j] = math.sqrt(a[j, j])
            a[j, j + 1 :] /= a[j, j]
            _subtract_products(a, j, slice(j + 1, stop))
        for top in range(stop, n, _TILE):
            rows = slice(top, min(top + _TILE, n))
            for j in range(start, stop):
                _subtract_products(a, j, rows)


def _subtract_products(a: Float64, j: int, rows: slice) -> None:
    """Takes the products of row j from other rows, from the first of their columns on."""
    columns = slice(rows.start, None)
    a[rows, columns] -= a[j, rows, None] * a[j, columns]


@dataclass(frozen=True, slots=True)
class _Coder:
    """What the operators `quantize` and `dequantize` make of columns of a weight.

    Attributes:
        desc: The quantization.
        scale: The scales, a row for each group of the weight's columns.
        zero_point: The zero points, likewise, or 0.
    """

    desc: planq.QuantizeDescriptor
    scale: Float64
    zero_point: Float64

    def restored(self, values: Float64, column: int, rows: slice) -> Float64:
        """Returns what the codes of one column restore."""
        desc = self.desc
        group = column // desc.scope.size
        wide = np.float64 if desc.input_dtype is planq.DType.FLOAT64 else np.float32
        scale: npt.NDArray[Any] = self.scale[group, rows].astype(wide)
        zero_point = self.zero_point[group, rows]
        steps = np.rint(np.divide(values.astype(wide), scale)).astype(np.float64)
        steps[np.isnan(steps)] = 0.0
        steps = np.clip(steps + zero_point, desc.q_min, desc.q_max) - zero_point
        numbers = (steps.astype(wide) * scale).astype(np.float64)
        return widened(rounded(numbers, desc.input_dtype), desc.input_dtype)


@_quietly
def compensated(
    desc: planq.QuantizeDescriptor, values: Bytes, given: Mapping[str, Bytes], hessian: Hessian
) -> Bytes | None:
    """Returns the bytes of a weight whose codes GPTQ wants, in its own type.

    Args:
        desc: The quantization, in groups along a row.
        values: The bytes of the weight, all finite.
        given: The bytes of its scales and zero points, by operand.
        hessian: That of its inputs.

    Returns:
        The changed weight; None if one of its values overflows.
    """
    rows, columns = desc.shape
    if not rows * columns:
        return values
    factor = hessian.factor
    weight = decoded(values, desc.input_dtype, rows)
    scale = decoded(given["scale"], desc.scale_dtype, rows)
    zero_point = np.zeros_like(scale)
    if "zero_point" in given:
        zero_point = decoded(given["zero_point"], planq.DType.INT32, rows)
    coder = _Coder(desc, np.ascontiguousarray(scale.T), np.ascontiguousarray(zero_point.T))
    changed = np.empty_like(weight)
    for top in range(0, rows, _BAND):
        band = slice(top, min(top + _BAND, rows))
        changed[band] = _band(coder, weight[band], band, factor)
    if not np.isfinite(changed).all():
        return None
    made: npt.NDArray[Any] = rounded(changed, desc.input_dtype)
    return made.reshape(rows * columns).view(np.uint8)


def _band(coder: _Coder, weight: Float64, rows: slice, factor: Factor) -> Float64:
    """Returns some rows of the changed weight."""
    upper, n = factor.upper, len(factor.order)
    values = np.ascontiguousarray(weight.T[factor.order])  # a row is a column of the weight
    lost, sums = np.empty_like(values), np.zeros_like(values)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        for j in range(start, stop):
            dtype = coder.desc.input_dtype
            changed = widened(rounded(values[j] + sums[j] / upper[j, j], dtype), dtype)
            lost[j] = values[j] - coder.restored(changed, int(factor.order[j]), rows)
            values[j] = changed
            sums[j + 1 : stop] += upper[j, j + 1 : stop, None] * lost[j]
        for first in range(stop, n, _TILE):
            tile = slice(first, min(first + _TILE, n))
            for j in range(start, stop):
                sums[tile] += upper[j, tile, None] * lost[j]
    found = np.empty_like(weight)
    found[:, factor.order] = values.T
    return found
