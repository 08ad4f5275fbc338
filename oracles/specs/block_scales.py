"""torch's products of matrices with scales for blocks, traced as an operation of our own; and those of four bits.

What is hard here: torch knows an operand by its shape and by a recipe, and hands scales over in three layouts: a number
for each block, a matrix that is filled up to whole tiles, and tiles of 128 rows and 4 columns (`SWIZZLE_32_4_4`, NVIDIA
cuBLAS, "1D block scaling factors layout"). All become one number for each row and block, by an index. There are kernels
of these for some GPUs alone, so where torch runs a spec on a CPU, what stands here computes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .storage import PAIRS

#: `torch.nn.functional.ScalingType`, as the operation has it; of scales in tiles the dtype and the length of blocks.
_OF_A_MATRIX, _OF_16, _OF_32, _OF_128, _OF_SQUARES = 0, 2, 3, 4, 5
_IN_TILES = {_OF_16: (torch.float8_e4m3fn, 16), _OF_32: (torch.float8_e8m0fnu, 32)}
#: Rows and columns of blocks of float32 scales.
_LONG = 128
#: In `SWIZZLE_32_4_4` a tile of so many rows and columns of scales stands together.
_TILE_ROWS, _TILE_COLUMNS = 128, 4
#: The arguments of `torch._scaled_mm_v2` behind both factors.
_ARGUMENTS = ("scale_a", "recipe_a", "swizzle_a", "scale_b", "recipe_b", "swizzle_b", "bias", "out_dtype")
#: The numbers of e2m1, by their codes.
_NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


class Scales(NamedTuple):
    """The scales of an operand whose rows are summed over.

    Attributes:
        each: (rows, blocks). length: of a block. whole: of the operand as a whole; None for 1.
    """

    each: Tensor
    length: int
    whole: Tensor | None = None


def multiply_by_shapes(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """`torch._scaled_mm`, which knows what a scale is of by dtypes and shapes."""
    rows, columns = (a.shape[0], 1), (1, b.shape[1])
    plain = scale_a.numel() == scale_b.numel() == 1 or (scale_a.shape == rows and scale_b.shape == columns)
    if a.dtype != PAIRS and plain:
        return _on_cpus(a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)
    if scale_result is not None:
        raise ValueError(
            f"scale_result of shape {tuple(scale_result.shape)} beside scales of blocks; divide the result"
        )
    left, right = numbers_of(a), numbers_of(b.t())
    scales = (_scales_by_shape(scale_a, left, False), _scales_by_shape(scale_b, right, True))
    return _multiply(left, right, *scales, bias, out_dtype or a.dtype)


def multiply_by_recipes(a: Tensor, b: Tensor, *args: Any, **kwargs: Any) -> Any:
    """`torch._scaled_mm_v2`, by which `torch.nn.functional.scaled_mm` computes."""
    named = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
    recipes = [*named["recipe_a"]], [*named["recipe_b"]]
    if a.dtype != PAIRS and max(*recipes) < [_OF_16]:
        return torch._scaled_mm_v2(a, b, *args, **kwargs)
    bias, out_dtype = named.get("bias"), named.get("out_dtype")
    left, right = numbers_of(a), numbers_of(b.t())
    scales = (
        _scales_by_recipe(named["scale_a"], recipes[0], named["swizzle_a"], left),
        _scales_by_recipe(named["scale_b"], recipes[1], named["swizzle_b"], right),
    )
    return _multiply(left, right, *scales, bias, out_dtype or a.dtype)


def numbers_of(x: Tensor) -> Tensor:
    """A matrix of numbers of few bits: of pairs of e2m1, whose lower half comes first, each as float32."""
    if x.dtype != PAIRS:
        return x
    pairs = x.view(torch.uint8)
    codes = torch.stack([pairs & 15, pairs >> 4], -1).flatten(-2)
    return torch.tensor(_NUMBERS, device=x.device)[codes.long()]


def _multiply(a: Tensor, b: Tensor, of_a: Scales, of_b: Scales, bias: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    """(rows, terms) and (columns, terms), scaled -> (rows, columns)."""
    if of_a.length != of_b.length:
        raise ValueError(
            f"scales of blocks of {of_a.length} and of {of_b.length} numbers; need the same in both factors"
        )
    wholes = [torch.ones((), device=a.device) if s.whole is None else s.whole.reshape(()) for s in (of_a, of_b)]
    product: Tensor = torch.ops.opassay_specs.multiply_blocks(a, b, of_a.each, of_b.each, *wholes, of_a.length)
    return (product if bias is None else product + bias).to(out_dtype)


def _scales_by_shape(scale: Tensor, numbers: Tensor, is_second: bool) -> Scales:
    """The scales of a matrix by what `torch._scaled_mm` takes; float32 ones of the second factor are transposed."""
    rows, terms = numbers.shape
    for dtype, length in _IN_TILES.values():
        if scale.dtype == dtype:
            return Scales(_from_tiles(scale, rows, -(-terms // length)), length)
    blocks = -(-terms // _LONG)
    each = scale.t() if is_second and scale.ndim == 2 else scale
    if each.shape == (rows, blocks):
        return Scales(each, _LONG)
    if each.shape == (-(-rows // _LONG), blocks):
        return Scales(each[_blocks_of(rows, scale.device)], _LONG)
    raise ValueError(
        f"a scale of shape {tuple(scale.shape)} for a factor of {rows} rows of {terms} numbers has no recipe"
    )


def _scales_by_recipe(
    scales: Sequence[Tensor], recipe: Sequence[int], swizzle: Sequence[int], numbers: Tensor
) -> Scales:
    """The scales of a matrix by its recipe, in the shapes that torch's kernels for CUDA ask for."""
    rows, terms = numbers.shape
    kind, *further = recipe
    first, blocks = scales[0], -(-terms // _LONG)
    if kind in _IN_TILES and further in ([], [_OF_A_MATRIX]) and [*swizzle][:1] == [1]:
        dtype, length = _IN_TILES[kind]
        if first.dtype == dtype and len(scales) == len(recipe):
            return Scales(_from_tiles(first, rows, -(-terms // length)), length, scales[1] if further else None)
    if first.dtype == torch.float32 and not further and kind == _OF_128 and first.shape == (rows, blocks):
        return Scales(first, _LONG)
    if first.dtype == torch.float32 and not further and kind == _OF_SQUARES:
        whole = -(-blocks // _TILE_COLUMNS) * _TILE_COLUMNS
        if first.shape == (whole, -(-rows // _LONG)):
            return Scales(first[:blocks].t()[_blocks_of(rows, first.device)], _LONG)
    raise ValueError(
        f"scales of {[s.dtype for s in scales]} and shapes {[tuple(s.shape) for s in scales]} by recipe {[*recipe]}"
        f" with swizzle {[*swizzle]} for {rows} rows of {terms} numbers; see torch.nn.functional.scaled_mm"
    )


def _blocks_of(rows: int, device: torch.device) -> Tensor:
    return torch.arange(rows, device=device) // _LONG


def _from_tiles(scale: Tensor, rows: int, blocks: int) -> Tensor:
    """Scales in the order of `SWIZZLE_32_4_4`, which has places for whole tiles, as (rows, blocks)."""
    tiles = -(-blocks // _TILE_COLUMNS)
    need = -(-rows // _TILE_ROWS) * tiles * _TILE_ROWS * _TILE_COLUMNS
    if scale.numel() != need:
        raise ValueError(f"a scale with {scale.numel()} numbers for {rows} rows of {blocks} blocks, need {need}")
    row, column = torch.arange(rows, device=scale.device)[:, None], torch.arange(blocks, device=scale.device)
    tile = row // _TILE_ROWS * tiles + column // _TILE_COLUMNS
    inside = row % 32 * 16 + row // 32 % 4 * 4 + column % _TILE_COLUMNS
    return scale.reshape(-1)[tile * (_TILE_ROWS * _TILE_COLUMNS) + inside]


def _on_cpus(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None, scale_result: Tensor | None,
    out_dtype: torch.dtype | None, use_fast_accum: bool,
) -> Any:  # fmt: skip
    """`torch._scaled_mm`, on CPUs as a product of float32 matrices, which is what torch computes there.

    Under autocast that product has half factors; a trace of the operation itself would not show it.
    """
    if a.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return torch._scaled_mm(a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)
    product = torch.matmul(a.float() * scale_a, b.float() * scale_b)
    product = product if bias is None else product + bias
    product = product if scale_result is None else product / scale_result
    return product.to(out_dtype or a.dtype)


#: What is traced, by the function of torch that a spec calls. The second came with torch 2.10.
PRODUCTS: dict[Any, Callable[..., Any]] = {torch._scaled_mm: multiply_by_shapes}
if hasattr(torch, "_scaled_mm_v2"):
    PRODUCTS[torch._scaled_mm_v2] = multiply_by_recipes


class _OwnProducts(TorchFunctionMode):
    """A mode in which products are those of this module; `used` says whether one was called."""

    used = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.used |= func in PRODUCTS
        return PRODUCTS.get(func, func)(*args, **(kwargs or {}))


class KernelFallback:
    """Whether a spec is run with the products of this module, because torch has no kernel for one of them."""

    def __init__(self) -> None:
        self._is_on = False

    def mode(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which the spec is called."""
        return _OwnProducts() if self._is_on else contextlib.nullcontext()

    def turns_on(self, run: Callable[[], Any]) -> bool:
        """Whether a call that has failed succeeds with a product of this module; then later calls take it, too."""
        mode = _OwnProducts()
        if self._is_on:
            return False
        with contextlib.suppress(Exception), torch.no_grad(), mode:
            run()
            self._is_on = mode.used
        return self._is_on
