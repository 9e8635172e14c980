"""The gguf family as torch operations, for the types that are measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

import planq
from harness.formulas.segments import Operands, wide

Blocks = torch.Tensor  # bytes, of a block in each row
STEP, SPAN = 32, 256  # activations that share a scale; elements of a sum of its own


@dataclass(frozen=True, slots=True)
class Decoded:
    """What elements are made of: codes by block and sub-block, and what sub-blocks share."""

    codes: torch.Tensor
    scale: torch.Tensor
    minimum: torch.Tensor | None = None

    def values(self) -> torch.Tensor:
        """The elements of each block."""
        product = self.scale[:, :, None] * self.codes
        return (product if self.minimum is None else product + self.minimum[:, :, None]).flatten(1)


def _half(blocks: Blocks, at: int) -> torch.Tensor:
    """A float16 number of each block."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _signed(part: Blocks) -> torch.Tensor:
    """Bytes as signed numbers."""
    return part.contiguous().view(torch.int8).float()


def _nibbles(part: Blocks, group: int) -> torch.Tensor:
    """Codes of 4 bits: low nibbles of so many bytes, then their high ones, and so on."""
    groups = part.unflatten(1, (-1, group))
    return torch.cat([groups & 15, groups >> 4], 2).flatten(1)


def _q4_0(blocks: Blocks) -> Decoded:
    return Decoded((_nibbles(blocks[:, 2:], 16).float() - 8)[:, None], _half(blocks, 0))


def _q8_0(blocks: Blocks) -> Decoded:
    return Decoded(_signed(blocks[:, 2:])[:, None], _half(blocks, 0))


def _q4_k(blocks: Blocks) -> Decoded:
    low, middle, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale = torch.cat([low & 63, (high & 15) + 16 * (low >> 6)], 1).float()
    minimum = torch.cat([middle & 63, (high >> 4) + 16 * (middle >> 6)], 1).float()
    codes = _nibbles(blocks[:, 16:], 32).unflatten(1, (8, 32)).float()
    return Decoded(codes, _half(blocks, 0) * scale, -(_half(blocks, 2) * minimum))


def _q6_k(blocks: Blocks) -> Decoded:
    low = _nibbles(blocks[:, :128], 64)
    pairs = blocks[:, 128:192].unflatten(1, (2, 32))
    high = torch.cat([pairs >> shift & 3 for shift in (0, 2, 4, 6)], 2).flatten(1)
    codes = (low + 16 * high).float() - 32
    return Decoded(codes.unflatten(1, (16, 16)), _half(blocks, 208) * _signed(blocks[:, 192:208]))


_TYPES: Final[dict[str, tuple[int, Callable[[Blocks], Decoded]]]] = {
    "q4_0": (18, _q4_0),
    "q8_0": (34, _q8_0),
    "q4_k": (144, _q4_k),
    "q6_k": (210, _q6_k),
}


def decoded(desc: Any, blocks: torch.Tensor) -> Decoded:
    """The blocks of a tensor, one after another.

    Raises:
        ValueError: A type that is not measured.
    """
    if desc.type.value not in _TYPES:
        raise ValueError(f"no torch formula for {desc}")
    nbytes, decode = _TYPES[desc.type.value]
    return decode(blocks.reshape(-1, nbytes))


def weight(desc: Any, blocks: torch.Tensor) -> torch.Tensor:
    """The weight of a layer in float32."""
    return decoded(desc, blocks).values().view(desc.weight_shape)


class Dequantize:
    """Blocks to numbers, all of them or rows by index."""

    def __init__(self, desc: Any) -> None:
        if desc.type.value not in _TYPES:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc
        self.dtype = getattr(torch, desc.output_dtype.value)

    def __call__(self, given: Operands) -> tuple[torch.Tensor, ...]:
        """The numbers, with the axes of the bytes; with an index also how many name no row."""
        if "index" not in given:
            return (self._numbers(given["input"]),)
        index = given["index"]
        outside = (index < 0) | (index >= len(given["input"]))
        rows = self._numbers(given["input"][index.masked_fill(outside, 0)])
        return rows.masked_fill(outside[..., None], 0), outside.sum().view(1)

    def _numbers(self, blocks: Blocks) -> torch.Tensor:
        values = decoded(self.desc, blocks).values()
        return values.to(self.dtype).view(*blocks.shape[:-1], -1)


def _chain(terms: torch.Tensor) -> torch.Tensor:
    """Sums of rows, element after element, in a column."""
    total = terms[:, :1].clone()
    for e in range(1, terms.shape[1]):
        total += terms[:, e : e + 1]
    return total


def _peak(x: torch.Tensor) -> torch.Tensor:
    """The first element of largest magnitude of each row, in a column."""
    return x.gather(1, x.abs().argmax(1, keepdim=True))


