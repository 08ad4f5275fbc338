// CUDA's driver, as host code calls that brings kernels of its own: devices, images of kernels, launches, maps of tensors.
//
// What this is for: the library of the device is called libcuda.so.1, so that whoever loads the driver finds it. And it
// has the names by which host code that CuTe's compiler made calls CUDA's runtime. Kernels are Python's (driver.py), which
// reads their PTX and executes it; here is what stands around that in C.
// Sources: CUDA Driver API (cuda.h) for signatures and numbers; the PTX ISA's maps have places of our own (tensor_maps.py).
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "memory.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace rehearsal {
enum Result { kSuccess = 0, kInvalidValue = 1, kInvalidDevice = 101, kNotFound = 500 };

struct LaunchedKernel {
  int64_t number;
  int32_t shared, most = 48 << 10;  // bytes of static shared memory, and the most of dynamic that a launch may ask for
};
struct Sizes {
  uint32_t grid[3], block[3], cluster[3] = {1, 1, 1};
  uint64_t shared = 0;
  void* stream = nullptr;
};
struct Attribute {
  int32_t id;
  char padding[4];
  uint32_t value[16];
};
// How Python serves: it gives a library of an image, a kernel of a library, launches one, and keeps what is to be raised;
// each returns a `Result`.
struct Server {
  int (*load)(const void* image, int64_t* library);
  int (*find)(int64_t library, const char* name, int64_t* kernel, int32_t* shared);
  int (*launch)(int64_t kernel, const Sizes* sizes, int32_t most, void** values);
  int (*complain)(const char* text);
};
inline Server server{};
inline void (*start)();  // has Python serve
inline const Server& serve() {
  if (!server.load) start();
  return server;
}
inline std::map<int, int> attributes;  // of a device, by number; each of ours has the same

inline int give_attribute(int* value, int which, int device) {
  if (device < 0 || device >= kDevices) return kInvalidDevice;
  const auto found = attributes.find(which);
  if (found == attributes.end()) return kInvalidValue;
  *value = found->second;
  return kSuccess;
}

inline int find_kernel(void** kernel, void* library, const char* name) {
  auto* own = new LaunchedKernel{};
  const int result = serve().find(reinterpret_cast<int64_t>(library), name, &own->number, &own->shared);
  *kernel = own;
  return result;
}

inline int kernel_attribute(int* value, int which, void* kernel) {
  const auto* own = static_cast<LaunchedKernel*>(kernel);
  // The most threads, static shared, constant and local memory, registers, and the most dynamic shared memory.
  const std::map<int, int> known{{0, 1024}, {1, own->shared}, {2, 0}, {3, 0}, {4, 32}, {8, own->most}};
  const auto found = known.find(which);
  if (found == known.end()) return kInvalidValue;
  *value = found->second;
  return kSuccess;
}

inline int set_kernel_attribute(void* kernel, int which, int value) {
  auto* own = static_cast<LaunchedKernel*>(kernel);
  if (which != 8) return kSuccess;  // how caches are shared out, and what clusters may be
  if (value > attributes[97] - own->shared) return kInvalidValue;
  own->most = value;
  return kSuccess;
}

inline int launch(void* kernel, Sizes sizes, const Attribute* list, uint32_t count, void** values) {
  for (uint32_t k = 0; k < count; ++k)
    if (list[k].id == 4) std::memcpy(sizes.cluster, list[k].value, sizeof sizes.cluster);
  const auto* own = static_cast<LaunchedKernel*>(kernel);
  return serve().launch(own->number, &sizes, own->most, values);
}

inline int occupy(int* blocks, void* kernel, int threads, uint64_t shared) {
  const int warps = (threads + 31) / 32, own = static_cast<LaunchedKernel*>(kernel)->shared;
  const int64_t by_threads = attributes[39] / (32 * std::max(warps, 1));
  const int64_t by_memory = attributes[81] / static_cast<int64_t>(shared + own + 1024);
  *blocks = static_cast<int>(std::min<int64_t>({by_threads, by_memory, 32}));
  return kSuccess;
}

