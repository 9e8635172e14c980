"""Plots as SVG: few shapes, colours for light and dark pages, the same bytes every time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

# Six colours that people with any colour vision tell apart, on white and on black. Marks of
# different shapes say the same.
LIGHT = ("#0072b2", "#d55e00", "#00805e", "#a8508a", "#7a6400", "#4a4a4a")
DARK = ("#56b4e9", "#ff9350", "#2fcfa0", "#e8a2cb", "#f0e442", "#c8c8c8")
STYLE = (
    "text{font:13px system-ui,'DejaVu Sans',sans-serif;fill:#1c1c1c}.small{font-size:11px}"
    ".page{fill:#fff}"
    ".head{font-weight:600}.grid{stroke:#d8d8d8}.mark{stroke:#1c1c1c;stroke-dasharray:4 3}"
    "@media(prefers-color-scheme:dark){text{fill:#ececec}.page{fill:#16181c}"
    ".grid{stroke:#3a3d42}.mark{stroke:#ececec}DARK}"
)


@dataclass
class Picture:
    """An SVG picture in the making."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, style: str = "", anchor: str = "start") -> None:
        """Writes words whose baseline is at y."""
        kind = f' class="{style}"' if style else ""
        end = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{kind}{end}>{escape(words)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str = "grid") -> None:
        """Draws a straight line."""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'
        )

    def bar(self, x: float, y: float, width: float, height: float, colour: int) -> None:
        """Draws a bar."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'class="c{colour}"/>'
        )

    def mark(self, x: float, y: float, colour: int, words: str = "") -> None:
        """Draws a mark in the colour's shape, which says its words under the pointer."""
        r = 3.5
        shapes = (
            f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z",
            f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z",
            f"M{x:.1f} {y - r - 1:.1f}l{r + 1} {2 * r}h{-2 * r - 2}z",
            f"M{x:.1f} {y - r - 1:.1f}l{r + 1} {r + 1}l{-r - 1} {r + 1}l{-r - 1} {-r - 1}z",
            f"M{x:.1f} {y + r + 1:.1f}l{r + 1} {-2 * r}h{-2 * r - 2}z",
            f"M{x - 1:.1f} {y - r - 1:.1f}h2v{r}h{r}v2h{-r}v{r}h-2v{-r}h{-r}v-2h{r}z",
        )
        told = f"<title>{escape(words)}</title>" if words else ""
        self.parts.append(f'<path d="{shapes[colour]}" class="c{colour}">{told}</path>')

    def svg(self) -> str:
        """The file's text."""
        dark = "".join(f".c{i}{{fill:{colour}}}" for i, colour in enumerate(DARK))
        light = "".join(f".c{i}{{fill:{colour}}}" for i, colour in enumerate(LIGHT))
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img">',
            f"<title>{escape(self.title)}</title>",
            f"<style>{light}{STYLE.replace('DARK', dark)}</style>",
            f'<rect width="{self.width}" height="{self.height}" rx="6" class="page"/>',
            *self.parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Axis:
    """Values and where they lie, from one end to the other.

    Attributes:
        ticks: Values that are written at the axis, with their words.
    """

    low: float
    high: float
    begin: float
    end: float
    ticks: Sequence[tuple[float, str]]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where a value lies; those outside lie at an end."""
        scale = math.log if self.logarithmic else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin)


def decades(low: float, high: float, words: str = "{:g}") -> list[tuple[float, str]]:
    """Ticks at powers of ten."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [(10.0**power, words.format(10.0**power)) for power in range(first, last + 1)]


def frame(picture: Picture, x: Axis, y: Axis, names: tuple[str, str]) -> None:
    """Draws grid, ticks and names of both axes."""
    for value, words in x.ticks:
        picture.line(x.place(value), y.begin, x.place(value), y.end)
        picture.text(x.place(value), y.begin + 16, words, "small", "middle")
    for value, words in y.ticks:
        picture.line(x.begin, y.place(value), x.end, y.place(value))
        picture.text(x.begin - 8, y.place(value) + 4, words, "small", "end")
    picture.text((x.begin + x.end) / 2, y.begin + 34, names[0], "small", "middle")
    picture.text(x.begin - 48, y.end - 10, names[1], "small")


def legend(picture: Picture, names: Iterable[str], x: float, y: float) -> None:
    """Writes what the marks stand for, from left to right."""
    for colour, name in enumerate(names):
        picture.mark(x, y - 4, colour)
        picture.text(x + 10, y, name, "small")
        x += 30 + 6.6 * len(name)
