"""Judges kernels of `benchmarks/strangers/` as compiled PTX, and prints verdict, questions and seconds of each.

    python benchmarks/strange_kernels.py [NAME]...

ends with 1 where a right kernel is not accepted, or a wrong one is. It takes some seconds of CPU for each kernel.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

from opassay.properties.candidates.host.apart import Confinement
from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.judgement import Ruling

_FOLDER = Path(__file__).resolve().parent / "strangers"


class Case(NamedTuple):
    """A kernel, what it means, its inputs, and what is wrong with it; "" for nothing."""

    kernel: str
    reference: str
    family: str = "rows"
    fault: str = ""
    contract: str = "torch"


TRITON = (
    Case("softmax", "softmax"),
    Case("softmax_overflows", "softmax", fault="no maximum is subtracted"),
    Case("rms_norm", "rms_norm", "scaled"),
    Case("rms_norm_adds_eps_late", "rms_norm", "scaled", "eps behind the root"),
    Case("gelu", "gelu"),
    Case("gelu_by_tanh", "gelu", fault="another approximation"),
    Case("add", "add", "pair"),
    Case("add_one_too_many", "add", "pair", "mask <= n"),
    Case("rope", "rope", "angles"),
    Case("rope_turns_back", "rope", "angles", "a sign"),
    Case("dropout", "same"),
    Case("dropout_drops", "same", fault="1 of 1000 elements is dropped"),
    Case("quantise", "quantise"),
    Case("quantise_too_far", "quantise", fault="clamped at 128"),
    Case("scan", "scan"),
    Case("scan_forgets", "scan", fault="no carry between blocks of a long row"),
    Case("add_columns", "columns"),
    Case("add_columns_races", "columns", fault="no atomic operation"),
    Case("add_columns_to_anything", "columns", fault="begins with unwritten memory"),
    Case("add_columns_locked", "columns"),
    Case("add_columns_unlocked", "columns", fault="the lock is given back too early"),
    Case("scale", "scale"),
    Case("scale_of_one_configuration", "scale", fault="one configuration of the tuner masks too much"),
    Case("matmul", "matmul", "products"),
    Case("matmul_in_tf32", "matmul", "products", "TF32 where the contract has float32"),
    Case("matmul_in_tf32", "matmul", "products", contract="torch+tf32"),
    Case("matmul", "matmul", "halves"),
    Case("matmul_sums_in_bfloat16", "matmul", "halves", "sums in bfloat16"),
    Case("matmul_masks_late", "matmul", "halves", "mask of the last product"),
    Case("attention", "attention", "heads", contract="flash"),
    Case("attention_keeps_the_old_scale", "attention", "heads", "no rescaling by the new maximum", "flash"),
)
MODELS = (
    Case("attention_backward", "attention_backward", "back", contract="flash"),
    Case("attention_backward_without_mean", "attention_backward", "back", "no mean is subtracted", "flash"),
    Case("attention_backward_unscaled", "attention_backward", "back", "no scale of the scores", "flash"),
    Case("attention_backward_untransposed", "attention_backward", "back", "keys get the gradient of queries", "flash"),
    Case("top_k", "top_k", "few"),
    Case("top_k_pads_by_zeros", "top_k", "few", "zeros behind the row"),
    Case("top_k_drops_ties", "top_k", "few", "equal numbers count once"),
    Case("layer_norm", "layer_norm", "scaled"),
    Case("layer_norm_masks_nothing", "layer_norm", "scaled", "the variance of what is behind the row, too"),
    Case("layer_norm_by_squares", "layer_norm", "scaled", "mean of squares less square of mean"),
    Case("swiglu", "swiglu", "pair"),
    Case("swiglu_of_the_other", "swiglu", "pair", "sigmoid of the other operand"),
    Case("log_sum_exp", "log_sum_exp", contract="torch+spread"),
    Case("log_sum_exp", "log_sum_exp", fault="NaN where the first block of a row is masked"),
    Case("log_sum_exp_forgets", "log_sum_exp", fault="no rescaling by the new maximum"),
    Case("variance", "variance"),
    Case("variance_divides_by_n", "variance", fault="divided by n"),
    Case("difference", "difference"),
    Case("difference_reads_before", "difference", fault="a predicate of the first load"),
    Case("transpose", "transpose"),
    Case("transpose_by_columns", "transpose", fault="another row's address"),
)
CUDA = (
    Case("norm", "norm", ""),
    Case("norm_without_barrier", "norm", "", "no barrier"),
    Case("norm_with_another_eps", "norm", "", "eps 1e-5"),
    Case("transpose", "transpose", ""),
    Case("transpose_masks_half", "transpose", "", "half of the mask"),
    Case("add_columns", "columns", ""),
    Case("add_columns_races", "columns", "", "no atomic operation"),
    Case("softmax", "softmax", ""),
    Case("softmax_with_offsets_of_eight_bits", "softmax", "", "offsets in 8 bits"),
    Case("softmax_of_sixteen_lanes", "softmax", "", "a shuffle short"),
    Case("matmul", "matmul", ""),
    Case("matmul_without_barrier", "matmul", "", "no barrier behind the products"),
    Case("matmul_masks_late", "matmul", "", "mask <= k"),
    Case("scan", "scan", ""),
    Case("scan_of_sixteen_lanes", "scan", "", "a shuffle short"),
    Case("scan_keeps_the_last", "scan", "", "the carry of one step alone"),
    Case("gelu", "gelu", ""),
    Case("gelu_by_sigmoid", "gelu", "", "another approximation"),
    Case("gelu_writes_one_more", "gelu", "", "mask <= n"),
    Case("maximum", "maximum", ""),
    Case("maximum_from_one", "maximum", "", "begins with 1"),
    Case("maximum_without_barrier", "maximum", "", "no barrier"),
)
HEADERS = (
    Case("block_sum", "block_sum"),
    Case("block_sum_of_every_thread", "block_sum", fault="all threads write what one of them has"),
    Case("group_norm", "group_norm"),
    Case("group_norm_without_barrier", "group_norm", fault="no barrier"),
    Case("fragments", "fragments"),
    Case("fragments_of_tf32", "product", fault="TF32 where the contract has float32"),
    Case("fragments_without_barrier", "fragments", fault="no barrier of the warp"),
    Case("pipeline", "pipeline", "wide"),
    Case("pipeline_without_second_barrier", "pipeline", "wide", "no barrier before a buffer is copied to again"),
    Case("pipeline_waits_for_too_little", "pipeline", "wide", "one group too many is left"),
    Case("copies", "copies"),
    Case("copies_without_wait", "copies", fault="no wait"),
    Case("halves", "halves", "halves"),
    Case("halves_one_too_many", "halves", "halves", "i <= n"),
    Case("brains", "brains", "brains"),
    Case("brains_drop_the_last", "brains", "brains", "i < n - 1"),
    Case("histogram", "histogram"),
    Case("histogram_without_barrier", "histogram", fault="no barrier behind the zeros"),
    Case("histogram_of_twelve_bins", "histogram", fault="a shared array that is too short"),
    Case("histogram_races", "histogram", fault="no atomic operation"),
    Case("online", "online"),
    Case("online_of_a_wrong_mask", "online", fault="a mask without lanes that shuffle"),
    Case("online_without_scale", "online", fault="no rescaling by the new maximum"),
    Case("vectors", "vectors"),
    Case("vectors_from_the_second", "vectors", fault="four numbers at no multiple of 16 bytes"),
    Case("vectors_in_some_threads", "vectors", fault="a barrier in some threads of a warp"),
    Case("last_block", "last_block"),
    Case("last_block_without_fence", "last_block", fault="no fence before the counter"),
    Case("warp_sum", "warp_sum", "far"),
    Case("warp_sum_without_barrier", "warp_sum", "far", "no barrier of the warp"),
    Case("warp_sum_of_fast_sines", "warp_sum", "far", "__sinf"),
    Case("structure", "structure"),
    Case("structure_of_short_indices", "structure", fault="a product of indices beyond 32 bits"),
    Case("flag", "flag"),
    Case("flag_without_fence", "flag", fault="no fence before the flag"),
)
TILELANG = (
    Case("rms_norm", "rms_norm"),
    Case("rms_norm_adds_eps_late", "rms_norm", fault="eps behind the root"),
    Case("softmax", "softmax"),
    Case("softmax_overflows", "softmax", fault="no maximum is subtracted"),
    Case("matmul", "matmul", "products"),
    Case("matmul_sums_in_float16", "matmul", "products", "sums in float16"),
)

CASES = [
    (file, case)
    for file, cases in (
        ("triton_kernels.py", TRITON), ("model_kernels.py", MODELS), ("cuda_kernels.py", CUDA),
        ("header_kernels.py", HEADERS), ("tilelang_kernels.py", TILELANG),
    )
    for case in cases
]  # fmt: skip


def judge(file: str, case: Case) -> tuple[str, bool]:
    """A row of the table, and whether the verdict is right."""
    path, start = _FOLDER / file, time.monotonic()
    judgement = judge_file(
        f"{path}:{case.kernel}", f"{path}:{case.reference}_reference", contract=case.contract,
        values={"family": case.family} if case.family else {}, confinement=Confinement(120.0, compiled=True),
    )  # fmt: skip
    seconds = time.monotonic() - start
    codes = sorted({str(cause.wrong.code) for cause in judgement.causes if cause.wrong is not None})
    text = ", ".join(cause.question for cause in judgement.causes) or "; ".join(judgement.weaknesses) or judgement.error
    right = judgement.verdict is Ruling.REJECTED if case.fault else judgement.verdict is Ruling.ACCEPTED
    words = [case.kernel, case.fault or "right", case.contract, str(judgement.verdict), ", ".join(codes), text[:90]]
    return "| " + " | ".join([*words, f"{seconds:.0f}"]) + " |", right


def main(names: list[str]) -> int:
    """Judge and print; the exit code."""
    os.environ.setdefault("OPASSAY_PTX_ARCHITECTURE", "sm_80")  # for which Triton takes mma.sync whatever the tile
    wrong = 0
    print("| kernel | fault | contract | verdict | codes | questions | s |\n|---|---|---|---|---|---|---|")
    for file, case in CASES:
        if not names or case.kernel in names:
            row, right = judge(file, case)
            print(row + ("" if right else "  UNEXPECTED"), flush=True)
            wrong += not right
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