// A map of a tensor, each field where tensor_maps.py reads it; what the driver numbers otherwise than PTX is renumbered.
inline int encode_map(void* map, int type, uint32_t rank, void* address, const uint64_t* shape, const uint64_t* strides,
                      const uint32_t* box, const uint32_t* steps, int layout, int swizzle, int fill) {
  // From bytes to the two kinds of TF32; PTX has 32 bits flushed to zero one place later, and no more than that.
  static const uint32_t kinds[] = {0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 11, 12};
  if (type < 0 || type > 12 || rank < 1 || rank > 5 || reinterpret_cast<uint64_t>(address) % 16) return kInvalidValue;
  if (layout < 0 || layout > 2 || swizzle < 0 || swizzle > 7) return kInvalidValue;
  uint32_t words[32] = {};
  std::memcpy(words, &address, 8);
  words[2] = 2 | (rank - 1) << 4 | kinds[type] << 7 | layout << 11 | swizzle << 13;
  words[15] = fill != 0;
  auto* bytes = reinterpret_cast<uint8_t*>(words);
  for (uint32_t k = 0; k < rank; ++k) {
    if (!shape[k] || shape[k] > 1ull << 32 || !box[k] || box[k] > 256 || !steps[k] || steps[k] > 8) return kInvalidValue;
    words[8 + k] = static_cast<uint32_t>(shape[k] - 1), bytes[55 + k] = static_cast<uint8_t>(box[k] - 1);
    words[13] |= (steps[k] - 1) << 3 * k;
    if (k + 1 == rank) break;
    if (strides[k] % 16 || strides[k] >= 1ull << 40) return kInvalidValue;
    words[3 + k] = static_cast<uint32_t>(strides[k] >> 4), words[7] |= static_cast<uint32_t>(strides[k] >> 36) << 4 * k;
  }
  return std::memcpy(map, words, sizeof words), kSuccess;
}
}  // namespace rehearsal

using namespace rehearsal;
using Handle = void*;

// What driver.py calls.
EXPORTED void rehearsal_serve(const Server* own) { server = *own; }
EXPORTED void rehearsal_start_serving(void (*own)()) { start = own; }
EXPORTED void rehearsal_set_attribute(int which, int value) { attributes[which] = value; }

// ---------------------------------------------------------------------------------------------- devices and contexts

static char own_context;  // the one of each device
EXPORTED int cuInit(unsigned) { return kSuccess; }
EXPORTED int cuDriverGetVersion(int* version) { return *version = 13000, kSuccess; }
EXPORTED int cuDeviceGetCount(int* count) { return *count = kDevices, kSuccess; }
EXPORTED int cuDeviceGet(int* device, int ordinal) {
  return *device = ordinal, ordinal >= 0 && ordinal < kDevices ? kSuccess : kInvalidDevice;
}
EXPORTED int cuDeviceGetAttribute(int* value, int which, int device) { return give_attribute(value, which, device); }
EXPORTED int cuDeviceGetName(char* name, int room, int) {
  return std::strncpy(name, "rehearsal device (host memory)", room), kSuccess;
}
EXPORTED int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = size_t{1} << 34, kSuccess; }
EXPORTED int cuCtxGetCurrent(Handle* context) { return *context = &own_context, kSuccess; }
EXPORTED int cuCtxSetCurrent(Handle) { return kSuccess; }
EXPORTED int cuCtxPushCurrent_v2(Handle) { return kSuccess; }
EXPORTED int cuCtxPopCurrent_v2(Handle* context) { return *context = &own_context, kSuccess; }
EXPORTED int cuCtxGetDevice(int* device) { return *device = current, kSuccess; }
EXPORTED int cuCtxSynchronize() { return kSuccess; }
EXPORTED int cuDevicePrimaryCtxRetain(Handle* context, int) { return *context = &own_context, kSuccess; }
EXPORTED int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
EXPORTED int cuStreamSynchronize(Handle) { return kSuccess; }
EXPORTED int cuGetErrorName(int result, const char** name) {
  return *name = result == kSuccess ? "CUDA_SUCCESS" : "CUDA_ERROR_OF_REHEARSAL", kSuccess;
}
EXPORTED int cuGetErrorString(int result, const char** text) {
  return *text = result == kSuccess ? "no error" : "rehearsal: the driver refuses this", kSuccess;
}

#include "driver_memory.h"

// ------------------------------------------------------------------------------------------------ images and kernels

