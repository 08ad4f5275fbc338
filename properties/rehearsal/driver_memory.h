// What CUDA's driver does about memory that host code asks it for; a part of driver.h.
//
// Memory that host code asks the driver for has the bits of what nobody has written, as all of the device; who copies
// or fills it on a stream is booked there. A copy that waits has the host wait for that stream, as CUDA has it.
#pragma once

namespace rehearsal {
inline std::map<void*, std::pair<DeviceIndex, size_t>> taken;  // by host code, from the driver
inline std::mutex taking;

inline int take_memory(Handle* at, size_t bytes) {
  if (!bytes || bytes > size_t{1} << 34) return bytes ? 2 : kInvalidValue;
  *at = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*at, 0xFF, bytes);
  std::lock_guard<std::mutex> hold(taking);
  taken[*at] = {current, bytes};
  book(current, static_cast<int64_t>(bytes));
  return order().allocate(*at, static_cast<int64_t>(bytes), actor_of(current)), kSuccess;
}

inline int give_back(Handle at) {
  std::lock_guard<std::mutex> hold(taking);
  const auto found = taken.find(at);
  if (!at || found == taken.end()) return at ? kInvalidValue : kSuccess;
  book(found->second.first, -static_cast<int64_t>(found->second.second));
  order().free(at);
  std::free(at);
  return taken.erase(found), kSuccess;
}

// Books a use of memory of a device: 1 where it is outside, or where it races; host memory is nobody's.
inline int book_use(const void* at, size_t bytes, Handle stream, bool writes, bool on_device, const char* what) {
  const auto [begin, size] = order().find_memory(at);
  if (!begin) return on_device ? kInvalidValue : kSuccess;
  const auto first = static_cast<const char*>(at) - static_cast<const char*>(begin);
  if (first + static_cast<int64_t>(bytes) > size) return kInvalidValue;
  const int who = order().actor(current, reinterpret_cast<StreamId>(stream));
  try {
    order().use(begin, {first, first + static_cast<int64_t>(bytes), true}, who, writes, what);
  } catch (const c10::Error& err) {
    return serve().complain(err.what_without_backtrace());
  }
  return kSuccess;
}

inline int copy_bytes(void* to, const void* from, size_t bytes, Handle stream, int devices, const char* what, bool waits) {
  int result = book_use(from, bytes, stream, false, devices & 1, what);
  if (!result) result = book_use(to, bytes, stream, true, devices & 2, what);
  if (result) return result;
  std::memmove(to, from, bytes);
  if (waits) order().wait_for(kHost, order().actor(current, reinterpret_cast<StreamId>(stream)));
  return kSuccess;
}

inline int fill_bytes(void* at, uint32_t value, size_t width, size_t count, Handle stream, const char* what) {
  if (const int result = book_use(at, width * count, stream, true, true, what)) return result;
  for (size_t k = 0; k < count; ++k) std::memcpy(static_cast<char*>(at) + width * k, &value, width);
  return kSuccess;
}
}  // namespace rehearsal

EXPORTED int cuMemAlloc_v2(Handle* at, size_t bytes) { return take_memory(at, bytes); }
EXPORTED int cuMemAllocAsync(Handle* at, size_t bytes, Handle) { return take_memory(at, bytes); }
EXPORTED int cuMemFree_v2(Handle at) { return give_back(at); }
EXPORTED int cuMemFreeAsync(Handle at, Handle) { return give_back(at); }
EXPORTED int cuMemGetInfo_v2(size_t* left, size_t* all) {
  return *all = size_t{1} << 34, *left = *all - static_cast<size_t>(allocated[current].load()), kSuccess;
}
#define COPY(Name, Devices)                                                                          \
  EXPORTED int Name##_v2(void* to, const void* from, size_t bytes) {                                 \
    return copy_bytes(to, from, bytes, nullptr, Devices, #Name, true);                               \
  }                                                                                                  \
  EXPORTED int Name##Async_v2(void* to, const void* from, size_t bytes, Handle stream) {             \
    return copy_bytes(to, from, bytes, stream, Devices, #Name "Async", false);                       \
  }
COPY(cuMemcpyHtoD, 2)
COPY(cuMemcpyDtoH, 1)
COPY(cuMemcpyDtoD, 3)
#undef COPY
EXPORTED int cuMemcpy(void* to, const void* from, size_t bytes) {
  return copy_bytes(to, from, bytes, nullptr, 0, "cuMemcpy", true);
}
EXPORTED int cuMemcpyAsync(void* to, const void* from, size_t bytes, Handle stream) {
  return copy_bytes(to, from, bytes, stream, 0, "cuMemcpyAsync", false);
}
#define FILL(Name, Type)                                                                             \
  EXPORTED int Name##_v2(void* at, Type value, size_t count) {                                       \
    return fill_bytes(at, value, sizeof(Type), count, nullptr, #Name);                               \
  }                                                                                                  \
  EXPORTED int Name##Async(void* at, Type value, size_t count, Handle stream) {                      \
    return fill_bytes(at, value, sizeof(Type), count, stream, #Name "Async");                        \
  }
FILL(cuMemsetD8, uint8_t)
FILL(cuMemsetD16, uint16_t)
FILL(cuMemsetD32, uint32_t)
#undef FILL