def _over(number: float | torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One division; torch's own of a number multiplies it by the inverse."""
    return torch.as_tensor(number, dtype=x.dtype, device=x.device).expand_as(x) / x


def _inverse(scale: torch.Tensor) -> torch.Tensor:
    return torch.where(scale == 0, 0.0, 1 / scale)


def _bytes(numbers: torch.Tensor, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return numbers.to(dtype).view(torch.uint8)


def _halves(codes: torch.Tensor, group: int) -> torch.Tensor:
    """Runs of twice so many codes of 4 bits, the first half in the low nibbles."""
    runs = codes.to(torch.uint8).view(len(codes), -1, 2, group)
    return (runs[:, :, 0] | runs[:, :, 1] << 4).flatten(1)


def _to_q4_0(x: torch.Tensor) -> Blocks:
    scale = _peak(x) / -8
    codes = (x * _inverse(scale) + 8.5).clamp(0, 15).trunc()
    return torch.cat([_bytes(scale), _halves(codes, 16)], 1)


def _to_q8_0(x: torch.Tensor) -> Blocks:
    scale = x.abs().amax(1, keepdim=True) / 127
    codes = x * _inverse(scale)
    whole = codes.trunc()
    codes = torch.where((codes - whole).abs() >= 0.5, whole + codes.sign(), whole)
    return torch.cat([_bytes(scale), _bytes(codes, torch.int8)], 1)


def _search(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Scales, minima and codes of sub-blocks of Q4_K, which are rows."""
    root = (_chain(x * x) / 32).double().sqrt().float()  # that of float32 is not always the nearest
    w = root + x.abs()
    sum_w, sum_x = _chain(w), _chain(w * x)
    low, high = x.amin(1, keepdim=True).clamp(max=0), x.amax(1, keepdim=True)

    def coded(i: torch.Tensor) -> torch.Tensor:
        return (i * (x - low)).round().clamp(0, 15).nan_to_num(0)

    def error(scale: torch.Tensor, low: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        off = scale * codes + low - x
        return _chain(w * (off * off))

    i = _over(15, high - low)
    scale, codes = 1 / i, coded(i)
    best = error(scale, low, codes)
    tenth = torch.tensor(0.1)
    for t in range(21):
        other = coded(_over(-1 + tenth * t + 15, high - low))
        one, two, cross = _chain(w * other), _chain(w * other * other), _chain(w * other * x)
        det = sum_w * two - one * one
        s, m = (sum_w * cross - sum_x * one) / det, (two * sum_x - one * cross) / det
        s, m = torch.where(m > 0, cross / two, s), m.clamp(max=0)
        found = error(s, m, other)
        take = (det > 0) & (found < best)
        scale, low = torch.where(take, s, scale), torch.where(take, m, low)
        codes, best = torch.where(take, other, codes), torch.where(take, found, best)
    return scale, -low, codes


def _six_bits(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eight numbers of a block as integers up to 63, and their scale as it is stored."""
    most = values.amax(1, keepdim=True).clamp(min=0) + 0.0  # no -0
    whole = (_over(63, most) * values).round().clamp(0, 63).nan_to_num(0)
    return whole, (most / 63).half()


def _to_q4_k(x: torch.Tensor) -> Blocks:
    scale, minimum, codes = _search(x.view(-1, 32))
    (scales, d), (minima, least) = _six_bits(scale.view(-1, 8)), _six_bits(minimum.view(-1, 8))
    step, lift = (d.float() * scales)[:, :, None], (least.float() * minima)[:, :, None]
    again = ((x.view(-1, 8, 32) + lift) / step).round().clamp(0, 15)
    codes = torch.where(step == 0, codes.view(-1, 8, 32), again).flatten(1)
    s, m = scales.to(torch.uint8), minima.to(torch.uint8)
    parts = [s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6]
    parts.append(s[:, 4:] & 15 | (m[:, 4:] & 15) << 4)
    return torch.cat([_bytes(d), _bytes(least), *parts, _halves(codes, 32)], 1)


def _symmetric(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and codes of sub-blocks of Q6_K, which are rows."""
    peak, w, tenth = _peak(x), x * x, torch.tensor(0.1)

    def fitted(t: int) -> tuple[torch.Tensor, ...]:
        codes = (_over(-(32 + tenth * t), peak) * x).round().clamp(-32, 31).nan_to_num(0)
        return codes, _chain(w * x * codes), _chain(w * codes * codes)

    codes, a, b = fitted(0)
    scale = a / b
    best = scale * a
    for t in (*range(-9, 0), *range(1, 10)):
        other, a, b = fitted(t)
        take = (b > 0) & (a * a > best * b)
        scale, codes = torch.where(take, a / b, scale), torch.where(take, other, codes)
        best = torch.where(take, scale * a, best)
    tiny = peak.abs() < 1e-15
    return torch.where(tiny, 0.0, scale), torch.where(tiny, -32, codes)


def _to_q6_k(x: torch.Tensor) -> Blocks:
    scale, codes = _symmetric(x.view(-1, 16))
    scale = scale.view(-1, 16)
    peak = _peak(scale)
    i = _over(-128, peak)
    d = (1 / i).half()
    whole = (i * scale).round().clamp(-128, 127)
    step = (d.float() * whole)[:, :, None]
    again = (x.view(-1, 16, 16) / step).round().clamp(-32, 31)
    codes = torch.where(step == 0, codes.view(-1, 16, 16), again).flatten(1)
    codes = (codes + 32).to(torch.uint8)
    pairs = (codes >> 4).view(-1, 2, 4, 32)
    high = pairs[:, :, 0] | pairs[:, :, 1] << 2 | pairs[:, :, 2] << 4 | pairs[:, :, 3] << 6
    parts = [_halves(codes & 15, 64), high.flatten(1), _bytes(whole, torch.int8), _bytes(d)]
    return torch.where(peak.abs() < 1e-15, 0, torch.cat(parts, 1)).to(torch.uint8)


_BLOCKS: Final[dict[str, tuple[int, Callable[[torch.Tensor], Blocks]]]] = {
    "q4_0": (32, _to_q4_0),
    "q8_0": (32, _to_q8_0),
    "q4_k": (256, _to_q4_k),
    "q6_k": (256, _to_q6_k),
}


class Quantize:
    """Finite numbers to blocks."""

    def __init__(self, desc: Any) -> None:
        if desc.type.value not in _BLOCKS:
            raise ValueError(f"no torch formula for {desc}")
        self.elements, self.blocks = _BLOCKS[desc.type.value]

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The bytes, with the axes of the numbers."""
        x = given["input"]
        blocks = self.blocks(x.float().view(-1, self.elements))
        return (blocks.view(*x.shape[:-1], -1),)


def _fused(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """`a * b + c` of finite float32, rounded once: float64 has the product, and the sum to odd."""
    product, addend = a.double() * b.double(), c.double()
    total = product + addend
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    even = total.view(torch.int64) % 2 == 0
    nearer = torch.nextafter(total, torch.copysign(torch.full_like(total, torch.inf), lost))
    return torch.where((lost != 0) & even, nearer, total).float()


class Linear:
    """A layer whose weights are blocks: sums of sub-blocks are exact, the rest has an order."""

    def __init__(self, desc: Any) -> None:
        if desc.type.value not in _TYPES or len(desc.input_shape) != 2:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc
        self.dtype = getattr(torch, desc.output_dtype.value)

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The output."""
        t = self._sums(*self._codes(given), decoded(self.desc, given["weight"]))
        for name in ("bias", "residual"):
            if name in given:
                t = t + given[name].float()
        return (t.to(self.dtype),)

    def _codes(self, given: Operands) -> tuple[torch.Tensor, torch.Tensor]:
        """Those of the activations, and their scales, by 32."""
        x = given["input"].unflatten(1, (-1, STEP))
        if self.desc.input_dtype is planq.DType.INT8:
            return x.double(), given["input_scale"]
        x = wide(x)
        largest = x.abs().amax(2, keepdim=True)
        most = torch.full_like(largest, 127)
        codes = torch.where(largest == 0, 0.0, torch.round(x * (most / largest)))
        scale = (largest / most).clamp(min=torch.finfo(torch.float32).tiny)
        return codes.double(), torch.where(largest == 0, 1.0, scale)[:, :, 0]

    def _sums(self, x: torch.Tensor, d: torch.Tensor, weight: Decoded) -> torch.Tensor:
        """In float32; the exact ones in float64."""
        n, k = self.desc.weight_shape
        g = weight.codes.shape[2]
        codes, scale = weight.codes.reshape(n, k // g, g).double(), weight.scale.reshape(n, -1)
        minimum = None if weight.minimum is None else weight.minimum.reshape(n, -1)
        x = x.reshape(len(x), k // g, g)
        t = torch.zeros(len(x), n, device=x.device)
        for span in range(0, k, SPAN):
            a = torch.zeros_like(t)
            for i in range(span // g, min(span + SPAN, k) // g):
                own = d[:, i * g // STEP, None]
                a = _fused(scale[:, i] * own, x[:, i] @ codes[:, i].t(), a)
                if minimum is not None:
                    a = _fused(minimum[None, :, i], own * x[:, i].sum(1, keepdim=True).float(), a)
            t = t + a
        return t
