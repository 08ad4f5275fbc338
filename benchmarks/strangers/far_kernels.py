"""Index arithmetic of public kernels that wrapped beyond 2^31 elements, each as it was and as it was corrected.

Every kernel has a constant WIDE: without it an index is multiplied in 32 bits, as in the thread that a function names.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _chunk_cumsum(
    dt, a, out, stride_dt_batch, stride_dt_seqlen, stride_dt_head, stride_out_batch, stride_out_head, stride_out_chunk,
    chunk_size, heads, BLOCK_H: tl.constexpr, BLOCK_C: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    pid_b = tl.program_id(0)
    pid_c = tl.program_id(1)
    pid_h = tl.program_id(2)
    if WIDE:
        pid_b = pid_b.to(tl.int64)
        pid_c = pid_c.to(tl.int64)
    dt += pid_b * stride_dt_batch + pid_c * chunk_size * stride_dt_seqlen
    out += pid_b * stride_out_batch + pid_c * stride_out_chunk
    h = pid_h * BLOCK_H + tl.arange(0, BLOCK_H)
    c = tl.arange(0, BLOCK_C)
    inside = (h[:, None] < heads) & (c[None, :] < chunk_size)
    steps = tl.load(dt + h[:, None] * stride_dt_head + c[None, :] * stride_dt_seqlen, mask=inside, other=0.0)
    rates = tl.load(a + h, mask=h < heads, other=0.0)
    sums = tl.cumsum(steps * rates[:, None], axis=1)
    tl.store(out + h[:, None] * stride_out_head + c[None, :], sums, mask=inside)


def chunk_cumsum(dt, a, wide):
    """state-spaces/mamba#987, #1015: `pid_b * stride_dt_batch` of ssd_chunk_state.py."""
    batch, seqlen, heads = dt.shape
    chunks = seqlen // 16
    out = torch.empty(batch, heads, chunks, 16, dtype=dt.dtype, device=dt.device)
    grid = (batch, chunks, triton.cdiv(heads, 8))
    strides = (*dt.stride(), *out.stride()[:3])
    _chunk_cumsum[grid](dt, a, out, *strides, 16, heads, BLOCK_H=8, BLOCK_C=16, WIDE=wide)
    return out


