// The state of the devices, and memory that is the host's under the name of a device.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

#include "streams.h"

namespace rehearsal {
using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Storage;
using c10::Stream;
using c10::StreamId;

constexpr DeviceIndex kDevices = 2;
inline thread_local DeviceIndex current = 0;
inline thread_local std::array<StreamId, kDevices> streams{};  // the current one of each device; 0 is the default one
inline std::atomic<StreamId> last_stream{0};

inline DeviceIndex require_device(DeviceIndex index) {
  TORCH_CHECK(index < kDevices, "CUDA error: invalid device ordinal");
  return index < 0 ? current : index;
}

inline int actor_of(DeviceIndex device) { return order().actor(device, streams[device]); }
inline int actor_of(const Stream& s) { return order().actor(s.device_index(), s.id()); }

// ------------------------------------------------------------------------------------------------------------- process

// CUDA serves the process in which its driver has started, and no copy of it by fork; 0 where it has not.
inline std::atomic<pid_t> driver{0}, context{0};

inline void start_driver() {
  pid_t none = 0;
  driver.compare_exchange_strong(none, getpid());
}

inline void require_process() {
  if (context == getpid()) return;
  start_driver();
  TORCH_CHECK(driver == getpid(), "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
              "you must use the 'spawn' start method");
  context = getpid();
}

// ------------------------------------------------------------------------------------------------------------- memory

inline std::array<std::atomic<int64_t>, kDevices> allocated{}, peak{};

inline void book(DeviceIndex device, int64_t bytes) {
  const int64_t now = allocated[device] += bytes;
  for (int64_t top = peak[device]; now > top && !peak[device].compare_exchange_weak(top, now);) {
  }
}

// The memory of a storage under the name of another device. The new storage keeps the old one; `booked` counts it.
inline c10::DataPtr shared_memory(const Storage& of, Device device, bool booked) {
  struct Owner {
    Storage storage;
    Device device;
    int64_t bytes;
  };
  auto* owner = new Owner{of, device, booked ? static_cast<int64_t>(of.nbytes()) : 0};
  if (booked) {
    book(device.index(), owner->bytes);
    order().allocate(of.data(), owner->bytes, actor_of(device.index()));
  }
  return c10::DataPtr(const_cast<void*>(of.data()), owner, [](void* p) {
    auto* owner = static_cast<Owner*>(p);
    if (owner->bytes) {
      book(owner->device.index(), -owner->bytes);
      order().free(owner->storage.data());
    }
    delete owner;
  }, device);
}

inline Storage on_device(const Storage& of, Device device, bool booked) {
  return Storage(Storage::use_byte_size_t(), of.nbytes(), shared_memory(of, device, booked),
                 c10::GetAllocator(DeviceType::CPU), /*resizable=*/true);
}

inline Tensor with_storage(Storage storage, c10::DispatchKey key, const Tensor& like) {
  auto keys = c10::DispatchKeySet(key);
  if (like._is_zerotensor()) keys = keys.add(c10::DispatchKey::ZeroTensor);  // zeros without memory stay such
  auto t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(like.sym_sizes(), like.sym_strides(), like.sym_storage_offset());
  return t;
}

// A view of a tensor, with sizes like another one's; in inference mode it is as normal or not as the tensor is.
inline Tensor view_of(const Tensor& base, const Tensor& like) {
  auto t = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, Storage(base.storage()), base.key_set(), like.dtype());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(like.sym_sizes(), like.sym_strides(), like.sym_storage_offset());
  return t;
}

inline Tensor alias_on_host(const Tensor& t) {
  return with_storage(on_device(t.storage(), Device(DeviceType::CPU), false), c10::DispatchKey::CPU, t);
}

inline Tensor moved_to(const Tensor& host, DeviceIndex device) {
  require_process();
  return with_storage(on_device(host.storage(), Device(DeviceType::CUDA, device), true), c10::DispatchKey::CUDA, host);
}

inline DeviceIndex index_of(std::optional<Device> device) {
  return device && device->has_index() ? require_device(device->index()) : current;
}

// Every bit of memory that nobody has written is set, which is NaN in every floating dtype.
inline void poison(const Tensor& host) {
  if (host.storage().nbytes()) std::memset(host.storage().mutable_data(), 0xFF, host.storage().nbytes());
}

// The bytes of a tensor, from the beginning of its storage.
inline Range range_of(const Tensor& t) {
  if (t.numel() == 0) return {0, 0, true};
  int64_t last = 0;
  for (int64_t k = 0; k < t.dim(); ++k) last += (t.size(k) - 1) * t.stride(k);
  const int64_t item = t.dtype().itemsize(), first = t.storage_offset();
  return {first * item, (first + last + 1) * item, last + 1 == t.numel()};
}

inline void use(const Tensor& t, int who, bool writes, const std::string& what) {
  if (t.is_cuda() && t.has_storage()) order().use(t.storage().data(), range_of(t), who, writes, what);
}

}  // namespace rehearsal