EXPORTED int cuLibraryLoadData(Handle* library, const void* image, void*, void*, unsigned, void*, void*, unsigned) {
  int64_t number = 0;
  const int result = serve().load(image, &number);
  return *library = reinterpret_cast<Handle>(number), result;
}
EXPORTED int cuModuleLoadData(Handle* module, const void* image) {
  return cuLibraryLoadData(module, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
}
EXPORTED int cuModuleLoadDataEx(Handle* module, const void* image, unsigned, void*, void*) {
  return cuModuleLoadData(module, image);
}
EXPORTED int cuLibraryUnload(Handle) { return kSuccess; }
EXPORTED int cuModuleUnload(Handle) { return kSuccess; }
EXPORTED int cuLibraryGetKernel(Handle* kernel, Handle library, const char* name) { return find_kernel(kernel, library, name); }
EXPORTED int cuModuleGetFunction(Handle* kernel, Handle module, const char* name) { return find_kernel(kernel, module, name); }
EXPORTED int cuLibraryEnumerateKernels(Handle* kernels, unsigned count, Handle library) {
  return count == 1 ? find_kernel(kernels, library, "") : kInvalidValue;  // the first one
}
EXPORTED int cuKernelGetFunction(Handle* function, Handle kernel) { return *function = kernel, kSuccess; }
EXPORTED int cuFuncGetAttribute(int* value, int which, Handle kernel) { return kernel_attribute(value, which, kernel); }
EXPORTED int cuKernelGetAttribute(int* value, int which, Handle kernel, int) { return kernel_attribute(value, which, kernel); }
EXPORTED int cuFuncSetAttribute(Handle kernel, int which, int value) { return set_kernel_attribute(kernel, which, value); }
EXPORTED int cuKernelSetAttribute(int which, int value, Handle kernel, int) { return set_kernel_attribute(kernel, which, value); }
EXPORTED int cuFuncSetCacheConfig(Handle, int) { return kSuccess; }

EXPORTED int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Handle kernel, int threads, size_t shared) {
  return occupy(blocks, kernel, threads, shared);
}
EXPORTED int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Handle kernel, int threads, size_t shared, unsigned) {
  return occupy(blocks, kernel, threads, shared);
}
EXPORTED int cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, Handle kernel, int blocks, int) {
  return *bytes = attributes[81] / std::max(blocks, 1) - 1024 - static_cast<LaunchedKernel*>(kernel)->shared, kSuccess;
}

// --------------------------------------------------------------------------------------------------------- launches

struct Configuration {  // CUlaunchConfig
  uint32_t grid[3], block[3], shared;
  Handle stream;
  const Attribute* list;
  uint32_t count;
};
static int launch_by(const Configuration* own, Handle kernel, void** values) {
  Sizes sizes{{own->grid[0], own->grid[1], own->grid[2]}, {own->block[0], own->block[1], own->block[2]}};
  sizes.shared = own->shared, sizes.stream = own->stream;
  return launch(kernel, sizes, own->list, own->count, values);
}
EXPORTED int cuLaunchKernelEx(const Configuration* own, Handle kernel, void** values, void**) {
  return launch_by(own, kernel, values);
}
EXPORTED int cuLaunchKernel(Handle kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                            unsigned shared, Handle stream, void** values, void**) {
  const Configuration own{{gx, gy, gz}, {bx, by, bz}, shared, stream, nullptr, 0};
  return launch_by(&own, kernel, values);
}
EXPORTED int cuOccupancyMaxActiveClusters(int* clusters, Handle kernel, const Configuration* own) {
  uint32_t blocks = 1;
  for (uint32_t k = 0; k < own->count; ++k)
    if (own->list[k].id == 4) blocks = own->list[k].value[0] * own->list[k].value[1] * own->list[k].value[2];
  int together = 0;
  occupy(&together, kernel, own->block[0] * own->block[1] * own->block[2], own->shared);
  return *clusters = attributes[16] * together / static_cast<int>(std::max(blocks, 1u)), kSuccess;
}
EXPORTED int cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* address, const uint64_t* shape,
                                    const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int layout,
                                    int swizzle, int, int fill) {
  return encode_map(map, type, rank, address, shape, strides, box, steps, layout, swizzle, fill);
}

// By a name, as those ask that were built without the driver; the newest version of a function is `name_v2`.
EXPORTED int cuGetProcAddress_v2(const char* name, void** function, int, uint64_t, int* found) {
  const std::string word = name;
  for (const auto& each : {word + "_v2", word})
    if ((*function = dlsym(RTLD_DEFAULT, each.c_str()))) return found ? (*found = 0, kSuccess) : kSuccess;
  if (found) *found = 1;
  return kNotFound;
}
EXPORTED int cuGetExportTable(const void** table, const void*) { return *table = nullptr, kNotFound; }
EXPORTED int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

