"""The pictures of docs/performance.md and README."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from drawing import Axis, Picture, decades, frame, legend
from records import FRACTIONS, Case

PEERS = {
    "compile": "torch.compile",
    "eager": "torch, eager",
    "torch_fake_quantize": "torch's fake quantize",
    "torch_conversions": "torch's conversion",
    "bitsandbytes": "bitsandbytes",
    "two_pass": "a plain two-pass kernel",
    "int_mm": "cuBLAS, int8",
    "int_mm_scaled": "cuBLAS, then scales",
    "scaled_mm": "cuBLAS, fp8 instead",
    "scaled_mm_accurate": "cuBLAS, fp8",
    "torch_linear": "cuBLAS, bfloat16",
    "dequantize_linear": "dequantize, then cuBLAS",
    "tinygemm": "torch's tinygemm",
    "torchao": "torchao",
    "cutlass": "CUTLASS",
    "torch_functions": "torch's functions",
    "vllm_compiled": "vLLM's formula, compiled",
    "triton": "Triton",
}
# What README shows: cases that name a peer, and their words.
SHOWN = {
    "A1/token/bf16_s8/16384x8192": "dynamic_range_quantize per token, bfloat16 to int8",
    "C2/blockwise_quantize/nf4-64/bf16_u4/28672x8192": "NF4 in blocks of 64, from bfloat16",
    "D1/linear_4bit/nf4-64/bf16_bf16/16x28672x8192": "linear_4bit, NF4 weights, BIT_EXACT",
    "D2/matmul/bf16_bf16/8192x8192x8192": "matmul, bfloat16, BIT_EXACT",
    "D2/linear_fp8/e4m3_bf16/4096x8192x8192": "linear_fp8, e4m3 codes, BIT_EXACT",
    "E1/linear_w8a8/s8_bf16/8192x8192x8192": "linear_w8a8, int8 codes under scales, BIT_EXACT",
    "E2/linear_llm_int8/outliers64/s8_f16/128x8192x8192": "linear_llm_int8, 64 columns of outliers",
}
UNSHOWN = ("two_pass", "dequantize_linear")
"""Peers that are nobody's way of doing it."""
HUES = {"compile": 1, "bitsandbytes": 3}
PERCENT = [(share / 100, f"{share} %") for share in range(0, 101, 20)]


def bars(case: Case) -> list[tuple[str, float, float, int]]:
    """Who, share of the ceiling, microseconds and colour: planq, and its peers in the same run."""
    assert case.beside is not None
    entry = case.beside
    measures = entry["measures"]
    reached = measures[next(kind for kind in FRACTIONS if kind in measures)] * entry["us"]
    found = [("planq", reached / entry["again_us"], entry["again_us"], 0)]
    for name in PEERS:
        us = entry["peers"].get(name, {}).get("us")
        if us is not None and name not in UNSHOWN:
            found.append((PEERS[name], reached / us, us, HUES.get(name, 2)))
    return found


def overview(cases: Sequence[Case]) -> Picture:
    """Planq beside its peers, as shares of the ceiling."""
    found = [(case, bars(case)) for case in cases]
    height = 66 + sum(34 + 20 * len(rows) for _, rows in found)
    picture = Picture(820, height, "Share of what the GPU allows: planq and other libraries")
    picture.text(20, 26, "Share of what the GPU allows, higher is better", "head")
    left, right = 170, 640
    x = Axis(0, 1.06, left, right + 0.06 * (right - left), PERCENT)
    y = 32.0
    for case, rows in found:
        y += 22
        picture.text(20, y, f"{SHOWN[case.name]}, {case.shape}")
        for share, _ in x.ticks:
            style = "mark" if share == 1 else "grid"
            picture.line(x.place(share), y + 5, x.place(share), y + 6 + 20 * len(rows), style)
        for who, share, us, colour in rows:
            y += 20
            picture.bar(left, y - 12, x.place(share) - left, 14, colour)
            picture.text(left - 8, y, who, "small", "end")
            words = f"{share:.0%}".replace("%", " %")
            picture.text(right + 36, y, f"{words}, {microseconds(us)} µs", "small")
        y += 12
    for share, words in x.ticks:
        picture.text(x.place(share), y + 12, words, "small", "middle")
    return picture


def microseconds(us: float) -> str:
    """Three digits or more."""
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 1000 else f"{us:.0f}"


def colours(names: Iterable[str]) -> dict[str, int]:
    """A colour for each name; from the sixth on they share the last."""
    return {name: min(index, 5) for index, name in enumerate(dict.fromkeys(names))}


def _legend(picture: Picture, hues: dict[str, int], y: float) -> None:
    names = [name for name, hue in hues.items() if hue < 5]
    rest = [name for name in hues if name not in names]
    legend(picture, [*names, *([" and ".join(rest)] if rest else [])], 80, y)


