"""Draws the pictures of docs/bound.md: `python docs/building/pictures.py`, which writes docs/pictures/*.svg.

Every number in them is computed: bounds by `opassay.bound`, errors by torch and NumPy's long double.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import opassay

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
SEED = 0
BLUE, RED, GREY = "#1f5fa8", "#b3261e", "#666666"


def _text(x: float, y: float, words: str, *, anchor: str = "middle", fill: str = "#111111", size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{words}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str = GREY, width: float = 1.0) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{stroke}" stroke-width="{width:g}"/>'


def _picture(name: str, title: str, width: int, height: int, parts: Sequence[str]) -> None:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif">'
    )
    body = [f"<title>{title}</title>", f'<rect width="{width}" height="{height}" fill="#ffffff"/>', *parts]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.svg").write_text("\n".join([head, *body, "</svg>", ""]), encoding="utf-8")


def accept_set() -> None:
    """The float32 numbers around one element of a softmax: those that are accepted, and those that are not."""
    x = torch.tensor([0.25, 1.5, -0.75, 3.0])
    bound = opassay.bound(lambda rows: torch.softmax(rows, -1), x)
    centre, radius = float(bound.centre[1]), float(bound.radius[1])
    ulp = float(np.spacing(np.float32(centre)))
    low, high = (float(np.float32(centre + side * radius)) for side in (-1, 1))
    steps = round((high - low) / ulp) // 2 + 4
    middle = float(np.float32(centre))

    def at(value: float) -> float:
        return 350 + (value - middle) / ulp / steps * 320

    parts = [_line(20, 110, 680, 110)]
    for step in range(-steps, steps + 1):
        value = middle + step * ulp
        fill = BLUE if low <= value <= high else "#ffffff"
        parts.append(f'<circle cx="{at(value):.1f}" cy="110" r="5" fill="{fill}" stroke="{BLUE}"/>')
    parts += [
        _line(at(centre), 60, at(centre), 130, "#111111", 1.5),
        _text(at(centre), 50, f"exact value {centre:.10f}"),
        _line(at(centre - radius), 80, at(centre + radius), 80, BLUE, 2),
        _line(at(centre - radius), 74, at(centre - radius), 86, BLUE, 2),
        _line(at(centre + radius), 74, at(centre + radius), 86, BLUE, 2),
        _text(at(centre + radius), 70, f"bound: {radius / ulp:.2f} ulp to each side", anchor="end", fill=BLUE),
        _text(350, 155, "filled: float32 numbers that are accepted; empty: numbers that are a failure", fill=GREY),
    ]
    _picture("accept_set", "The accept set of one element of a softmax in float32", 700, 175, parts)


def sums() -> None:
    """Errors of two ways to sum, and the bound for any order, against the number of terms."""
    rng = np.random.default_rng(SEED)
    lengths = [2**k for k in range(2, 15)]
    rows: dict[str, list[float]] = {"bound for any order": [], "one after the other": [], "torch.sum": []}
    for length in lengths:
        terms = rng.standard_normal((16, length)).astype(np.float32)
        exact = terms.astype(np.longdouble).sum(1)
        scale = np.abs(terms).sum(1)
        one_by_one = np.cumsum(terms, 1, dtype=np.float32)[:, -1]
        tree = torch.from_numpy(terms).sum(1).numpy()
        bound = opassay.bound(lambda rows: rows.sum(1), torch.from_numpy(terms))
        for name, error in (
            ("bound for any order", bound.radius.numpy()),
            ("one after the other", np.abs(one_by_one - exact)),
            ("torch.sum", np.abs(tree - exact)),
        ):
            rows[name].append(float((error / scale).max()))
    low, high = -9.0, -2.0

    def place(length: int, value: float) -> tuple[float, float]:
        return 70 + 440 * math.log2(length / 4) / 12, 20 + 250 * (high - math.log10(value)) / (high - low)

    parts = [_line(70, 270, 510, 270), _line(70, 20, 70, 270), _text(290, 310, "number of terms, n", fill=GREY)]
    parts += [_text(place(n, 1e-9)[0], 288, f"{n:,}", fill=GREY, size=11) for n in lengths[::4]]
    parts += [_text(62, place(4, 10.0**e)[1] + 4, f"1e{e}", anchor="end", fill=GREY, size=11) for e in range(-9, -1, 2)]
    for colour, (name, values) in zip((BLUE, RED, "#2e7d32"), rows.items(), strict=True):
        points = [place(*pair) for pair in zip(lengths, values, strict=True)]
        dots = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{dots}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(points[-1][0] + 8, points[-1][1] + 4, name, anchor="start", fill=colour))
    _picture("sums", "Largest error of a sum, as a share of the sum of absolute values", 700, 325, parts)


def readings() -> None:
    """One formula, read in three ways, beside the op that is judged."""
    boxes = [
        (20, 70, 150, "formula", "NumPy, forward only"),
        (240, 10, 200, "exact reading", "hundreds of digits"),
        (240, 70, 200, "derivative reading", "jvp and vjp, any order"),
        (240, 130, 200, "rounding reading", "a ball for every element"),
        (20, 200, 150, "op", "PyTorch, as it ships"),
        (240, 200, 200, "what it returned", "under the same transforms"),
        (520, 100, 160, "verdict", "inside the accept set?"),
    ]
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="44" rx="6" fill="#eef3fa" stroke="{BLUE}"/>'
        + _text(x + width / 2, y + 19, head)
        + _text(x + width / 2, y + 36, small, fill=GREY, size=11)
        for x, y, width, head, small in boxes
    ]
    parts += [_line(170, 92, 240, y) for y in (32, 92, 152)] + [_line(170, 222, 240, 222)]
    parts += [_line(440, y, 520, 122) for y in (32, 92, 152, 222)]
    _picture("readings", "One formula is read in three ways, and the op is held against it", 700, 260, parts)


if __name__ == "__main__":
    accept_set()
    sums()
    readings()
