"""Kernels that host code brings to CUDA's driver are executed on the rehearsal device, right and wrong ones."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.machine.ptx.tensor_maps import field
from opassay.properties.rehearsal.environment import LIBRARY

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif(LIBRARY not in os.environ, reason="tests of python -m tests.rehearsal -m pytest"),
]
#: y[i] = by * x[i] below n, of one structure and three numbers.
_TEXT = """
.version 8.7
.target sm_80
.address_size 64
.visible .entry scale(.param .align 8 .b8 memory[16], .param .f32 by, .param .u32 n)
{
.reg .pred %p<2>;
.reg .b32 %r<8>;
.reg .f32 %f<4>;
.reg .b64 %rd<6>;
ld.param.b64 %rd1, [memory];
ld.param.b64 %rd2, [memory+8];
ld.param.f32 %f1, [by];
ld.param.u32 %r1, [n];
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mov.u32 %r4, %tid.x;
mad.lo.s32 %r5, %r2, %r3, %r4;
setp.ge.u32 %p1, %r5, %r1;
@%p1 bra $end;
mul.wide.u32 %rd3, %r5, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
ld.global.f32 %f2, [%rd4];
mul.rn.f32 %f3, %f2, %f1;
st.global.f32 [%rd5], %f3;
$end:
ret;
}
"""
_BLOCK = 32
Launch = Callable[..., int]


def _kernel(text: bytes, name: bytes = b"scale") -> tuple[ctypes.CDLL, ctypes.c_void_p, int]:
    """The driver as whoever needs it loads it, a kernel of an image, and what the driver says."""
    cuda, module, kernel = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuInit(0)
    result = cuda.cuModuleLoadData(ctypes.byref(module), text)
    return cuda, kernel, result or cuda.cuModuleGetFunction(ctypes.byref(kernel), module, name)


def _scale(x: Tensor, text: str = _TEXT, shared: int = 0, stream: int = 0) -> tuple[Tensor, int]:
    """What `scale` makes of a vector, and what the driver says."""
    cuda, kernel, result = _kernel(text.encode())
    assert result == 0
    y = torch.empty_like(x)
    memory = (ctypes.c_uint64 * 2)(x.data_ptr(), y.data_ptr())
    by, n = ctypes.c_float(2.5), ctypes.c_uint32(x.numel())
    values = (ctypes.c_void_p * 3)(*(ctypes.addressof(each) for each in (memory, by, n)))
    blocks = -(-x.numel() // _BLOCK)
    result = cuda.cuLaunchKernel(kernel, blocks, 1, 1, _BLOCK, 1, 1, shared, ctypes.c_void_p(stream), values, None)
    return y, result


def test_host_code_that_calls_the_driver_is_judged() -> None:
    inputs = (torch.randn(100, device="cuda"),)
    questions = ["FWD:given", "CALLS:again", "SIZE:sizes"]
    judgement = opassay.judge(
        lambda x: _scale(x.contiguous())[0], lambda x: x * 2.5, inputs, questions=questions, compiled="sm_90"
    )
    assert judgement.verdict == "accepted", str(judgement)
    assert any(line.startswith("scale: ") for line in judgement.execution)


def test_launches_by_addresses_are_not_judged_beyond_32_bits() -> None:
    judgement = opassay.judge(
        lambda x: _scale(x.contiguous())[0], lambda x: x * 2.5, (torch.randn(4, 25, device="cuda"),),
        questions=["FWD:given", "FAR"], compiled="sm_90",
    )  # fmt: skip
    assert judgement.verdict == "weak", str(judgement)
    assert any("FAR was not judged" in line and "by its operands' addresses" in line for line in judgement.weaknesses)


@pytest.mark.parametrize(
    ("right", "wrong", "code"),
    [("mul.rn.f32 %f3", "add.rn.f32 %f3", "OA101"), ("setp.ge.u32", "setp.gt.u32", "OA112")],
)
def test_host_code_with_a_fault_in_its_kernel_is_rejected(right: str, wrong: str, code: str) -> None:
    text = _TEXT.replace(right, wrong)
    assert text != _TEXT

    def candidate(x: Tensor) -> Tensor:
        return _scale(x.contiguous(), text)[0]  # an author who does not ask what the driver says

    inputs = (torch.randn(100, device="cuda"),)
    judgement = opassay.judge(candidate, lambda x: x * 2.5, inputs, questions=["FWD:given"], compiled="sm_90")
    assert judgement.verdict == "rejected", str(judgement)
    assert code in str(judgement), str(judgement)


def test_a_launch_is_done_on_its_stream() -> None:
    x, stream = torch.randn(100, device="cuda"), torch.cuda.Stream()
    assert _scale(x, stream=stream.cuda_stream)[1] != 0  # x was written on the default stream
    stream.wait_stream(torch.cuda.current_stream())
    y, result = _scale(x, stream=stream.cuda_stream)
    torch.cuda.synchronize()
    assert result == 0
    assert torch.equal(y.cpu(), x.cpu() * 2.5)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_what_the_driver_refuses() -> None:
    x = torch.randn(100, device="cuda")
    assert _scale(x, shared=48 << 10)[1] == 0
    assert _scale(x, shared=(48 << 10) + 1)[1] != 0  # without the attribute that allows more
    cuda, kernel, result = _kernel(b"\x7fELF" + bytes(60))  # machine code, of which sizes alone are known
    assert result == 0
    assert cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None) != 0
    assert _kernel(_TEXT.encode(), b"other")[2] != 0


def test_what_cannot_be_read_is_no_fault_of_a_candidate() -> None:
    text = _TEXT.replace(".reg .f32 %f<4>;", ".reg .f32 %f<4>;\n.reg .v3 .s32 odd;")
    inputs = (torch.randn(100, device="cuda"),)

    def candidate(x: Tensor) -> Tensor:
        if _kernel(text.encode())[2]:
            raise RuntimeError("the driver refuses it")
        return x * 2.5

    judgement = opassay.judge(candidate, lambda x: x * 2.5, inputs, questions=["FWD:given"], compiled="sm_90")
    assert judgement.verdict == "error", str(judgement)
    assert "scale: its PTX cannot be read" in str(judgement)


def test_the_driver_tells_of_the_devices() -> None:
    cuda, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    assert cuda.cuDeviceGetCount(ctypes.byref(value)) == 0
    assert value.value == torch.cuda.device_count()
    assert cuda.cuDeviceGetAttribute(ctypes.byref(value), 16, 0) == 0
    assert value.value == torch.cuda.get_device_properties().multi_processor_count
    assert cuda.cuDeviceGetAttribute(ctypes.byref(value), 9999, 0) != 0
    assert cuda.cuDeviceGetAttribute(ctypes.byref(value), 16, 7) != 0


@pytest.mark.parametrize(("name", "known"), [(b"cuLaunchKernel", True), (b"cuDeviceTotalMem", True), (b"cuNo", False)])
def test_functions_are_found_by_name(name: bytes, known: bool) -> None:
    function, how = ctypes.c_void_p(), ctypes.c_int(7)
    ask = ctypes.CDLL("libcuda.so.1").cuGetProcAddress_v2
    result = ask(name, ctypes.byref(function), 12000, ctypes.c_uint64(0), ctypes.byref(how))
    assert (result == 0) == (how.value == 0) == bool(function.value) == known


def test_maps_of_tensors_have_the_bits_that_the_executor_reads() -> None:
    encode, content = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled, (ctypes.c_uint8 * 128)()
    shape, strides = (ctypes.c_uint64 * 3)(128, 64, 5), (ctypes.c_uint64 * 2)(256, (1 << 39) + 128)
    box, steps = (ctypes.c_uint32 * 3)(64, 8, 2), (ctypes.c_uint32 * 3)(1, 2, 1)
    address, bfloat16, sizes = ctypes.c_void_p(4096), 9, (shape, strides, box, steps)
    assert encode(content, bfloat16, 3, address, *sizes, 0, 3, 0, 1) == 0
    whole = int.from_bytes(bytes(content), "little")
    read = {name: field(whole, name) for name in ("global_address", "mark", "rank", "elemtype", "swizzle_mode")}
    assert read == {"global_address": 4096, "mark": 2, "rank": 2, "elemtype": 10, "swizzle_mode": 3}
    assert field(whole, "fill_mode") == 1
    by_axis = {"global_dim": [*shape], "box_dim": [*box], "element_stride": [*steps], "global_stride": [*strides]}
    for name, numbers in by_axis.items():
        assert [field(whole, name, axis) for axis in range(len(numbers))] == numbers
    strides[0] = 8
    assert encode(content, bfloat16, 3, address, *sizes, 0, 3, 0, 1) != 0
    assert encode(content, bfloat16, 3, ctypes.c_void_p(8), *sizes, 0, 3, 0, 1) != 0


#: Thread i of each block writes the number of the other block of its cluster.
_OTHERS = """
.version 8.7
.target sm_90
.address_size 64
.shared .align 4 .b8 word[4];
.visible .entry others(.param .u64 y)
{
.reg .b32 %r<8>;
.reg .b64 %rd<4>;
ld.param.b64 %rd1, [y];
mov.u32 %r1, %cluster_ctarank;
xor.b32 %r2, %r1, 1;
mov.u32 %r3, %ctaid.x;
mov.b32 %r4, word;
mapa.shared::cluster.u32 %r5, %r4, %r2;
st.shared::cluster.b32 [%r5], %r3;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ld.shared.b32 %r6, [%r4];
mul.wide.u32 %rd2, %r3, 4;
add.s64 %rd3, %rd1, %rd2;
st.global.b32 [%rd3], %r6;
ret;
}
"""


class _LaunchAttribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int32), ("padding", ctypes.c_int32), ("value", ctypes.c_uint32 * 16))


class _LaunchConfiguration(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_LaunchAttribute)), ("count", ctypes.c_uint32),
    )  # fmt: skip


def test_a_launch_has_the_clusters_of_its_attribute() -> None:
    cuda, kernel, result = _kernel(_OTHERS.encode(), b"others")
    assert result == 0
    y = torch.full((4,), -1, dtype=torch.int32, device="cuda")
    pointer = ctypes.c_uint64(y.data_ptr())
    values = (ctypes.c_void_p * 1)(ctypes.addressof(pointer))
    for blocks, cluster, right in ((4, 2, True), (3, 2, False), (4, 0, False), (4, 1, False)):
        attribute = _LaunchAttribute(4, 0, (ctypes.c_uint32 * 16)(cluster, 1, 1))
        extents = (ctypes.c_uint32 * 3)(blocks, 1, 1), (ctypes.c_uint32 * 3)(32, 1, 1)
        configuration = _LaunchConfiguration(*extents, 0, None, ctypes.pointer(attribute), 1)
        assert (cuda.cuLaunchKernelEx(ctypes.byref(configuration), kernel, values, None) == 0) == right
    assert y.tolist() == [1, 0, 3, 2]


def _through_driver(x: Tensor, copy: str = "cuMemcpyDtoH_v2") -> tuple[Tensor, list[int]]:
    """What `scale` makes of a vector in the host's memory, all of whose memory on the device is the driver's."""
    cuda, kernel, result = _kernel(_TEXT.encode())
    y, bytes_, results = torch.zeros_like(x), ctypes.c_size_t(4 * x.numel()), [result]
    places = [ctypes.c_uint64(), ctypes.c_uint64()]
    results += [cuda.cuMemAlloc_v2(ctypes.byref(place), bytes_) for place in places]
    results.append(cuda.cuMemcpyHtoD_v2(places[0], ctypes.c_void_p(x.data_ptr()), bytes_))
    memory, by, n = (
        (ctypes.c_uint64 * 2)(*(each.value for each in places)),
        ctypes.c_float(2.5),
        ctypes.c_uint32(len(x)),
    )
    values = (ctypes.c_void_p * 3)(*(ctypes.addressof(each) for each in (memory, by, n)))
    results.append(cuda.cuLaunchKernel(kernel, -(-len(x) // _BLOCK), 1, 1, _BLOCK, 1, 1, 0, None, values, None))
    results.append(getattr(cuda, copy)(ctypes.c_void_p(y.data_ptr()), places[1], bytes_))
    results += [cuda.cuMemFree_v2(place) for place in places]
    return y, results


def test_memory_of_the_driver_is_the_device_s() -> None:
    x = torch.randn(100)
    y, results = _through_driver(x)
    assert results == [0] * len(results)
    assert torch.equal(y, x * 2.5)


def test_what_the_driver_refuses_of_memory() -> None:
    cuda, place, back = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), (ctypes.c_uint32 * 8)()
    assert cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(0)) != 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(1 << 40)) == 2
    before = torch.cuda.memory_allocated()
    assert cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(32)) == 0
    assert torch.cuda.memory_allocated() == before + 32
    assert cuda.cuMemsetD32_v2(place, 7, ctypes.c_size_t(8)) == 0
    assert cuda.cuMemsetD8_v2(ctypes.c_uint64(place.value + 4), 1, ctypes.c_size_t(4)) == 0
    assert cuda.cuMemcpyDtoH_v2(back, place, ctypes.c_size_t(32)) == 0
    assert [*back] == [7, 0x01010101, *[7] * 6]
    for count in (9, 1 << 20):  # beyond what was asked for
        assert cuda.cuMemsetD32_v2(place, 7, ctypes.c_size_t(count)) != 0
        assert cuda.cuMemcpyDtoH_v2(back, place, ctypes.c_size_t(4 * count)) != 0
    assert cuda.cuMemcpyDtoH_v2(back, ctypes.c_uint64(ctypes.addressof(back)), ctypes.c_size_t(4)) != 0
    assert cuda.cuMemFree_v2(place) == 0
    assert torch.cuda.memory_allocated() == before
    assert cuda.cuMemFree_v2(place) != 0
    assert cuda.cuMemsetD32_v2(place, 7, ctypes.c_size_t(1)) != 0


def test_a_copy_on_a_stream_that_nobody_waits_for_is_a_race() -> None:
    cuda, place, back = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), (ctypes.c_uint32 * 8)()
    assert cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(32)) == 0
    stream = torch.cuda.Stream()
    handle = ctypes.c_void_p(stream.cuda_stream)
    assert cuda.cuMemsetD32Async(place, 7, ctypes.c_size_t(8), handle) == 0
    assert cuda.cuMemcpyDtoH_v2(back, place, ctypes.c_size_t(32)) != 0  # on the default stream
    torch.cuda.current_stream().wait_stream(stream)
    assert cuda.cuMemcpyDtoH_v2(back, place, ctypes.c_size_t(32)) == 0
    assert cuda.cuMemFree_v2(place) == 0
