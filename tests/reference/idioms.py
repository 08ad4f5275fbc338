"""Two hundred things that formulas say in NumPy, as text: `x`, `y` of shape (3, 4), `p` positive, `v` (4,), `m` (4, 4).

`t` is of shape (2, 3, 4) and `i` an array of integers. `UNREAD` are those that end in a `NoReadingError`.
"""

from __future__ import annotations

METHODS = """
x.sum() | x.sum(axis=1) | x.sum(-1, keepdims=True) | x.mean() | x.mean(axis=0, keepdims=True) | x.var()
x.var(axis=-1) | x.std(axis=-1) | x.max() | x.max(axis=1, keepdims=True) | x.min() | x.min(axis=0) | np.ptp(x, 1)
x.reshape(4, 3) | x.reshape((2, 6)) | x.reshape(-1) | x.T | t.mT | x.transpose() | t.transpose(2, 0, 1)
x.astype(np.float64) | x.astype(float) | x.copy() | x.clip(-1.0, 1.0) | x.dot(v) | x.flatten() | x.ravel()
x.squeeze() | t.swapaxes(0, 2) | x.repeat(2, axis=0) | x.take([0, 2], axis=1) | m.trace() | m.diagonal() | x.round()
x.shape[0] * x | x.size * x | x.ndim * x | len(x) * x | (lambda z: z.__iadd__(y))(x.copy()) | x.cumsum(axis=1)
x.prod(axis=1) | x.argmax() * v | np.sort(x, axis=1)
"""
OPERATORS = """
x + y | x - 1 | 2 / p | x * x | -x | +x | abs(x) | x ** 2 | p ** 0.5 | p ** -1.5 | 2.0 ** x | p ** y | x // 0.7
x % 0.7 | divmod(x, 0.7)[0] | m @ m | x @ v | m @ v | x.round(1) | x[0] | x[:, 1:] | x[..., None] | x[::-1]
x[:, [0, 2]] | x[x.shape[0] - 1] | (x > 0) * x | np.where(x > y, x, y) | np.where((x > 0) & (y > 0), x, -y)
np.where(~(x > 0), x, 0.0) | (x > 0).astype(float) * y | sum(row for row in x) | t @ m | x[np.arange(3), i[:3]]
np.float64(3.0) * x | [1.0, 2.0, 3.0, 4.0] * x | np.pi * x | x / np.sqrt(2 * np.pi)
"""
ELEMENTARY = """
np.sin(x) | np.cos(x) | np.tan(x) | np.arcsin(np.tanh(x)) | np.arccos(np.tanh(x)) | np.arctan(x) | np.arctan2(x, y)
np.sinh(x) | np.cosh(x) | np.tanh(x) | np.arcsinh(x) | np.arccosh(1 + p) | np.arctanh(np.tanh(x)) | np.exp(x)
np.exp2(x) | np.expm1(x) | np.log(p) | np.log2(p) | np.log10(p) | np.log1p(p) | np.sqrt(p) | np.cbrt(x) | np.square(x)
np.reciprocal(p) | np.sign(x) | np.heaviside(x, 0.5) | np.fabs(x) | np.positive(x) | np.negative(x) | np.abs(x)
np.absolute(x) | np.logaddexp(x, y) | np.logaddexp2(x, y) | np.hypot(x, y) | np.floor(x) | np.ceil(x) | np.trunc(x)
np.rint(x) | np.round(x, 2) | np.fmod(x, 0.7) | np.remainder(x, 0.7) | np.mod(x, 0.7) | np.floor_divide(x, 0.7)
np.power(p, 1.5) | np.power(p, y) | np.float_power(p, y) | np.copysign(x, y) | np.degrees(x) | np.deg2rad(x) | erf(x)
erfc(x) | sigmoid(x) | np.divide(x, p) | np.true_divide(x, p) | np.subtract(x, y) | np.modf(x)[0] | np.sinc(x)
"""
SELECTION = """
np.maximum(x, 0) | np.minimum(x, y) | np.fmax(x, y) | np.fmin(x, 0.0) | np.clip(x, -1, 1) | np.clip(x, 0, None)
np.clip(x, v, 2.0) | np.select([x > 1, x > 0], [x, y], 0.0)
np.piecewise(x, [x < 0, x >= 0], [lambda z: -z, lambda z: z]) | np.nan_to_num(x) | np.where(np.isfinite(x), x, 0.0)
np.where(np.isnan(x), 0.0, x) | np.where(np.isinf(x), 0.0, x) | np.argmax(x) * v | np.argsort(x, axis=1) * x
np.take(x, i, axis=1) | np.take(x, [1, 5]) | np.take_along_axis(x, i[:3, None], 1) | np.median(x) | np.partition(x, 1)
np.choose(i, x[:2]) | np.where(np.logical_and(x > 0, y > 0), x, y) | np.where(np.logical_or(x > 0, y > 0), x, y)
np.where(np.logical_not(x > 0), x, y) | np.where(np.any(x > 0, axis=1, keepdims=True), x, y)
np.where(np.equal(x, y), x, 0.0) | np.where(np.signbit(x), x, 0.0)
"""
REDUCTIONS = """
np.sum(x) | np.sum(x, axis=(0, 1)) | np.sum(x, axis=0, dtype=np.float64) | np.sum(x, axis=1, where=x > 0)
np.mean(x, axis=1) | np.average(x) | np.average(x, axis=1, weights=np.arange(1.0, 5.0)) | np.var(x, axis=1)
np.var(x, axis=1, ddof=1) | np.std(x) | np.std(x, axis=0, ddof=1) | np.max(x, axis=1) | np.amax(x) | np.min(x, axis=1)
np.amin(x, axis=0) | np.ptp(x) | np.prod(x, axis=1) | np.cumsum(x, axis=1) | np.cumprod(x, axis=0) | np.diff(x)
np.diff(x, n=2, axis=1) | np.nansum(x) | np.nanmean(x, axis=0) | np.nanmax(x) | np.linalg.norm(x)
np.linalg.norm(x, axis=1) | np.linalg.norm(x, 1, axis=1) | np.linalg.norm(x, np.inf, axis=1)
np.linalg.norm(x, 3, axis=1, keepdims=True) | np.add.reduce(x) | np.maximum.reduce(x, axis=1) | np.trace(m)
np.trace(m, offset=1) | np.log(np.sum(np.exp(x), axis=1)) | np.mean(x, axis=1, where=y > -9)
"""
LINEAR = """
np.matmul(m, m) | np.matmul(t, m) | np.dot(x, v) | np.dot(m, m) | np.einsum('ij,kj->ik', x, y) | np.einsum('ij->j', x)
np.einsum('ij,ij', x, y) | np.einsum('bij,jk->bik', t, m) | np.einsum('...j,j->...', t, v)
np.einsum('i,j,k->ijk', v, v, v) | np.inner(v, v) | np.inner(x, y) | np.outer(v, v) | np.tensordot(t, m, axes=1)
np.tensordot(x, y, axes=([0, 1], [0, 1])) | np.vdot(x, y) | np.kron(x, y) | np.multiply.outer(v, v)
np.convolve(v, v) | np.linalg.inv(m) | np.linalg.det(m) | np.cross(x[:, :3], y[:, :3])
"""
SHAPES = """
np.roll(x, 1) | np.roll(x, 1, axis=1) | np.roll(x, (1, 2), axis=(0, 1)) | np.flip(x) | np.flip(x, axis=1)
np.fliplr(x) | np.flipud(x) | np.pad(x, 1) | np.pad(x, ((0, 0), (2, 1)), constant_values=1.0)
np.pad(x, ((1, 1), (0, 0)), mode='edge') | np.pad(x, 1, mode='reflect') | np.repeat(x, 2) | np.repeat(x, 3, axis=1)
np.tile(v, 2) | np.tile(x, (2, 2)) | np.split(x, 2, axis=1)[1] | np.split(x, [1, 3], axis=1)[1]
np.array_split(x, 3, axis=1)[0] | np.hstack([x, y]) | np.vstack([x, y]) | np.dstack([x, y]) | np.column_stack([v, v])
np.concatenate([x, y], 1) | np.stack([x, y], axis=-1) | np.diag(v) | np.diag(m) | np.diag(m, 1) | np.diagonal(m)
np.tril(m) | np.triu(m, 1) | np.ones_like(x) * x | np.zeros_like(x) + x | np.full_like(x, 2.0) * x
np.zeros_like(x, dtype=float) + x | np.moveaxis(t, 0, -1) | np.moveaxis(t, (0, 1), (1, 2)) | np.expand_dims(x, 0)
np.expand_dims(x, (0, 2)) | np.squeeze(x[None]) | np.swapaxes(x, 0, 1) | np.rollaxis(t, 2)
np.transpose(t, (1, 0, 2)) | np.broadcast_to(v, (3, 4)) | np.broadcast_arrays(x, v)[1] | np.atleast_2d(v)
np.ravel(x) | np.reshape(x, (4, 3)) | np.rot90(x) | np.append(x, y) | np.lib.stride_tricks.sliding_window_view(v, 2)
np.apply_along_axis(np.sum, 1, x) | np.meshgrid(v, v)[0] | x * np.finfo(np.float32).eps | np.shape(x)[1] * x
np.size(x) * x | np.ndim(x) * x
"""
TEXTS = (METHODS, OPERATORS, ELEMENTARY, SELECTION, REDUCTIONS, LINEAR, SHAPES)
#: What no reading has an exact value or a bound for: decompositions of matrices, and functions of functions.
UNREAD = ("np.linalg.inv(m)", "np.linalg.det(m)", "np.apply_along_axis(np.sum, 1, x)", "np.convolve(v, v)")
IDIOMS = [idiom.strip() for text in TEXTS for line in text.strip().splitlines() for idiom in line.split(" | ")]