def chunk_cumsum_spec(dt, a):
    batch, seqlen, heads = dt.shape
    return (dt * a).reshape(batch, seqlen // 16, 16, heads).permute(0, 3, 1, 2).cumsum(-1)


@triton.jit
def _scaled_dot_kkt(
    k, beta, out, T, H: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, WIDE: tl.constexpr
):
    i_t = tl.program_id(0)
    i_bh = tl.program_id(1)
    i_b = i_bh // H
    i_h = i_bh % H
    if WIDE:
        i_b = i_b.to(tl.int64)
    bos = i_b * T
    o_t = i_t * BT + tl.arange(0, BT)
    b_beta = tl.load(beta + bos * H + i_h + o_t * H, mask=o_t < T, other=0.0)
    b_a = tl.zeros([BT, BT], dtype=tl.float32)
    for i_k in range(tl.cdiv(K, BK)):
        p_k = tl.make_block_ptr(k + (bos * H + i_h) * K, (T, K), (H * K, 1), (i_t * BT, i_k * BK), (BT, BK), (1, 0))
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_a += tl.sum(b_k[:, None, :] * b_k[None, :, :], axis=2)
    b_a = tl.where(tl.arange(0, BT)[:, None] > tl.arange(0, BT)[None, :], b_a * b_beta[:, None], 0.0)
    p_a = tl.make_block_ptr(out + (bos * H + i_h) * BT, (T, BT), (BT * H, 1), (i_t * BT, 0), (BT, BT), (1, 0))
    tl.store(p_a, b_a, boundary_check=(0, 1))


def scaled_dot_kkt(k, beta, wide):
    """fla-org/flash-linear-attention#1080: `(bos * H + i_h) * K` of chunk_scaled_dot_kkt.py."""
    B, T, H, K = k.shape
    out = torch.empty(B, T, H, 16, dtype=torch.float32, device=k.device)
    _scaled_dot_kkt[(triton.cdiv(T, 16), B * H)](k, beta, out, T, H=H, K=K, BT=16, BK=16, WIDE=wide)
    return out


def scaled_dot_kkt_spec(k, beta):
    B, T, H, K = k.shape
    rows = k.reshape(B, T // 16, 16, H, K).transpose(2, 3)
    products = (rows @ rows.transpose(-1, -2)) * beta.reshape(B, T // 16, 16, H).transpose(2, 3)[..., None]
    return products.tril(-1).transpose(2, 3).reshape(B, T, H, 16)


@triton.jit
def _quantise(
    x, out, scale, L, stride_iz, stride_ih, stride_in, stride_oz, stride_oh, stride_on, stride_sz, stride_sh,
    C: tl.constexpr, BLK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    off_blk = tl.program_id(0)
    off_h = tl.program_id(1)
    off_b = tl.program_id(2)
    if WIDE:
        off_b = off_b.to(tl.int64)
        off_h = off_h.to(tl.int64)
    offs_n = off_blk * BLK + tl.arange(0, BLK)
    if WIDE:
        offs_n = offs_n.to(tl.int64)
    offs_k = tl.arange(0, C)
    at = x + off_b * stride_iz + off_h * stride_ih + offs_n[:, None] * stride_in + offs_k[None, :]
    into = out + off_b * stride_oz + off_h * stride_oh + offs_n[:, None] * stride_on + offs_k[None, :]
    numbers = tl.load(at, mask=offs_n[:, None] < L, other=0.0)
    step = tl.max(tl.max(tl.abs(numbers), axis=1), axis=0) / 127.0
    whole = numbers / step
    whole += 0.5 * tl.where(whole >= 0, 1, -1)
    tl.store(into, whole.to(tl.int8), mask=offs_n[:, None] < L)
    tl.store(scale + off_b * stride_sz + off_h * stride_sh + off_blk, step)


def quantise(x, wide):
    """thu-ml/SageAttention#386: `off_b * stride_iz + ... + offs_n * stride_in` of the quantising kernels."""
    B, H, L, D = x.shape
    out = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scale = torch.empty(B, H, L // 32, dtype=torch.float32, device=x.device)
    strides = (*x.stride()[:3], *out.stride()[:3], *scale.stride()[:2])
    _quantise[(L // 32, H, B)](x, out, scale, L, *strides, C=D, BLK=32, WIDE=wide)
    return out, scale


def quantise_spec(x):
    B, H, L, D = x.shape
    blocks = x.reshape(B, H, L // 32, 32, D)
    scale = blocks.abs().amax((-1, -2)) / 127.0
    whole = blocks / scale[..., None, None]
    whole = whole + 0.5 * torch.where(whole >= 0, 1.0, -1.0)
    return whole.to(torch.int8).reshape(B, H, L, D), scale


@triton.jit
def _up_projection(
    x, w, pre, TK, stride_x, stride_w_n, stride_pre, H: tl.constexpr, N: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    row_start = tl.program_id(0) * BM
    rows = row_start + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, H)
    if WIDE:
        rows = rows.to(tl.int64)
    a = tl.load(x + rows[:, None] * stride_x + k[None, :], mask=rows[:, None] < TK, other=0.0)
    b = tl.load(w + n[:, None] * stride_w_n + k[None, :], mask=n[:, None] < N, other=0.0)
    sums = tl.sum(a[:, None, :] * b[None, :, :], axis=2)
    inside = (rows[:, None] < TK) & (n[None, :] < N)
    tl.store(pre + rows[:, None] * stride_pre + n[None, :], sums, mask=inside)


def up_projection(x, w, wide):
    """linkedin/Liger-Kernel#1248: `row_offs[:, None] * stride_pre_TK` of the fused kernels of experts."""
    TK, H = x.shape
    N = w.shape[0]
    pre = torch.empty(TK, N, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(TK, 16), triton.cdiv(N, 32))
    _up_projection[grid](x, w, pre, TK, x.stride(0), w.stride(0), pre.stride(0), H=H, N=N, BM=16, BN=32, WIDE=wide)
    return pre


def up_projection_spec(x, w):
    return x @ w.T


@triton.jit
def _gram(a, c, M, K: tl.constexpr, stride_ab, stride_ar, stride_cb, stride_cr, BM: tl.constexpr, WIDE: tl.constexpr):
    pid = tl.program_id(0)
    tiles = tl.cdiv(M, BM)
    batch_idx = pid // (tiles * tiles)
    pid = pid % (tiles * tiles)
    if WIDE:
        batch_idx = batch_idx.to(tl.int64)
    a += batch_idx * stride_ab
    c += batch_idx * stride_cb
    m = pid // tiles * BM + tl.arange(0, BM)
    n = pid % tiles * BM + tl.arange(0, BM)
    k = tl.arange(0, K)
    of_rows = tl.load(a + m[:, None] * stride_ar + k[None, :], mask=m[:, None] < M, other=0.0)
    of_columns = tl.load(a + n[:, None] * stride_ar + k[None, :], mask=n[:, None] < M, other=0.0)
    sums = tl.sum(of_rows[:, None, :] * of_columns[None, :, :], axis=2)
    tl.store(c + m[:, None] * stride_cr + n[None, :], sums, mask=(m[:, None] < M) & (n[None, :] < M))


def gram(a, wide):
    """microsoft/dion#102: `batch_idx * a_stride_b` of ns_line_1."""
    B, M, K = a.shape
    c = torch.empty(B, M, M, dtype=a.dtype, device=a.device)
    tiles = triton.cdiv(M, 16)
    strides = (a.stride(0), a.stride(1), c.stride(0), c.stride(1))
    _gram[(B * tiles * tiles,)](a, c, M, K, *strides, BM=16, WIDE=wide)
    return c


def gram_spec(a):
    return a @ a.transpose(1, 2)


@triton.jit
def _padded_copy(a, b, weights, NUM_COLUMNS: tl.constexpr, BLOCK_X: tl.constexpr, WIDE: tl.constexpr):
    index = tl.program_id(0)
    if WIDE:
        index = index.to(tl.int64)
    a += tl.multiple_of(index * NUM_COLUMNS, NUM_COLUMNS)
    b += tl.multiple_of(index * NUM_COLUMNS, NUM_COLUMNS)
    scale = tl.load(weights + index)
    offsets = tl.max_contiguous(tl.arange(0, BLOCK_X), BLOCK_X)
    for _ in range(tl.cdiv(NUM_COLUMNS, BLOCK_X)):
        mask = offsets < NUM_COLUMNS
        x = tl.load(a + offsets, mask=mask)
        tl.store(b + offsets, x * scale, mask=mask)
        offsets += BLOCK_X


def padded_copy(a, weights, wide):
    """databricks/megablocks#185: `tl.multiple_of(offset * NUM_COLUMNS, NUM_COLUMNS)` of _padded_copy."""
    a = a.contiguous()
    b = torch.empty_like(a)
    _padded_copy[(a.shape[0],)](a, b, weights.contiguous(), NUM_COLUMNS=a.shape[1], BLOCK_X=128, WIDE=wide)
    return b


def padded_copy_spec(a, weights):
    return a * weights[:, None]


@triton.jit
def _prefill(
    q, k, v, out, rows, keys, HEADS: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    head = tl.program_id(1)
    d = tl.arange(0, D)
    n = tl.arange(0, BN)
    if WIDE:
        row = row.to(tl.int64)
    at = (row[:, None] * HEADS + head) * D + d[None, :]
    queries = tl.load(q + at, mask=row[:, None] < rows, other=0.0)
    kv = (n[:, None] * HEADS + head) * D + d[None, :]
    b_k = tl.load(k + kv, mask=n[:, None] < keys, other=0.0)
    b_v = tl.load(v + kv, mask=n[:, None] < keys, other=0.0)
    scores = tl.sum(queries[:, None, :] * b_k[None, :, :], axis=2) * (D**-0.5)
    scores = tl.where(n[None, :] < keys, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    sums = tl.sum(weights[:, :, None] * b_v[None, :, :], axis=1) / tl.sum(weights, axis=1)[:, None]
    tl.store(out + at, sums, mask=row[:, None] < rows)


def prefill(q, k, v, wide):
    """turboderp-org/exllamav3#263: `(row * n_q_heads + q_head) * head_dim + d` of the prefill kernel."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    rows, heads, dim = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(rows, 8), heads)
    _prefill[grid](q, k, v, out, rows, len(k), HEADS=heads, D=dim, BM=8, BN=16, WIDE=wide)
    return out


def prefill_spec(q, k, v):
    scores = (q[:, None] * k).sum(-1) * q.shape[-1] ** -0.5
    return (scores.softmax(1)[..., None] * v).sum(1)


@triton.jit
def _quantise_tokens(qx, scale, x, cols, stride, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    offs = pid * stride + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < cols
    numbers = tl.load(x + offs, mask=mask, other=0.0)
    largest = tl.max(tl.abs(numbers))
    step = largest / 127.0
    tl.store(scale + pid, step)
    tl.store(qx + offs, numbers / step, mask=mask)


def quantise_tokens(x, wide):
    """ROCm/aiter#4870 has overflows like this one: `pid * x_in_stride_r` of a quantising kernel, a row each."""
    x = x.contiguous()
    rows, cols = x.shape
    qx = torch.empty_like(x)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    _quantise_tokens[(rows,)](qx, scale, x, cols, x.stride(0), BLOCK=triton.next_power_of_2(cols), WIDE=wide)
    return qx, scale


def quantise_tokens_spec(x):
    scale = x.abs().amax(-1) / 127.0
    return x / scale[:, None], scale


def _normal(*shapes):
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


#: Kernel, what it means, its inputs.
CASES = {
    "mamba chunk state": (chunk_cumsum, chunk_cumsum_spec, _normal((2, 32, 16), (16,))),
    "fla chunk_scaled_dot_kkt": (scaled_dot_kkt, scaled_dot_kkt_spec, _normal((2, 144, 1, 256), (2, 144, 1))),
    "SageAttention quantise": (quantise, quantise_spec, _normal((1, 3, 96, 128))),
    "Liger fused MoE": (up_projection, up_projection_spec, _normal((20, 32), (256, 32))),
    "dion ns_line": (gram, gram_spec, _normal((3, 16, 64))),
    "megablocks padded_copy": (padded_copy, padded_copy_spec, _normal((6, 256), (6,))),
    "exllamav3 prefill": (prefill, prefill_spec, _normal((10, 2, 64), (12, 2, 64), (12, 2, 64))),
    "aiter quantise": (quantise_tokens, quantise_tokens_spec, _normal((5, 384))),
}