def fractions(title: str, cases: Sequence[Case]) -> Picture:
    """The fraction of the ceiling over what a case moves: a mark for each case."""
    picture = Picture(820, 330, f"{title}: fraction of the ceiling over megabytes moved")
    low = min(case.megabytes for case in cases) * 0.8
    high = max(case.megabytes for case in cases) * 1.25
    x = Axis(low, high, 70, 800, decades(low, high), logarithmic=True)
    top = max(1.1, *((case.fraction or 0) + 0.03 for case in cases))
    y = Axis(0, top, 250, 30, PERCENT)
    frame(picture, x, y, ("megabytes that a case moves", "of the ceiling"))
    picture.line(x.begin, y.place(1), x.end, y.place(1), "mark")
    hues = colours(case.group for case in cases)
    for case in cases:
        if case.fraction is not None:
            words = f"{case.name}: {case.fraction:.1%}"
            picture.mark(x.place(case.megabytes), y.place(case.fraction), hues[case.group], words)
    _legend(picture, hues, 316)
    return picture


def roofline(title: str, cases: Sequence[Case]) -> Picture:
    """The rate of products over operations a byte, and the roof where the machine's is known."""
    picture = Picture(820, 370, f"{title}: TOPS over operations for each byte")
    low = min(case.intensity for case in cases) * 0.8
    high = max(case.intensity for case in cases) * 1.25
    x = Axis(low, high, 70, 800, decades(low, high), logarithmic=True)
    roofs = [case.entry for case in cases if "peak_tops" in case.entry]
    peak = max((entry["peak_tops"] for entry in roofs), default=0.0)
    slowest = min(case.tops for case in cases) * 0.7
    fastest = max(peak, *(case.tops for case in cases)) * 1.3
    y = Axis(slowest, fastest, 290, 30, decades(slowest, fastest), logarithmic=True)
    frame(picture, x, y, ("operations for each byte that a case moves", "TOPS"))
    if roofs:
        _roof(picture, x, y, peak, max(entry["ceiling"]["gbps"] for entry in roofs) / 1e3)
    hues = colours(case.group for case in cases)
    for case in cases:
        words = f"{case.name}: {case.tops:.4g} TOPS, {microseconds(case.entry['us'])} µs"
        picture.mark(x.place(case.intensity), y.place(case.tops), hues[case.group], words)
    _legend(picture, hues, 356)
    return picture


def _roof(picture: Picture, x: Axis, y: Axis, peak: float, terabytes: float) -> None:
    """What the bytes allow at the fastest ceiling, up to the peak, and the peak from there on."""
    ridge = min(max(peak / terabytes, x.low), x.high)
    start = max(x.low, y.low / terabytes)
    ends = [(one, min(peak, one * terabytes)) for one in (start, ridge, x.high)]
    for (x1, y1), (x2, y2) in pairwise(ends):
        if x1 < x2:
            picture.line(x.place(x1), y.place(y1), x.place(x2), y.place(y2), "mark")


def latencies(cases: Sequence[Case]) -> Picture:
    """Microseconds of short cases over what they move."""
    picture = Picture(820, 370, "Microseconds of short cases over megabytes moved")
    low = min(case.megabytes for case in cases) * 0.8
    high = max(case.megabytes for case in cases) * 1.25
    slowest = max(float(case.entry["us"]) for case in cases)
    x = Axis(low, high, 70, 800, decades(low, high), logarithmic=True)
    ticks = [(us, f"{us} µs") for us in (1, 2, 5, 10, 20, 50, 100) if us <= slowest * 1.2]
    y = Axis(1, slowest * 1.2, 290, 30, ticks, logarithmic=True)
    frame(picture, x, y, ("megabytes that a case moves", "one launch"))
    hues = colours(case.group for case in cases)
    for case in cases:
        words = f"{case.name}: {microseconds(case.entry['us'])} µs"
        picture.mark(x.place(case.megabytes), y.place(case.entry["us"]), hues[case.group], words)
    _legend(picture, hues, 356)
    return picture


def speedups(cases: Sequence[Case]) -> Picture:
    """How many times as fast as each peer, a row for each operator and peer."""
    rows: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        for peer in case.speedups:
            rows.setdefault((case.operator, peer), []).append(case)
    values = [case.speedups[peer] for (_, peer), found in rows.items() for case in found]
    low, high = min(0.5, *values) * 0.9, max(values) * 1.2
    picture = Picture(820, 96 + 22 * len(rows), "How many times as fast as each peer planq is")
    x = Axis(low, high, 330, 800, [(1, "1 ×"), *_times(high)], logarithmic=True)
    y = Axis(0, len(rows), 36 + 22 * len(rows), 36, ())
    frame(picture, x, y, ("times as fast as the peer", ""))
    picture.line(x.place(1), y.begin, x.place(1), y.end, "mark")
    hues = colours(peer for _, peer in rows)
    for row, ((operator, peer), found) in enumerate(rows.items()):
        at = y.end + 22 * row + 11
        picture.text(322, at + 4, f"{operator}, {PEERS.get(peer, peer)}", "small", "end")
        for case in found:
            words = f"{case.name}: {case.speedups[peer]:.2f} ×"
            picture.mark(x.place(case.speedups[peer]), at, hues[peer], words)
    return picture


def _times(high: float) -> list[tuple[float, str]]:
    return [(value, f"{value} ×") for value in (2, 5, 10, 20, 50, 100, 200) if value <= high]
