// What torch asks of a kind of device: the guard of its devices and streams, pinned memory, generators.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>
#include <map>
#include <mutex>

#include "capture.h"
#include "memory.h"

namespace rehearsal {
// What was done on a stream when an event was recorded, and when that was.
struct Event {
  Times times;
  std::chrono::steady_clock::time_point at;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device d) const override {
    const Device before(DeviceType::CUDA, current);
    setDevice(d);
    return before;
  }
  Device getDevice() const override { return Device(DeviceType::CUDA, current); }
  void setDevice(Device d) const override { current = require_device(d.index()); }
  void uncheckedSetDevice(Device d) const noexcept override {
    if (d.index() >= 0) current = d.index();
  }
  Stream getStream(Device d) const override {
    const DeviceIndex index = require_device(d.index());
    return Stream(Stream::UNSAFE, Device(DeviceType::CUDA, index), streams[index]);
  }
  Stream getDefaultStream(Device d) const override {
    return Stream(Stream::DEFAULT, Device(DeviceType::CUDA, require_device(d.index())));
  }
  Stream getNewStream(Device d, int) const override {
    return Stream(Stream::UNSAFE, Device(DeviceType::CUDA, require_device(d.index())), ++last_stream);
  }
  Stream getStreamFromGlobalPool(Device d, bool) const override { return getNewStream(d, 0); }
  void* getStreamNativeHandle(const Stream s) const override { return reinterpret_cast<void*>(s.id()); }
  Stream exchangeStream(Stream s) const override {
    const auto before = getStream(s.device());
    streams[s.device_index()] = s.id();
    return before;
  }
  DeviceIndex deviceCount() const noexcept override { return kDevices; }
  c10::DeviceCapability getDeviceCapability(Device) const override { return c10::DeviceCapability(); }
  void record(void** event, const Stream& s, const DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    *static_cast<Event*>(*event) = {order().now(actor_of(s)), std::chrono::steady_clock::now()};
  }
  double elapsedTime(void* first, void* last, const DeviceIndex) const override {
    const auto spent = static_cast<Event*>(last)->at - static_cast<Event*>(first)->at;
    return std::chrono::duration<double, std::milli>(spent).count();
  }
  void block(void* event, const Stream& s) const override {
    if (event) order().wait(actor_of(s), static_cast<Event*>(event)->times);
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void* event) const override {
    capture().refuse("to wait for an event");
    if (event) order().wait(kHost, static_cast<Event*>(event)->times);
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream& s) const override {
    capture().refuse("to wait for a stream");
    order().wait_for(kHost, actor_of(s));
  }
  void synchronizeDevice(const DeviceIndex d) const override {
    capture().refuse("to wait for a device");
    for (StreamId id = 0; id <= last_stream; ++id)
      order().wait_for(kHost, order().actor(require_device(d), id));
  }
  bool isStreamCapturing(const Stream& s) const override { return capture().has(actor_of(s)); }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const Stream& s) const override {
    order().record(memory.get(), actor_of(s));
  }
};

// Memory of the host that counts as pinned, by its first byte.
struct PinnedMemory final : c10::Allocator {
  std::mutex lock;
  std::map<const char*, size_t> blocks;
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool has(const void* at) {
    std::lock_guard<std::mutex> hold(lock);
    auto next = blocks.upper_bound(static_cast<const char*>(at));
    if (next == blocks.begin()) return false;
    --next;
    return static_cast<const char*>(at) < next->first + next->second;
  }
};
inline PinnedMemory& pinned_memory() {
  static auto* memory = new PinnedMemory;  // never deleted, for tensors may outlive everything static
  return *memory;
}
inline void free_pinned(void* at) {
  if (!at) return;
  auto& memory = pinned_memory();
  std::lock_guard<std::mutex> hold(memory.lock);
  memory.blocks.erase(static_cast<const char*>(at));
  std::free(at);
}
inline c10::DataPtr PinnedMemory::allocate(size_t bytes) {
  void* at = bytes ? std::aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr;
  std::lock_guard<std::mutex> hold(lock);
  if (at) blocks[static_cast<const char*>(at)] = bytes;
  return c10::DataPtr(at, at, &free_pinned, Device(DeviceType::CPU));
}
inline c10::DeleterFnPtr PinnedMemory::raw_deleter() const { return &free_pinned; }

// A generator that says it is on a device; the CPU's kernels, which draw the numbers, take the default one in its place.
inline const at::Generator& device_generator(DeviceIndex index) {
  static auto* all = new std::array<at::Generator, kDevices>{at::detail::createCPUGenerator(), at::detail::createCPUGenerator()};
  return (*all)[require_device(index)];
}

}  // namespace rehearsal

namespace at {
struct RehearsalHooks : CUDAHooksInterface {
  explicit RehearsalHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return rehearsal::kDevices; }
  int getNumGPUs() const override { return rehearsal::kDevices; }
  DeviceIndex current_device() const override { return rehearsal::current; }
  DeviceIndex getCurrentDevice() const override { return rehearsal::current; }
  void setCurrentDevice(DeviceIndex d) const override { rehearsal::current = rehearsal::require_device(d); }
  DeviceIndex exchangeDevice(DeviceIndex d) const override {
    const DeviceIndex before = rehearsal::current;
    rehearsal::current = rehearsal::require_device(d);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex d) const override { return d < 0 ? rehearsal::current : exchangeDevice(d); }
  Device getDeviceFromPtr(void*) const override { return Device(DeviceType::CUDA, rehearsal::current); }
  bool isPinnedPtr(const void* at) const override { return rehearsal::pinned_memory().has(at); }
  Allocator* getPinnedMemoryAllocator() const override { return &rehearsal::pinned_memory(); }
  const Generator& getDefaultGenerator(DeviceIndex d) const override { return rehearsal::device_generator(d); }
  Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  std::string showConfig() const override { return "rehearsal device (host memory)"; }
};
}  // namespace at

