// What host code of CUDA C++ has of CUDA on the rehearsal device: sizes and streams, no errors, and launches, which Python
// executes. It stands in the place of the headers of CUDA's runtime, and of those of torch that need them.
#pragma once
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>

#include <cxxabi.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
#define OPASSAY_VECTORS(T, name) \
  struct name##1 { T x; }; \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; }; \
  struct name##3 { T x, y, z; }; \
  struct alignas(sizeof(T) > 4 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; };
OPASSAY_VECTORS(float, float)
OPASSAY_VECTORS(double, double)
OPASSAY_VECTORS(int, int)
OPASSAY_VECTORS(unsigned, uint)
OPASSAY_VECTORS(short, short)
OPASSAY_VECTORS(unsigned short, ushort)
OPASSAY_VECTORS(signed char, char)
OPASSAY_VECTORS(unsigned char, uchar)
OPASSAY_VECTORS(long long, longlong)
using __half = c10::Half;
using half = c10::Half;
using __nv_bfloat16 = c10::BFloat16;
using nv_bfloat16 = c10::BFloat16;
struct alignas(4) __half2 { __half x, y; };
using half2 = __half2;
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
using nv_bfloat162 = __nv_bfloat162;
inline __half __float2half(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize, cudaFuncAttributePreferredSharedMemoryCarveout };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin };
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
using cudaStream_t = struct CUstream_st*;
struct cudaDeviceProp {
  char name[64] = "rehearsal device (host memory)";
  int major = 9, minor = 0, multiProcessorCount = 132, maxThreadsPerBlock = 1024, warpSize = 32;
  size_t sharedMemPerBlock = 49152, sharedMemPerBlockOptin = 232448, sharedMemPerMultiprocessor = 233472;
};
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* own, int) { *own = cudaDeviceProp(); return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  *value = which == cudaDevAttrMultiProcessorCount ? 132 : 232448;
  return cudaSuccess;
}
template <class... A> cudaError_t cudaFuncSetAttribute(A&&...) { return cudaSuccess; }
template <class... A> cudaError_t cudaFuncSetCacheConfig(A&&...) { return cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t = nullptr) {
  std::memset(at, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* at, int value, size_t bytes) { return cudaMemsetAsync(at, value, bytes); }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t = nullptr) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind);
}

namespace c10::cuda {
struct CUDAStream {
  cudaStream_t stream() const { return nullptr; }
  operator cudaStream_t() const { return nullptr; }
};
inline CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) { return {}; }
using CUDAGuard = c10::DeviceGuard;
using OptionalCUDAGuard = c10::OptionalDeviceGuard;
}  // namespace c10::cuda
namespace at {
template <typename T> struct RestrictPtrTraits { using PtrType = T* __restrict__; };  // torch has it for nvcc alone
}
namespace at::cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::OptionalCUDAGuard;
inline const cudaDeviceProp* getCurrentDeviceProperties() {
  static const cudaDeviceProp own;
  return &own;
}
}  // namespace at::cuda
#define C10_CUDA_CHECK(x) (void)(x)
#define AT_CUDA_CHECK(x) (void)(x)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() (void)0

namespace opassay {
struct Configuration {
  dim3 grid, block;
  size_t shared = 0;
};
static thread_local Configuration configuration;
static PyObject* launcher = nullptr;  // of Python: (name, types, grid, block, bytes of shared memory, values)

static void configure(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr) {
  configuration = {grid, block, shared};
}

// An argument of a template as text: of a type, and of a number.
template <class T> std::string text() {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, &status);
  std::string own = name;
  std::free(name);
  return own;
}
template <auto N> std::string text() { return std::to_string(static_cast<long long>(N)); }

struct Value {
  const void* at;
  size_t bytes;
  std::string type;
};
template <class T> struct Plain { using type = T; };
template <class T> struct Plain<T* __restrict__> { using type = T*; };  // a type that has no name of its own
template <class T> Value value(const T& of) { return {&of, sizeof(T), text<typename Plain<T>::type>()}; }

// What stands in the place of a kernel: its arguments go to Python, whose exceptions come back as such.
static void enter(std::string name, std::vector<std::string> arguments, std::vector<Value> values) {
  for (size_t k = 0; k < arguments.size(); ++k) name += (k ? ", " : "<") + arguments[k];
  if (!arguments.empty()) name += ">";
  pybind11::gil_scoped_acquire hold;
  pybind11::list raw;
  std::string types;
  for (const Value& each : values) {
    raw.append(pybind11::bytes(static_cast<const char*>(each.at), each.bytes));
    types += (types.empty() ? "" : ", ") + each.type;
  }
  const auto sizes = [](const dim3& d) { return pybind11::make_tuple(d.x, d.y, d.z); };
  const auto& [grid, block, shared] = configuration;
  const pybind11::handle launch(launcher);
  launch(name, types, sizes(grid), sizes(block), shared, raw);
}
}  // namespace opassay
extern "C" __attribute__((visibility("default"))) void opassay_set_launcher(PyObject* launcher) {
  Py_INCREF(launcher);
  opassay::launcher = launcher;
}
