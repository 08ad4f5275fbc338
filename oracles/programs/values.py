"""Values as Python: every bit of a tensor, its strides and its device."""

from __future__ import annotations

import numpy as np
import torch

from ..op.bits import same_bits
from ..op.script import ProgramTensor

#: Elements up to which a tensor is written as decimal numbers, which a person can read; more are written as bytes.
READABLE = 64

#: Functions that the literals below call, by a text that only programs with such a call have.
HELPERS = {
    "bits(": """def bits(text, dtype, *shape):
    return torch.frombuffer(bytearray.fromhex(text), dtype=dtype).reshape(shape).clone()
""",
    "laid(": """def laid(values, stride, offset):
    # Equal values with these strides; NaN, or 113 for integers, is around them and between them.
    extent = sum(s * (n - 1) for s, n in zip(stride, values.shape)) + 1 if values.numel() else 0
    fill = float("nan") if values.is_floating_point() else 113
    whole = torch.full((offset + extent + 5,), fill, dtype=values.dtype, device=values.device)
    view = whole.as_strided(values.shape, stride, offset)
    first = tuple(slice(0, 1) if s == 0 else slice(None) for s in stride)
    view[first].copy_(values[first])
    return view
""",
}


def literal(value: object) -> str:
    """An expression for a value; `inf` and `nan` in it are those of `math`."""
    if isinstance(value, ProgramTensor):
        return _write_tensor(value)
    if isinstance(value, torch.Tensor):
        return _write_tensor(ProgramTensor(value, value))
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, tuple):
        return f"({''.join(f'{literal(item)}, ' for item in value)})"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return repr(value)


def _write_tensor(tensor: ProgramTensor) -> str:
    layout = tensor.layout
    if layout.is_meta:  # it has no values to be written
        return (
            f"torch.empty_strided({tuple(layout.shape)}, {tuple(layout.stride())}, dtype={layout.dtype}, device='meta')"
        )
    text = _write_values(tensor.values)
    if layout.device.type != "cpu":
        text = f"{text}.to({str(layout.device)!r})"
    if layout.is_contiguous() and not layout.storage_offset():
        return text
    return f"laid({text}, {tuple(layout.stride())}, {layout.storage_offset()})"


def _write_values(tensor: torch.Tensor) -> str:
    raw = tensor.detach().cpu().contiguous()
    if not raw.numel():
        return f"torch.empty({tuple(raw.shape)}, dtype={raw.dtype})"
    if raw.numel() <= READABLE:
        # Of a float32 number the fewest digits that determine it; numbers of other dtypes have few digits, or need all.
        short = [float(str(number)) for number in raw.numpy().reshape(-1)] if raw.dtype is torch.float32 else None
        numbers = raw.tolist() if short is None else np.reshape(short, raw.shape).tolist()
        # A NaN may have a sign and a payload, which no decimal number has.
        if same_bits(torch.tensor(numbers, dtype=raw.dtype), raw):
            return f"torch.tensor({numbers!r}, dtype={raw.dtype})"
    # The copy has the strides of its shape. Those of a tensor of one element may be anything, although torch calls it
    # contiguous, and then it has no view as bytes.
    text = bytes(torch.empty(raw.numel(), dtype=raw.dtype).copy_(raw.reshape(-1)).view(torch.uint8).numpy()).hex()
    return f"bits({', '.join((repr(text), str(raw.dtype), *map(str, raw.shape)))})"
