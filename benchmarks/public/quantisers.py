"""Rounding to few bits and back; choosing boxes and places."""

from __future__ import annotations

import torch

from .row import Call, folder, load, load_file, normal, row

_FLOAT8 = torch.float8_e4m3fn


@row("conch", "rounding to 8-bit integers")
def conch_int8() -> Call:
    quantise = load("conch.ops.quantization.int8").scaled_int8_quant

    def spec(x, scale):
        return torch.clamp(x * (1 / scale), -128, 127).to(torch.int8)

    return Call(lambda x, scale: quantise(x, scale)[0], spec, (normal(6, 64), torch.tensor([0.05])))


@row("conch", "rounding to 8-bit floats")
def conch_fp8() -> Call:
    quantise = load("conch.ops.quantization.fp8").scaled_fp8_quant

    def spec(x, scale):
        return torch.clamp(x * (1 / scale), -448, 448).to(_FLOAT8)

    return Call(lambda x, scale: quantise(x, scale)[0], spec, (normal(6, 64), torch.tensor([0.05])))


@row("conch", "boxes that overlap")
def conch_nms() -> Call:
    nms = load("conch.ops.vision.nms").nms
    corners = torch.rand(12, 2) * 10
    boxes = torch.cat([corners, corners + 1 + torch.rand(12, 2) * 4], -1)

    def spec(boxes, scores):
        if len(boxes) != len(scores):
            raise ValueError("boxes and scores are not as many")
        order = scores.argsort(descending=True)
        a, area = boxes[order], (boxes[order][:, 2:] - boxes[order][:, :2]).prod(-1)
        low, high = torch.maximum(a[:, None, :2], a[:, :2]), torch.minimum(a[:, None, 2:], a[:, 2:])
        shared = (high - low).clamp(min=0).prod(-1)
        over = shared / (area[:, None] + area - shared) > 0.3
        keep = torch.ones(len(a), dtype=torch.bool, device=a.device)
        for i in range(len(a)):
            keep = keep & ~(over[i] & keep[i] & (torch.arange(len(a), device=a.device) > i))
        return torch.zeros_like(keep).scatter(0, order, keep)

    def candidate(boxes, scores):
        return torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device).scatter(0, nms(boxes, scores, 0.3), True)

    return Call(candidate, spec, (boxes, torch.rand(12)))


@row("sageattention", "rounding of queries and keys to 8 bits")
def sage_quantise() -> Call:
    quantise = load("sageattention.quant_per_block").per_block_int8

    def spec(q, k):
        def one(x, block, factor):
            x = x.float() * factor
            scale = x.abs().amax((-1, -2), keepdim=True) / 127
            scaled = x / scale
            return (scaled + 0.5 * torch.where(scaled >= 0, 1, -1)).to(torch.int8), scale

        return *one(q, 128, 64**-0.5 * 1.44269504), *one(k, 64, 1.0)

    half = torch.float16
    return Call(lambda q, k: quantise(q, k), spec, (normal(1, 2, 60, 64, dtype=half), normal(1, 2, 60, 64, dtype=half)))


@row("sglang", "rounding of tokens to 8-bit integers")
def sglang_int8() -> Call:
    quantise = load("sglang.kernels.ops.quantization.int8_kernel").per_token_quant_int8

    def spec(x):
        largest = x.abs().amax(-1, keepdim=True).clamp(min=1e-10)
        return torch.round(x * (127 / largest)).to(torch.int8), largest / 127

    return Call(lambda x: quantise(x.contiguous()), spec, (normal(6, 100),))


@row("torchao", "rounding of blocks to 8-bit floats")
def torchao_act_quant() -> Call:
    module = load("torchao.kernel.blockwise_quantization")

    def spec(x):
        scale = x.unflatten(-1, (-1, 128)).abs().amax(-1, keepdim=True) / 448.0
        return (x.unflatten(-1, (-1, 128)) / scale).to(_FLOAT8).flatten(-2), scale[..., 0]

    return Call(lambda x: module.fp8_blockwise_act_quant(x), spec, (normal(4, 256),))


@row("applied-ai", "rounding of groups to 8-bit floats")
def applied_float8() -> Call:
    quantise = load_file(folder("applied-ai") / "kernels/triton/inference/fp8/float8_groupwise_quant.py")

    def spec(x):
        groups = x.unflatten(-1, (-1, 128))
        scale = torch.clamp(groups.abs().amax(-1, keepdim=True), min=1e-12) / 448.0
        return torch.clamp(groups / scale, -448, 448).to(_FLOAT8).flatten(-2), scale[..., 0]

    fault = "it reads a global number that is no tl.constexpr, which this Triton does not compile"
    return Call(lambda x: quantise.float8_groupwise_quantize(x), spec, (normal(4, 256),), fault=fault)


@row("torchao", "places of tokens for experts")
def torchao_indices() -> Call:
    fill = load("torchao.proto" + "type.moe_training.ep.kernels").fill_indices_wrapper

    def candidate(counts):
        starts = counts.cumsum(0) - counts
        sizes = (counts.view(2, 4).sum(0) + 7) // 8 * 8
        return fill(counts, starts, sizes.cumsum(0) - sizes, 4, 2, 64)

    def spec(counts):
        places = torch.full((64,), -1, device=counts.device)
        starts = counts.cumsum(0) - counts
        sizes = (counts.view(2, 4).sum(0) + 7) // 8 * 8
        offsets = sizes.cumsum(0) - sizes
        slots = torch.arange(64, device=counts.device)
        for expert in range(4):
            begin = offsets[expert]
            for rank in range(2):
                i = rank * 4 + expert
                inside = (slots >= begin) & (slots < begin + counts[i])
                places = torch.where(inside, starts[i] + slots - begin, places)
                begin = begin + counts[i]
        return places.int()

    return Call(candidate, spec, (torch.tensor([4, 2, 1, 3, 1, 2, 3, 4]),))


@row("bitsandbytes", "rounding of blocks by a table")
def bnb_quantise() -> Call:
    ops = load("bitsandbytes.backends.triton.ops")
    table = torch.linspace(-1, 1, 256)

    def spec(x):
        groups = x.reshape(-1, 64)
        largest = groups.abs().amax(-1)
        scaled = groups / largest[:, None]
        return (scaled[..., None] - table.to(x.device)).abs().argmin(-1).to(torch.uint8).reshape(x.shape), largest

    return Call(lambda x: ops.quantize_blockwise(x, table.to(x.device), 64), spec, (normal(4, 128),))


@row("bitsandbytes", "from 4 bits")
def bnb_dequantise() -> Call:
    ops = load("bitsandbytes.backends.triton.ops")
    bnb = load("bitsandbytes.functional")
    codes = bnb.get_4bit_type("nf4", device="cpu").float()

    def spec(packed, largest):
        values = torch.stack([packed >> 4, packed & 15], -1).flatten()
        return codes.to(packed.device)[values.int()].reshape(-1, 64) * largest[:, None]

    def candidate(packed, largest):
        return ops.dequantize_4bit(packed[:, None], largest, 64, "nf4", (largest.shape[0], 64), torch.float32)

    return Call(candidate, spec, (torch.randint(0, 256, (128,), dtype=torch.uint8), torch.rand(4)))
