// Types of torch in kernels, as NVRTC is given them: half types, whose operations round each result as torch's do, and
// accessors, which have the members of torch's in their order.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef signed long long int64_t;  // as CCCL's for NVRTC
typedef unsigned long long uint64_t;

namespace c10 {
#define OPASSAY_HALF(Name, Raw, of_float, to_float)                                                          \
  struct alignas(2) Name {                                                                                   \
    Raw x;                                                                                                   \
    Name() = default;                                                                                        \
    __device__ Name(float value) : x(of_float(value)) {}                                                     \
    __device__ Name(Raw value) : x(value) {}                                                                 \
    __device__ operator float() const { return to_float(x); }                                                \
    __device__ operator Raw() const { return x; }                                                            \
    __device__ Name& operator+=(const Name& b) { return *this = Name(float(*this) + float(b)); }             \
    __device__ Name& operator-=(const Name& b) { return *this = Name(float(*this) - float(b)); }             \
    __device__ Name& operator*=(const Name& b) { return *this = Name(float(*this) * float(b)); }             \
    __device__ Name& operator/=(const Name& b) { return *this = Name(float(*this) / float(b)); }             \
  };                                                                                                         \
  __device__ inline Name operator+(const Name& a, const Name& b) { return Name(float(a) + float(b)); }       \
  __device__ inline Name operator-(const Name& a, const Name& b) { return Name(float(a) - float(b)); }       \
  __device__ inline Name operator*(const Name& a, const Name& b) { return Name(float(a) * float(b)); }       \
  __device__ inline Name operator/(const Name& a, const Name& b) { return Name(float(a) / float(b)); }       \
  __device__ inline Name operator-(const Name& a) { return Name(-float(a)); }                                \
  __device__ inline float operator+(const Name& a, float b) { return float(a) + b; }                         \
  __device__ inline float operator-(const Name& a, float b) { return float(a) - b; }                         \
  __device__ inline float operator*(const Name& a, float b) { return float(a) * b; }                         \
  __device__ inline float operator/(const Name& a, float b) { return float(a) / b; }                         \
  __device__ inline float operator+(float a, const Name& b) { return a + float(b); }                         \
  __device__ inline float operator-(float a, const Name& b) { return a - float(b); }                         \
  __device__ inline float operator*(float a, const Name& b) { return a * float(b); }                         \
  __device__ inline float operator/(float a, const Name& b) { return a / float(b); }                         \
  __device__ inline bool operator<(const Name& a, const Name& b) { return float(a) < float(b); }             \
  __device__ inline bool operator>(const Name& a, const Name& b) { return float(a) > float(b); }             \
  __device__ inline bool operator<=(const Name& a, const Name& b) { return float(a) <= float(b); }           \
  __device__ inline bool operator>=(const Name& a, const Name& b) { return float(a) >= float(b); }           \
  __device__ inline bool operator==(const Name& a, const Name& b) { return float(a) == float(b); }           \
  __device__ inline bool operator!=(const Name& a, const Name& b) { return float(a) != float(b); }
OPASSAY_HALF(Half, __half, __float2half_rn, __half2float)
OPASSAY_HALF(BFloat16, __nv_bfloat16, __float2bfloat16_rn, __bfloat162float)
#undef OPASSAY_HALF
}  // namespace c10

namespace at {
using c10::BFloat16;
using c10::Half;
template <typename T> struct DefaultPtrTraits { typedef T* PtrType; };
template <typename T> struct RestrictPtrTraits { typedef T* __restrict__ PtrType; };

template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits, typename Index = int64_t>
struct TensorAccessor {
  T* at;
  const Index *sizes, *strides;
  __device__ Index size(int k) const { return sizes[k]; }
  __device__ Index stride(int k) const { return strides[k]; }
  __device__ T* data() const { return at; }
  __device__ auto operator[](Index k) const {
    return TensorAccessor<T, N - 1, Traits, Index>{at + k * strides[0], sizes + 1, strides + 1};
  }
};
template <typename T, template <typename> class Traits, typename Index>
struct TensorAccessor<T, 1, Traits, Index> {
  T* at;
  const Index *sizes, *strides;
  __device__ Index size(int k) const { return sizes[k]; }
  __device__ Index stride(int k) const { return strides[k]; }
  __device__ T* data() const { return at; }
  __device__ T& operator[](Index k) const { return at[k * strides[0]]; }
};
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits, typename Index = int64_t>
struct GenericPackedTensorAccessor {
  T* at;
  Index sizes[N], strides[N];
  __device__ Index size(int k) const { return sizes[k]; }
  __device__ Index stride(int k) const { return strides[k]; }
  __device__ T* data() const { return at; }
  __device__ decltype(auto) operator[](Index k) const {
    return TensorAccessor<T, N, Traits, Index>{at, sizes, strides}[k];
  }
};
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Traits, int32_t>;
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Traits, int64_t>;
}  // namespace at

namespace torch {
using namespace at;
}
