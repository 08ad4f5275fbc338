"""Specs with Fourier transforms: all of torch's are read, what computes the same is accepted, and mistakes are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fft

import opassay
from tests.oracles.fourier_kernels import by_chirp, by_half_length, by_halves, by_parts, weights
from tests.oracles.spec_judging import accepted, gradients_agree, read

Spec = Callable[..., Tensor]
ASKED = ["FWD:given", "VJP:grad"]


def _parts(z: Tensor) -> Tensor:
    return torch.view_as_real(z.resolve_conj())


def _windows(x: Tensor) -> Tensor:
    return torch.stft(x.reshape(3, 24), 8, 4, window=torch.hann_window(8, dtype=x.dtype), return_complex=True)


#: Of two tensors, the parts of a complex one.
_READ: dict[str, Spec] = {
    "fft": lambda x, y: _parts(fft.fft(x)),
    "fft of a dim": lambda x, y: _parts(fft.fft(torch.complex(x, y), n=5, dim=1, norm="ortho")),
    "ifft": lambda x, y: _parts(fft.ifft(torch.complex(x, y), n=7)),
    "ifft forward": lambda x, y: _parts(fft.ifft(x, norm="forward")),
    "rfft": lambda x, y: _parts(fft.rfft(x, n=9, norm="forward")),
    "irfft": lambda x, y: fft.irfft(torch.complex(x, y)),
    "irfft odd": lambda x, y: fft.irfft(torch.complex(x, y), n=9, norm="ortho"),
    "irfft short": lambda x, y: fft.irfft(torch.complex(x, y), n=3),
    "irfft of one": lambda x, y: fft.irfft(torch.complex(x, y), n=1),
    "irfft of two": lambda x, y: fft.irfft(torch.complex(x, y), n=2),
    "hfft": lambda x, y: fft.hfft(torch.complex(x, y), n=8),
    "ihfft": lambda x, y: _parts(fft.ihfft(x)),
    "fft2": lambda x, y: _parts(fft.fft2(x)),
    "ifft2": lambda x, y: _parts(fft.ifft2(torch.complex(x, y), s=(3, 8))),
    "rfft2": lambda x, y: _parts(fft.rfft2(x, norm="ortho")),
    "irfft2": lambda x, y: fft.irfft2(torch.complex(x, y)),
    "irfft2 odd": lambda x, y: fft.irfft2(torch.complex(x, y), s=(4, 7)),
    "fftn": lambda x, y: _parts(fft.fftn(torch.complex(x, y))),
    "ifftn": lambda x, y: _parts(fft.ifftn(torch.complex(x, y), dim=(0, 2))),
    "rfftn": lambda x, y: _parts(fft.rfftn(x, dim=(2, 0))),
    "irfftn": lambda x, y: fft.irfftn(torch.complex(x, y)),
    "hfftn": lambda x, y: fft.hfftn(torch.complex(x, y)),
    "ihfft2": lambda x, y: _parts(fft.ihfft2(x)),
    "shifted": lambda x, y: _parts(fft.fftshift(fft.fft(fft.ifftshift(x, dim=1)))),
    "frequencies": lambda x, y: (
        _parts(fft.fft(x) * fft.fftfreq(6, dtype=x.dtype)) + fft.rfftfreq(10, dtype=x.dtype)[:1]
    ),
    "windows": lambda x, y: _parts(_windows(x)),
}


def _two(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(shape, generator=generator, dtype=dtype) for _ in range(2))
    return x, y


@pytest.mark.one_fast_in(7)
@pytest.mark.parametrize("name", _READ)
def test_torch_is_accepted_and_gradients_are_those_of_torch(name: str) -> None:
    for dtype in (torch.float32, torch.float64):
        operands = _two(3, 4, 6, dtype=dtype)
        (bound,) = read(_READ[name], operands)
        result = _READ[name](*operands)
        assert result.shape == bound.shape
        assert accepted(result, bound).all()
    assert gradients_agree(lambda x, y: _READ[name](x, y) + 0 * y.sum(), *_two(3, 4, 6))


def _verdict(candidate: Spec, spec: Spec, *operands: Tensor) -> str:
    judgement = opassay.judge(candidate, spec, operands, questions=ASKED, seed=0)
    assert not judgement.error, str(judgement)
    return judgement.verdict


def _spectrum(x: Tensor) -> Tensor:
    return _parts(fft.rfft(x))


@pytest.mark.slow
def test_other_ways_to_a_spectrum_are_accepted() -> None:
    x, _ = _two(4, 16)
    for candidate in (by_half_length, lambda x: by_halves(x + 0j)[..., :9], lambda x: by_parts(x + 0j)[..., :9],
                      lambda x: by_chirp(x + 0j)[..., :9]):  # fmt: skip
        assert _verdict(lambda x, c=candidate: _parts(c(x)), _spectrum, x) == "accepted"


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x: _parts(by_half_length(x).conj()),
        lambda x: _parts(by_half_length(x)) / 4,
        lambda x: _parts(by_half_length(x * (1 + 1e-4))),
        lambda x: _parts(by_halves(x + 0j, lambda *of: weights(*of).real.half().float() + 0j)[..., :9]),
    ],
)
def test_a_wrong_spectrum_is_rejected(mistake: Spec) -> None:
    assert _verdict(mistake, _spectrum, *_two(4, 16)[:1]) == "rejected"


def _back(x: Tensor, y: Tensor) -> Any:
    return fft.irfft(torch.complex(x, y), n=16)


def _transform_mirror(x: Tensor, y: Tensor, sign: float = -1.0, edge: float = 0.0) -> Tensor:
    """The real part of the inverse transform of a spectrum and its mirror image."""
    ends = torch.ones(9, dtype=x.dtype)
    ends[[0, 8]] = edge
    whole = torch.complex(
        torch.cat([x, x[..., 1:8].flip(-1)], -1), torch.cat([y * ends, sign * y[..., 1:8].flip(-1)], -1)
    )
    z = by_halves(whole.conj()).conj() / 16
    return z.real + (z.imag if edge else 0.0)


@pytest.mark.slow
def test_the_inverse_of_half_a_spectrum_leaves_out_two_imaginary_parts_and_mirrors_conjugates() -> None:
    operands = _two(4, 9)
    assert _verdict(_transform_mirror, _back, *operands) == "accepted"
    assert _verdict(lambda x, y: _transform_mirror(x, y, 1.0), _back, *operands) == "rejected"
    assert _verdict(lambda x, y: _transform_mirror(x, y, edge=1.0), _back, *operands) == "rejected"
    assert _verdict(lambda x, y: 16 * _transform_mirror(x, y), _back, *operands) == "rejected"


def _convolve(x: Tensor, k: Tensor) -> Any:
    """A long convolution, as by FFT."""
    n = 2 * x.shape[-1]
    return fft.irfft(fft.rfft(x, n=n) * fft.rfft(k, n=n), n=n)[..., : x.shape[-1]]


def _convolve_by_sums(x: Tensor, k: Tensor) -> Tensor:
    """The same as one sum for each element."""
    return F.conv1d(F.pad(x, (x.shape[-1] - 1, 0))[:, None], k[0].flip(-1)[None, None])[:, 0]


@pytest.mark.slow
def test_a_convolution_by_transforms_is_right_by_any_transform_or_none() -> None:
    x, k = _two(3, 16)
    x, k = x, k[:1]

    def by_chirps(x: Tensor, k: Tensor) -> Tensor:
        a, b = (by_chirp(F.pad(each, (0, 16)) + 0j) for each in (x, k))
        return (by_halves((a * b).conj()).conj() / 32).real[..., :16]

    for candidate in (_convolve, by_chirps, _convolve_by_sums):
        assert _verdict(candidate, _convolve, x, k) == "accepted"
    circular: list[Any] = [
        lambda x, k: fft.irfft(fft.rfft(x) * fft.rfft(k), n=16),
        lambda x, k: fft.irfft(fft.rfft(x, n=32) * fft.rfft(k, n=32).conj(), n=32)[..., :16],
    ]
    for candidate in circular:
        assert _verdict(candidate, _convolve, x, k) == "rejected"


@pytest.mark.slow
def test_a_convolution_by_transforms_is_not_within_the_sums_of_one_without() -> None:
    """A small element beside a large one: a transform has errors of the large one everywhere."""
    x, k = _two(2, 64)
    k = k[:1] * torch.exp(-0.5 * torch.arange(64.0))
    x = x * torch.logspace(-6, 0, 64)
    assert _verdict(_convolve_by_sums, _convolve_by_sums, x, k) == "accepted"
    assert _verdict(_convolve, _convolve_by_sums, x, k) == "rejected"


def _signal_of_frames(z: Tensor) -> Tensor:
    return torch.istft(z, 8, 2, window=torch.hann_window(8), length=32)


def _overlap_and_add(z: Tensor, window: Tensor) -> Tensor:
    """The signal of frames as they follow each other, over what is left of the squared window there."""
    frames = fft.irfft(z, 8, dim=0) * window[:, None]
    total, envelope = torch.zeros(40), torch.zeros(40)
    for t in range(z.shape[1]):
        total[2 * t : 2 * t + 8] += frames[:, t]
        envelope[2 * t : 2 * t + 8] += window * window
    return total[4:36] / envelope[4:36]


@pytest.mark.slow
def test_a_signal_comes_back_by_overlapping_frames_and_not_without_their_window() -> None:
    z = torch.view_as_complex(torch.randn(5, 17, 2, generator=torch.Generator().manual_seed(2)))
    hann, even = torch.hann_window(8), torch.ones(8)
    assert _verdict(_signal_of_frames, _signal_of_frames, z) == "accepted"
    assert _verdict(lambda z: _overlap_and_add(z, hann), _signal_of_frames, z) == "accepted"
    assert _verdict(lambda z: _overlap_and_add(z, hann) * (1 + 1e-4), _signal_of_frames, z) == "rejected"
    assert _verdict(lambda z: _overlap_and_add(z, even), _signal_of_frames, z) == "rejected"