// ------------------------------------------------- the runtime, as host code calls it that CuTe's compiler has made

struct RuntimeConfiguration {  // cudaLaunchConfig_t
  uint32_t grid[3], block[3];
  uint64_t shared;
  Handle stream;
  const Attribute* list;
  uint32_t count;
};
EXPORTED int _cudaGetDeviceCount(int* count) { return cuDeviceGetCount(count); }
EXPORTED int _cudaGetDevice(int* device) { return cuCtxGetDevice(device); }
EXPORTED int _cudaSetDevice(int device) {
  return device < 0 || device >= kDevices ? kInvalidDevice : (current = static_cast<DeviceIndex>(device), kSuccess);
}
EXPORTED int _cuDeviceGet(int* device, int ordinal) { return cuDeviceGet(device, ordinal); }
EXPORTED int _cudaDeviceGetAttribute(int* value, int which, int device) { return give_attribute(value, which, device); }
EXPORTED int _cudaDeviceSynchronize() { return kSuccess; }
EXPORTED int _cudaStreamSynchronize(Handle) { return kSuccess; }
EXPORTED int _cudaLibraryLoadData(Handle* library, const void* image, void*, void*, unsigned, void*, void*, unsigned) {
  return cuModuleLoadData(library, image);
}
EXPORTED int _cudaLibraryUnload(Handle) { return kSuccess; }
EXPORTED int _cudaLibraryGetKernel(Handle* kernel, Handle library, const char* name) { return find_kernel(kernel, library, name); }
EXPORTED int _cuKernelGetAttribute(int* value, int which, Handle kernel, int) { return kernel_attribute(value, which, kernel); }
EXPORTED int _cudaFuncSetAttribute(Handle kernel, int which, int value) { return set_kernel_attribute(kernel, which, value); }
EXPORTED int _cudaKernelSetAttributeForDevice(Handle kernel, int which, int value, int) {
  return set_kernel_attribute(kernel, which, value);
}
EXPORTED int _cudaLaunchKernelEx(const RuntimeConfiguration* own, Handle kernel, void** values) {
  Sizes sizes{{own->grid[0], own->grid[1], own->grid[2]}, {own->block[0], own->block[1], own->block[2]}};
  sizes.shared = own->shared, sizes.stream = own->stream;
  return launch(kernel, sizes, own->list, own->count, values);
}
EXPORTED int _cudaLaunchKernel(Handle kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               void** values, uint64_t shared, Handle stream) {
  return cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz, static_cast<unsigned>(shared), stream, values, nullptr);
}
EXPORTED int _cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Handle kernel, int threads, uint64_t shared) {
  return occupy(blocks, kernel, threads, shared);
}
EXPORTED int _cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* address, const uint64_t* shape,
                                     const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int layout,
                                     int swizzle, int, int fill) {
  return encode_map(map, type, rank, address, shape, strides, box, steps, layout, swizzle, fill);
}
EXPORTED const char* cuda_dialect_get_error_name(int result) { return result ? "cudaErrorOfRehearsal" : "cudaSuccess"; }
EXPORTED void cuda_dialect_assert_success(int) {}
EXPORTED void cuda_dialect_print_on_error(int) {}

// An error of TVM's FFI, which host code made for it is to leave: Python raises what it has kept (driver.py).
using SetError = void (*)(const char* kind, const char* text);
using SetErrorOfParts = void (*)(const char* kind, const char** parts, int32_t count);
EXPORTED int cuda_dialect_init_library_once(Handle* library, int (*load)(Handle*), int (*load_to)(Handle*, int), SetError fail) {
  static std::recursive_mutex alone;
  std::lock_guard<std::recursive_mutex> hold(alone);
  if (*library) return kSuccess;
  int result = load(library);
  for (int device = 0; !result && device < kDevices; ++device) result = load_to(library, device);
  if (result) *library = nullptr, fail("RehearsalError", "");
  return result ? -1 : kSuccess;
}
EXPORTED void cuda_dialect_unload_library_once(Handle* library) { *library = nullptr; }
EXPORTED void CuteDSLRT_TVMFFISetRaisedCudaError(SetErrorOfParts fail, int32_t) {
  const char* none = "";
  fail("RehearsalError", &none, 1);
}
EXPORTED void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(
    SetErrorOfParts fail, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int64_t, int32_t, int32_t, int32_t,
    int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, const char* violation, const char*, int32_t, int32_t, int32_t) {
  fail("RuntimeError", &violation, 1);
}
