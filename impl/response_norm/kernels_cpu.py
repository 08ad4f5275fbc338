"""Kernels of local response normalisation, for every device: ATen expressions on a few channels' columns at a time.

Letters: a the input, q = a^2, W the sum over the window of each channel, s = k + (alpha / size) W q the base,
g the cotangent of the output, W' the adjoint of W, that is the sum over the mirrored window.

A window sum is built by doubling, P_2n[c] = P_n[c] + P_n[c + n], from channels padded with zeros: about log2(size)
additions per element, none of which cancels. (A running sum, which subtracts the channel that leaves the window, loses
the small channels behind a large one.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..operator.precision import compute_dtype

_CHUNK = 1 << 16
"""Elements per thread that are worked on at a time on the CPU: the intermediates of that many stay in cache."""

_SHARED = 1 << 15
"""Elements from which on ATen shares them among threads."""

Shape = tuple[int, ...]  # (images, channels, positions)


def reach(size: int, channels: int) -> tuple[int, int]:
    """Channels of the window before and after its centre, no more than there are."""
    # A channel further away than the last one does not exist, and a window that reaches there would sum
    # zeros only.
    last = max(channels - 1, 0)
    return min(size // 2, last), min((size - 1) // 2, last)


def cross_map_lrn2d(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """a s^(-beta) for x of shape (..., C, H, W): contiguous, in x's dtype.

    Args:
        x: (..., C, H, W).
        size: channels in the window.
        alpha, beta, k: see the module.
    """
    # s^0 is 1 whatever s is. The clone is there because an output aliases no input.
    if beta == 0:
        return x.clone(memory_format=torch.contiguous_format)
    out = _like(x)
    _write_normalised((out,), x, size, alpha, beta, k)
    return out


def cross_map_lrn2d_keeping(x: Tensor, size: int, alpha: float, beta: float, k: float) -> tuple[Tensor, Tensor, Tensor]:
    """(`cross_map_lrn2d`, s, s^beta) for beta > 0: what the backward would have to compute again.

    Args:
        x: float32 or float64, in which s is computed, too.
        size, alpha, beta, k: as for `cross_map_lrn2d`.
    """
    out, base, root = _like(x), _like(x), _like(x)
    _write_normalised((out, base, root), x, size, alpha, beta, k)
    return out, base, root


def _write_normalised(outputs: tuple[Tensor, ...], x: Tensor, size: int, alpha: float, beta: float, k: float) -> None:
    """Writes a s^(-beta), and where asked for s and s^beta.

    Args:
        outputs: one tensor or three, shaped as x.
        x, size, alpha, beta, k: as for `cross_map_lrn2d`.
    """
    before, after = reach(size, x.shape[-3])

    def plan(shape: Shape) -> Callable[..., None]:
        denominator = _Denominator(shape, before, after, alpha / size, k, x)

        def columns(a: Tensor, out: Tensor, base: Tensor | None = None, root: Tensor | None = None) -> None:
            a = a.to(denominator.s.dtype)
            s = denominator(a, base)
            # Where nothing is kept the base is not read again, so its power may take its place.
            _divide(a, s, beta, s if root is None else root, out)

        return columns

    _by_columns(plan, x, *outputs)


class ImagesBackward(NamedTuple):
    """The arguments of `cross_map_lrn2d_backward`.

    Attributes:
        grad_out, x: (..., C, H, W).
        base, root: s and s^beta in the compute dtype of x, as `cross_map_lrn2d_keeping` returns them; or None.
        size, alpha, beta, k: as for `cross_map_lrn2d`.
    """

    grad_out: Tensor
    x: Tensor
    base: Tensor | None
    root: Tensor | None
    size: int
    alpha: float
    beta: float
    k: float


def cross_map_lrn2d_backward(args: ImagesBackward) -> Tensor:
    """g s^(-beta) - (2 alpha beta / size) a W'(g a s^(-beta - 1)): contiguous, in x's dtype.

    s is `base` and s^beta is `root` where both are given.
    """
    grad_out, x, base, root, size, alpha, beta, k = args
    if beta == 0:
        return grad_out.clone(memory_format=torch.contiguous_format)
    before, after = reach(size, x.shape[-3])
    saved = () if base is None or root is None else (base, root)

    def plan(shape: Shape) -> Callable[..., None]:
        again = None if saved else _Denominator(shape, before, after, alpha / size, k, x)
        # A window that is as long before as after is its own mirror image. Its memory, in which s lies as
        # well, is free again once `middle` holds the product that was divided by s.
        mirrored = again.window if again and before == after else _Window(shape, after, before, x)
        scaled = torch.empty_like(mirrored.total)

        def columns(out: Tensor, g: Tensor, a: Tensor, *powers: Tensor) -> None:
            a = a.to(scaled.dtype)  # g, which may be of a half type, only meets tensors of that dtype
            if again:
                s = again(a)
                _divide(g, s, beta, scaled, scaled)
            else:
                s = powers[0]
                torch.div(g, powers[1], out=scaled)
            if beta > 0:
                torch.mul(scaled, a, out=mirrored.middle).div_(s)
            else:  # not by way of s^(-beta), for s may be 0
                torch.mul(g, a, out=mirrored.middle).mul_(_power(s, -beta - 1, torch.empty_like(s)))
            # The result is rounded to x's dtype as it is written to `out`, and nowhere before.
            torch.addcmul(scaled, a, mirrored.sum(), value=-2 * alpha * beta / size, out=out)

        return columns

    out = _like(x)
    _by_columns(plan, out, grad_out, x, *saved)
    return out


def window_sum(x: Tensor, before: int, after: int) -> Tensor:
    """The sum over channels c - before to c + after for every channel c of x (..., C, H, W): contiguous."""

    def plan(shape: Shape) -> Callable[..., None]:
        window = _Window(shape, before, after, x)

        def columns(out: Tensor, a: Tensor) -> None:
            window.middle.copy_(a)
            out.copy_(window.sum())

        return columns

    out = _like(x)
    _by_columns(plan, out, x)
    return out


def _like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _by_columns(plan: Callable[[Shape], Callable[..., None]], *tensors: Tensor) -> None:
    """Work on views (some images, C, some positions) that cover tensors of one shape (..., C, H, W).

    `plan` makes what works on views of a shape: it owns the memory for that shape's intermediates.
    """
    shape = tensors[0].shape
    if not shape.numel():
        return
    views = [t.reshape(-1, shape[-3], shape[-2] * shape[-1]) for t in tensors]
    # There are at most four shapes: a whole piece, and what is left over at the end of the images, of the
    # positions, or of both.
    planned: dict[Any, Callable[..., None]] = {}
    wide, narrow = _piece(views[0])
    for images in zip(*(view.split(wide) for view in views), strict=True):
        for pieces in zip(*(some.split(narrow, 2) for some in images), strict=True):
            size = pieces[0].shape
            work = planned.get(size) or planned.setdefault(size, plan(size))
            work(*pieces)


def _piece(view: Tensor) -> tuple[int, int]:
    """How many images, and positions of each, are worked on at a time."""
    images, channels, positions = view.shape
    # Which elements are the last of a piece decides their bits (see `_power`).
    threads = 1 if torch.are_deterministic_algorithms_enabled() else torch.get_num_threads()
    most = _CHUNK * threads
    # On CUDA there is no cache to keep to, and every piece would be more launches.
    if not view.is_cpu or view.numel() <= most:
        return images, positions
    # Several images while they fit, else some positions of one image. Channels are never divided, because
    # the window runs along them.
    wide = max(1, round(most / (channels * positions)))
    pieces = max(1, round(channels * positions / most))
    return wide, -(-positions // pieces)


class _Window:
    """Memory to sum windows of channels in: fill `middle`, then `sum()` leaves the sums in `total`.

    `middle` is the inside of as many channels more as the window reaches, which stay zero. The lowest bits of the
    window's size are added first: a sum is one of P_n over the n that the size is made of.
    """

    def __init__(self, shape: Shape, before: int, after: int, like: Tensor) -> None:
        images, channels, positions = shape
        dtype = compute_dtype(like.dtype)
        padded = like.new_empty((images, before + channels + after, positions), dtype=dtype)
        padded[:, :before] = 0
        padded[:, before + channels :] = 0
        self.middle = padded[:, before : before + channels]
        self._steps: list[tuple[Tensor, Tensor, Tensor]] = []
        size, offset, length, sums = before + after + 1, 0, 1, padded
        total: list[Tensor] = []
        while True:
            if size & length:
                part = sums[:, offset : offset + channels]
                total = [self._added(total[0], part) if total else part]
                offset += length
            if offset == size:
                break
            sums = self._added(sums[:, : sums.shape[1] - length], sums[:, length:])
            length *= 2
        self.total = total[0]

    def _added(self, a: Tensor, b: Tensor) -> Tensor:
        out = a.new_empty(a.shape)
        self._steps.append((a, b, out))
        return out

    def sum(self) -> Tensor:
        for a, b, out in self._steps:
            torch.add(a, b, out=out)
        return self.total


class _Denominator:
    """s = k + scale W a^2 for views a of one shape, in memory of its own."""

    def __init__(self, shape: Shape, before: int, after: int, scale: float, k: float, like: Tensor) -> None:
        """Plans the window sums of views of one shape.

        Args:
            shape: of the views.
            before, after: channels of the window before and after its centre.
            scale: alpha / size.
            k: added to the sum.
            like: a tensor of the dtype and device of the views.
        """
        self.window = _Window(shape, before, after, like)
        # For a window of one channel `total` is `middle` itself, which is filled anew while s is still
        # read. Only then s needs memory of its own.
        self.s = self.window.total if before or after else torch.empty_like(self.window.total)
        self._k, self._scale = self.s.new_full((), k), scale

    def __call__(self, a: Tensor, out: Tensor | None = None) -> Tensor:
        torch.mul(a, a, out=self.window.middle)
        return torch.add(self._k, self.window.sum(), alpha=self._scale, out=self.s if out is None else out)


def _divide(a: Tensor, s: Tensor, beta: float, root: Tensor, out: Tensor) -> None:
    """out = a / s^beta; `root` becomes s^beta for beta > 0.

    Args:
        a, s: of one shape and dtype.
        beta: any number.
        root, out: memory for the two results; `root` may be that of s.
    """
    if beta < 0:
        torch.mul(a, _power(s, -beta, root), out=out)
    else:
        torch.div(a, _raise(s, beta, root), out=out)


def _raise(s: Tensor, beta: float, out: Tensor) -> Tensor:
    """s^beta; the usual exponents at a third of the time of a power."""
    # s^0.75 = sqrt(s) sqrt(sqrt(s)). 0.75 is the exponent of the paper, and the default.
    if beta == 0.75:
        return torch.sqrt(s, out=out).mul_(out.sqrt())
    if beta == 0.5:
        return torch.sqrt(s, out=out)
    return out.copy_(s) if beta == 1 else _power(s, beta, out)


def _power(s: Tensor, exponent: float, out: Tensor) -> Tensor:
    """s^exponent; with deterministic algorithms, the same bits on any number of threads.

    Args:
        s, exponent: see above. out: memory for the result, which may be that of s.
    """
    # On the CPU, ATen computes the last few elements of each thread's share by the power of the C library, and all
    # others by one of vectors, whose last bits are others. What it does not share has the same last elements always.
    steady = s.is_cpu and torch.are_deterministic_algorithms_enabled()
    for part, result in _unshared(s, out) if steady else [(s, out)]:
        torch.pow(part, exponent, out=result)
    return out


def _unshared(s: Tensor, out: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Views that cover two tensors of one shape, of fewer elements than ATen shares among threads."""
    if s.numel() < _SHARED:
        yield s, out
        return
    longest = max(range(s.dim()), key=lambda dim: s.shape[dim])
    half = -(-s.shape[longest] // 2)
    for part, result in zip(s.split(half, longest), out.split(half, longest), strict=True):
        yield from _unshared(part, result)
