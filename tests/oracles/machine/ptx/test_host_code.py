"""A source of CUDA C++ is parted as nvcc parts it: kernels for NVRTC, host code with stubs in their places."""

from __future__ import annotations

import re

import pytest

from opassay.oracles.machine.ptx.host_code import SplitError, split_source

_SOURCE = r"""
#include <torch/extension.h>
#include <vector>
#include <cuda_runtime.h>
#define CHECK(x) \
    TORCH_CHECK(x.is_cuda(), "{ <<<")
constexpr int WIDTH = 32;  // }
struct Add { __device__ float operator()(float a, float b) const { return a + b; } };
__constant__ float factors[2] = {1.0f, 2.0f};
__device__ float square(float x) { return x * x; }
__host__ __device__ inline int above(int a, int b) { return (a + b - 1) / b; }
namespace own {
namespace {
template <typename T, int N = 4, class Op>
__global__ void __launch_bounds__(WIDTH * 2, 2)
apply(const T* __restrict__ x, T* y, const int n, float eps = 1.f, Op op) {
    if (threadIdx.x < n) y[0] = square(x[0]); /* } */
}
}
}  // namespace own
extern "C" __global__ void plain(float* x) { x[0] = 1; }
torch::Tensor run(torch::Tensor x, double eps = 1e-5);
torch::Tensor run(torch::Tensor x, double eps) {
    const char* text = "plain<<<1, 2>>>(x)";
    own::apply<scalar_t, 4, Add><<<dim3(above(x.numel(), 4)), (int)sizeof(std::pair<int, int>), 0, stream>>>(
        x.data_ptr<float>(), nullptr, x.numel(), eps, Add());
    if (eps > 0) plain<<<1, WIDTH>>>(x.data_ptr<float>());
    return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


def test_kernels_go_to_one_side_and_host_code_to_the_other() -> None:
    split = split_source(_SOURCE)
    assert split.kernels == ("own::apply", "plain")
    for text in (
        "y[0] = square(x[0])",
        "factors[2]",
        "float square",
        "int above",
        "WIDTH = 32",
        "struct Add",
        "CHECK(x)",
    ):
        assert text in split.device, text
    for text in ("torch::Tensor run", "PYBIND11_MODULE", "<<<dim3"):
        assert text not in split.device, text
    for text in (
        "y[0] = square(x[0])",
        "factors[2]",
        "float square",
        "cuda_runtime",
        "__global__",
        "__launch_bounds__",
    ):
        assert text not in split.host, text
    for text in (
        "int above",
        "WIDTH = 32",
        "struct Add",
        "CHECK(x)",
        "PYBIND11_MODULE",
        "#include <vector>",
        "eps = 1e-5",
    ):
        assert text in split.host, text


def test_a_launch_is_a_configuration_and_a_call() -> None:
    host = split_source(_SOURCE).host
    assert "opassay::configure(dim3(above(x.numel(), 4)), (int)sizeof(std::pair<int, int>), 0, stream), " in host
    assert "own::apply<scalar_t, 4, Add>(\n        x.data_ptr<float>(), nullptr" in host
    assert "if (eps > 0) opassay::configure(1, WIDTH), plain(x.data_ptr<float>());" in host
    assert '"plain<<<1, 2>>>(x)"' in host


def test_a_kernel_becomes_a_stub_that_names_its_arguments() -> None:
    host = split_source(_SOURCE).host
    assert 'opassay::enter("own::apply", {opassay::text<T>(), opassay::text<N>(), opassay::text<Op>()}, ' in host
    values = ", ".join(f"opassay::value({name})" for name in ("x", "y", "n", "eps", "op"))
    assert values in host
    assert 'opassay::enter("plain", {}, {opassay::value(x)});' in host


def test_lines_are_those_of_the_source() -> None:
    line = _SOURCE[: _SOURCE.index("template <typename T")].count("\n") + 1
    assert re.search(rf"#line {line}\ntemplate <typename T", split_source(_SOURCE).device)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("void f() { if (x) {", r"\{ has no \}"),
        ("__global__ void f(float*) {}", "a parameter has no name: 'float\\*'"),
        ("void f() { (g)<<<1, 1>>>(); }", "a launch of no name"),
        ("void f() { g<<<1, 1>(); }", "<<< has no >>>"),
    ],
)
def test_what_cannot_be_parted_is_told(source: str, message: str) -> None:
    with pytest.raises(SplitError, match=message):
        split_source(source)
