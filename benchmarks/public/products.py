"""Products of matrices."""

from __future__ import annotations

import io

import torch

from .row import Call, folder, load, load_file, normal, row

_HALF = torch.float16


@row("triton tutorials", "product")
def tutorial_product() -> Call:
    matmul = load_file(folder("triton-shared") / "python/examples/test_matmul.py").matmul
    return Call(
        lambda a, b: matmul(a, b), lambda a, b: a @ b, (normal(40, 64, dtype=_HALF), normal(64, 48, dtype=_HALF))
    )


@row("mamba", "product of chunks")
def mamba_bmm() -> Call:
    bmm = load("mamba_ssm.ops.triton.ssd_bmm")._bmm_chunk_fwd

    def spec(a, b):
        return torch.einsum("bcld,bcsd->bcls", a.unflatten(1, (-1, 64)), b.unflatten(1, (-1, 64)))

    return Call(lambda a, b: bmm(a, b, 64), spec, (normal(1, 128, 40, dtype=_HALF), normal(1, 128, 40, dtype=_HALF)))


@row("torchao", "product of 8-bit integers")
def torchao_int8() -> Call:
    module = load("torchao.kernel.intmm_triton")

    def candidate(a, b):
        c = torch.empty(a.shape[0], b.shape[1], dtype=torch.int32, device=a.device)
        return module.int_matmul_kernel(a, b, c, module.int8_mm_kernel_configs[0])

    numbers = [torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((64, 128), (128, 64))]
    return Call(candidate, lambda a, b: a.int() @ b.int(), tuple(numbers))


@row("torchao", "product of blocks in 8-bit floats")
def torchao_fp8() -> Call:
    module = load("torchao.kernel.blockwise_quantization")

    def candidate(x, w):
        a, a_scales = module.fp8_blockwise_act_quant(x)
        b, b_scales = module.fp8_blockwise_weight_quant(w)
        return module.blockwise_fp8_gemm(a, a_scales, b, b_scales)

    def spec(x, w):
        a_scales = x.float().abs().amax(-1, keepdim=True) / 448.0
        b_scale = w.float().abs().amax() / 448.0
        a, b = (x / a_scales).to(torch.float8_e4m3fn).float(), (w / b_scale).to(torch.float8_e4m3fn).float()
        return ((a @ b.T) * a_scales * b_scale).to(torch.bfloat16)

    return Call(candidate, spec, (normal(16, 128), normal(128, 128)))


@row("applied-ai", "product with weights of 4 bits, split")
def applied_split() -> Call:
    module = load_file(folder("applied-ai") / "kernels/triton/inference/gptq/splitk_dequant_gemm.py")
    module.open, module.print = lambda *_: io.StringIO(), lambda *_, **__: None  # it writes a file and much text
    load("triton.compiler").CompiledKernel.shared = property(
        lambda kernel: kernel.metadata.shared
    )  # as older versions of Triton have it

    def candidate(a, b, scales, zeros):
        return module.matmul_split_k(a, b, scales, zeros)

    def spec(a, b, scales, zeros):
        shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=b.device)
        weights = ((b[:, None] >> shifts[None, :, None]) & 15).flatten(0, 1)
        offsets = ((zeros[:, :, None] >> shifts) & 15).flatten(1) + 1
        return a @ ((weights - offsets.repeat_interleave(128, 0)) * scales.repeat_interleave(128, 0)).to(a.dtype)

    whole = [torch.randint(-(2**31), 2**31, shape, dtype=torch.int64).int() for shape in ((64, 32), (4, 4))]
    return Call(candidate, spec, (normal(16, 512, dtype=_HALF), whole[0], normal(4, 32, dtype=_HALF) * 0.1, whole[1]))


@row("flag-gems", "product")
def gems_product() -> Call:
    ops = load("flag_gems.ops")
    return Call(
        lambda a, b: ops.mm(a, b), lambda a, b: a @ b, (normal(40, 64, dtype=_HALF), normal(64, 48, dtype=_HALF))
    )


@row("conch", "product with scales")
def conch_scaled() -> Call:
    gemm = load("conch.ops.quantization.gemm").scaled_gemm

    def candidate(a, b, of_a, of_b):
        return gemm(a, b, of_a, of_b, torch.float16)

    numbers = [torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((32, 128), (128, 128))]
    scales = (torch.rand(32, 1) * 0.01, torch.rand(128, 1) * 0.01)
    return Call(
        candidate, lambda a, b, of_a, of_b: ((a.float() @ b.float()) * of_a * of_b.T).half(), (*numbers, *scales)
    )
