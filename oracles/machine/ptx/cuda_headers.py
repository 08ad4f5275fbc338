"""Headers for NVRTC: those of NVIDIA's packages, and what stands for those of the host's compiler.

A source for nvcc includes headers of its host code as well, of which NVRTC knows none. Those of C and C++ that a kernel
uses, too, are CCCL's `cuda::std` under their own names here; those of host code alone are empty.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

#: Headers of C++ that CCCL has.
OF_CUDA = (
    "algorithm", "array", "bit", "cassert", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstdlib", "cstring",
    "functional", "initializer_list", "limits", "numeric", "optional", "tuple", "type_traits", "utility",
)  # fmt: skip
#: Headers of C that stand for those of C++.
OF_C = ("assert", "float", "limits", "stddef", "stdint", "stdlib", "string")
#: Headers, and folders of headers, of host code alone.
_OF_HOST = (
    "stdio.h", "time.h", "cstdio", "ctime", "chrono", "exception", "fstream", "iomanip", "iostream", "map", "memory",
    "mutex", "random", "set", "sstream", "stdexcept", "string", "thread", "unordered_map", "vector", "cublas_v2.h",
    "cudnn.h", "curand.h", "Python.h", "torch/", "ATen/", "c10/", "pybind11/",
)  # fmt: skip
#: What cuda_runtime.h of nvcc takes of the host's math.h, where the functions themselves are CUDA's own.
_MATH = """#pragma once
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#define HUGE_VALF INFINITY
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000)
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_1_PI 0.31830988618379067154
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
"""
#: Names of C++ under `std`, where a header of CCCL has been read.
_AS_STD = "namespace cuda { namespace std {} }\nnamespace std { using namespace cuda::std; }\n"
#: The parts of CUB for blocks and warps: its header of everything is refused by NVRTC.
_CUB = (
    "block/block_load", "block/block_store", "block/block_reduce", "block/block_scan", "block/block_radix_sort",
    "warp/warp_reduce", "warp/warp_scan",
)  # fmt: skip


def find_folders() -> list[Path]:
    """The folders of NVIDIA's packages for CUDA, the latest version first."""
    package = importlib.util.find_spec("nvidia")
    roots = [Path(place) for place in (package.submodule_search_locations or ())] if package is not None else []
    return sorted((path for root in roots for path in root.glob("*") if (path / "lib").is_dir()), reverse=True)


def include_folders() -> list[Path]:
    """Where the headers of CUDA's runtime, and those of CCCL, lie."""
    every = [folder / "include" / part for folder in find_folders() for part in ("", "cccl")]
    return [folder for folder in every if folder.is_dir()]


def host_headers(source: str) -> dict[str, str]:
    """The headers of the host's compiler that a source includes, and those of C -> what stands for each."""
    names = re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', source, re.MULTILINE)
    names += ["math.h", "stdio.h", *(f"{name}.h" for name in OF_C)]  # which NVIDIA's headers include
    return {name: text for name in names if (text := _text_of(name)) is not None}


def _text_of(name: str) -> str | None:
    if name == "math.h":
        return _MATH
    if any(name.startswith(each) if each.endswith("/") else name == each for each in _OF_HOST):
        return ""
    if name == "cuda.h":  # functions of the host, and the map of a tensor, which a kernel may be given
        return "struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };\n"
    if name == "cub/cub.cuh":
        return "".join(f"#include <cub/{part}.cuh>\n" for part in _CUB)
    if name.endswith(".h") and name[:-2] in OF_C:
        return f"#include <cuda/std/c{name[:-2]}>\n{_AS_STD}using namespace std;\n"
    if name in OF_CUDA:
        return f"{_MATH if name == 'cmath' else ''}#include <cuda/std/{name}>\n{_AS_STD}"
    return None
