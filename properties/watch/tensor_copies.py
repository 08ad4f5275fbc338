"""Copies of tensors as they were at a moment; one copy serves as long as memory holds the same bits.

What is hard here: memory is also written by what torch's dispatcher never sees (a kernel of Triton, a pointer that an
extension was handed), and then no version counter changes. So a copy is used again only where its bits are still there,
which takes as long as copying and no memory.
"""

from __future__ import annotations

import weakref

import torch

from ...oracles.op.bits import same_bits
from .mapped_memory import MappedMemory

Tensor = torch.Tensor


class TensorCopies:
    """The copies that are still used, by the memory that they are copies of.

    Attributes:
        memory: that they lie in.
    """

    def __init__(self, memory: MappedMemory) -> None:
        self.memory = memory
        self._latest: weakref.WeakValueDictionary[tuple[object, ...], Tensor] = weakref.WeakValueDictionary()

    def copy(self, tensor: Tensor) -> Tensor:
        """A tensor of these values in memory of its own, which nobody writes; a sparse one as a dense one.

        Quantized and nested tensors, which nothing reads, are given as they are.
        """
        tensor = tensor.detach()
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            return tensor.to_dense() if tensor.layout != torch.strided else tensor
        # A matrix and its transpose are one piece of memory, and have one copy.
        is_dense = torch.ops.aten.is_non_overlapping_and_dense(tensor)
        flat = tensor.as_strided((tensor.numel(),), (1,)) if is_dense else tensor
        storage = tensor.untyped_storage()._cdata
        key = (storage, tensor.storage_offset(), flat.shape, flat.stride(), tensor.dtype, tensor.is_conj())
        copied = self._latest.get(key)
        if copied is None or not same_bits(copied.as_strided(flat.shape, (1,)) if is_dense else copied, flat):
            copied = self._latest[key] = self._compact(tensor)
        elif is_dense and (copied.shape, copied.stride()) != (tensor.shape, tensor.stride()):
            copied = copied.as_strided(tensor.shape, tensor.stride())
        return copied

    def _compact(self, tensor: Tensor) -> Tensor:
        """A copy with the strides of the tensor; elements that share memory share it in the copy."""
        once = tensor
        for dim, (stride, size) in enumerate(zip(tensor.stride(), tensor.shape, strict=True)):
            once = once.narrow(dim, 0, 1) if stride == 0 < size else once
        copied = self.memory.copy(once)
        return copied if once is tensor else copied.expand(tensor.shape)
