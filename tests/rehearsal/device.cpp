// Two devices of torch's kind CUDA whose memory is the host's, for a build of torch without CUDA.
//
// What this is for: whatever torch and Python do with CUDA tensors above the kernels happens as on a GPU: dispatch,
// device guards, autograd's thread for each device, autocast, refusals of operands on two devices. What computes is the
// CPU: every op of aten is run by its CPU kernel on an alias of the same bytes. Kernels of Triton come another way
// (launches.py).
//
// What is hard here: torch asks once, when it is imported, whether there is CUDA, so this library must be loaded between
// torch's libraries and the module torch (start.py). An op may return an argument, a view of one or a new tensor, and
// each must come back as what it is: the argument itself, a view of its memory, a new tensor on the device.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <unistd.h>

#include "streams.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>

namespace {
using at::Tensor;
using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::IValue;
using c10::Storage;
using c10::Stream;
using c10::StreamId;

constexpr DeviceIndex kDevices = 2;
thread_local DeviceIndex current = 0;
thread_local std::array<StreamId, kDevices> streams{};  // the current one of each device; 0 is the default one
std::atomic<StreamId> last_stream{0};

DeviceIndex require_device(DeviceIndex index) {
  TORCH_CHECK(index < kDevices, "CUDA error: invalid device ordinal");
  return index < 0 ? current : index;
}

int actor_of(DeviceIndex device) { return rehearsal::order().actor(device, streams[device]); }
int actor_of(const Stream& s) { return rehearsal::order().actor(s.device_index(), s.id()); }

// ------------------------------------------------------------------------------------------------------------- process

// CUDA serves the process in which its driver has started, and no copy of it by fork; 0 where it has not.
std::atomic<pid_t> driver{0}, context{0};

void start_driver() {
  pid_t none = 0;
  driver.compare_exchange_strong(none, getpid());
}

void require_process() {
  if (context == getpid()) return;
  start_driver();
  TORCH_CHECK(driver == getpid(), "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
              "you must use the 'spawn' start method");
  context = getpid();
}

// ------------------------------------------------------------------------------------------------------------- memory

std::array<std::atomic<int64_t>, kDevices> allocated{}, peak{};

void book(DeviceIndex device, int64_t bytes) {
  const int64_t now = allocated[device] += bytes;
  for (int64_t top = peak[device]; now > top && !peak[device].compare_exchange_weak(top, now);) {
  }
}

// The memory of a storage under the name of another device. The new storage keeps the old one; `booked` counts it.
c10::DataPtr shared_memory(const Storage& of, Device device, bool booked) {
  struct Owner {
    Storage storage;
    Device device;
    int64_t bytes;
  };
  auto* owner = new Owner{of, device, booked ? static_cast<int64_t>(of.nbytes()) : 0};
  if (booked) {
    book(device.index(), owner->bytes);
    rehearsal::order().allocate(of.data(), owner->bytes, actor_of(device.index()));
  }
  return c10::DataPtr(const_cast<void*>(of.data()), owner, [](void* p) {
    auto* owner = static_cast<Owner*>(p);
    if (owner->bytes) {
      book(owner->device.index(), -owner->bytes);
      rehearsal::order().free(owner->storage.data());
    }
    delete owner;
  }, device);
}

Storage on_device(const Storage& of, Device device, bool booked) {
  return Storage(Storage::use_byte_size_t(), of.nbytes(), shared_memory(of, device, booked),
                 c10::GetAllocator(DeviceType::CPU), /*resizable=*/true);
}

Tensor with_storage(Storage storage, c10::DispatchKey key, const Tensor& like) {
  auto keys = c10::DispatchKeySet(key);
  if (like._is_zerotensor()) keys = keys.add(c10::DispatchKey::ZeroTensor);  // zeros without memory stay such
  auto t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(like.sym_sizes(), like.sym_strides(), like.sym_storage_offset());
  return t;
}

Tensor alias_on_host(const Tensor& t) {
  return with_storage(on_device(t.storage(), Device(DeviceType::CPU), false), c10::DispatchKey::CPU, t);
}

Tensor moved_to(const Tensor& host, DeviceIndex device) {
  require_process();
  return with_storage(on_device(host.storage(), Device(DeviceType::CUDA, device), true), c10::DispatchKey::CUDA, host);
}

DeviceIndex index_of(std::optional<Device> device) {
  return device && device->has_index() ? require_device(device->index()) : current;
}

// Every bit of memory that nobody has written is set, which is NaN in every floating dtype.
void poison(const Tensor& host) {
  if (host.storage().nbytes()) std::memset(host.storage().mutable_data(), 0xFF, host.storage().nbytes());
}

// The bytes of a tensor, from the beginning of its storage.
rehearsal::Range range_of(const Tensor& t) {
  if (t.numel() == 0) return {0, 0, true};
  int64_t last = 0;
  for (int64_t k = 0; k < t.dim(); ++k) last += (t.size(k) - 1) * t.stride(k);
  const int64_t item = t.dtype().itemsize(), first = t.storage_offset();
  return {first * item, (first + last + 1) * item, last + 1 == t.numel()};
}

void use(const Tensor& t, int who, bool writes, const std::string& what) {
  if (t.is_cuda() && t.has_storage()) rehearsal::order().use(t.storage().data(), range_of(t), who, writes, what);
}

// ------------------------------------------------------------------------------------------- the ops written for CUDA

Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<Device> device, std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  auto host = at::empty(C10_AS_INTARRAYREF_SLOW(size), at::TensorOptions().dtype(dtype), format);
  poison(host);
  return moved_to(host, index_of(device));
}

Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<Device> device, std::optional<bool>) {
  auto host = at::empty_strided(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                at::TensorOptions().dtype(dtype));
  poison(host);
  return moved_to(host, index_of(device));
}

// Copies are ordered as torch orders them: between two devices on the stream of the source, which waits for that of the
// destination and is waited for by it; from and to the host, the host waits unless it is told not to.
Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  require_process();
  auto& order = rehearsal::order();
  const bool both = self.is_cuda() && source.is_cuda();
  const int from = actor_of(source.is_cuda() ? source.device().index() : self.device().index());
  const int to = self.is_cuda() ? actor_of(self.device().index()) : from;
  if (from != to) order.wait_for(from, to);
  use(source, from, false, "aten::copy_");
  use(self, from, true, "aten::copy_");
  auto there = self.is_cuda() ? alias_on_host(self) : self;
  there.copy_(source.is_cuda() ? alias_on_host(source) : source);
  if (from != to) order.wait_for(to, from);
  if (!both && !non_blocking) order.wait_for(rehearsal::kHost, from);
  return self;
}

Tensor& set_storage_offset_(Tensor& self, Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                            c10::SymIntArrayRef stride) {
  TORCH_CHECK(source.device() == self.device(), "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(), "\"");
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return self;
}

Tensor& set_storage_(Tensor& self, Storage source) {
  const c10::SymInt size(static_cast<int64_t>(source.nbytes() / self.dtype().itemsize())), stride(1);
  return set_storage_offset_(self, std::move(source), 0, size, stride);
}

Tensor& set_tensor_(Tensor& self, const Tensor& source) {
  return set_storage_offset_(self, source.storage(), source.sym_storage_offset(), source.sym_sizes(), source.sym_strides());
}

Tensor& set_nothing_(Tensor& self) {
  const c10::SymInt size(0), stride(1);
  const auto nothing = at::empty({0}, at::TensorOptions().dtype(self.dtype()));
  return set_storage_offset_(self, on_device(nothing.storage(), self.device(), true), 0, size, stride);
}

void record_stream(Tensor& self, Stream s) { rehearsal::order().record(self.storage().data(), actor_of(s)); }

// --------------------------------------------------------------------------------- all other ops, by the CPU's kernels

// After these the host has what the device had computed.
const std::set<std::string> kReadsBack{"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal",
                                       "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::bincount"};

// One call: its operands by their aliases on the way in, its results by their originals on the way out.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op), stack_(stack), name_(op.schema().name()) {}

  void run() {
    TORCH_CHECK(name_.rfind("aten::", 0) == 0, "Could not run '", name_, "' with arguments from the 'CUDA' backend");
    require_process();
    take_operands();
    for (auto& [original, writes] : uses_) use(original, actor_of(device_->index()), writes, name_);
    op_.callBoxed(stack_);
    give_results();
    if (device_ && kReadsBack.count(name_)) rehearsal::order().wait_for(rehearsal::kHost, actor_of(device_->index()));
  }

 private:
  void take_operands() {
    const size_t count = op_.schema().arguments().size(), first = stack_->size() - count;
    for (position_ = 0; position_ < count; ++position_) {
      auto& value = (*stack_)[first + position_];
      if (value.isTensor()) {
        value = operand(value.toTensor());
      } else if (value.isTensorList()) {
        std::vector<Tensor> list;
        for (const Tensor& t : value.toTensorVector()) list.push_back(operand(t));
        value = IValue(list);
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<Tensor>> list;
        for (std::optional<Tensor> t : value.toOptionalTensorList())
          list.push_back(t ? std::optional<Tensor>(operand(*t)) : t);
        value = list;
      } else if (value.isDevice()) {
        named_ = value.toDevice();
        if (named_->is_cuda()) value = IValue(Device(DeviceType::CPU));
      } else if (value.isGenerator() && value.toGenerator().device().is_cuda()) {
        value = IValue(at::detail::getDefaultCPUGenerator());
      }
    }
    TORCH_CHECK(!(on_host_ && device_), "Expected all tensors to be on the same device, but found at least two devices, ",
                *device_, " and cpu! (when checking arguments of ", name_, ")");
  }

  Tensor operand(const Tensor& t) {
    if (!t.defined()) return t;
    if (!t.is_cuda()) {
      // Numbers of no dim may lie on the host, and so may the indices of an index operation.
      on_host_ = on_host_ || (t.dim() > 0 && !(position_ > 0 && indexes()));
      return t;
    }
    TORCH_CHECK(!device_ || *device_ == t.device(), "Expected all tensors to be on the same device, but found at least "
                "two devices, ", *device_, " and ", t.device(), "! (when checking arguments of ", name_, ")");
    device_ = t.device();
    aliases_.emplace_back(t, alias_on_host(t));
    if (!moves()) uses_.emplace_back(t, writes());
    return aliases_.back().second;
  }

  bool writes() const {
    const auto* alias = op_.schema().arguments()[position_].alias_info();
    return alias && alias->isWrite();
  }

  // Whether the op makes a view, and touches no memory.
  bool moves() const {
    const auto& returns = op_.schema().returns();
    return !returns.empty() && returns[0].alias_info() && !returns[0].alias_info()->isWrite();
  }

  bool indexes() const { return name_.rfind("aten::index", 0) == 0 || name_ == "aten::_index_put_impl_"; }

  void give_results() {
    const size_t count = op_.schema().returns().size(), first = stack_->size() - count;
    for (size_t k = 0; k < count; ++k) {
      auto& value = (*stack_)[first + k];
      if (value.isTensor()) {
        value = result(value.toTensor());
      } else if (value.isTensorList()) {
        std::vector<Tensor> list;
        for (const Tensor& t : value.toTensorVector()) list.push_back(result(t));
        value = IValue(list);
      }
    }
    // An op may change an operand without returning it, such as `resize_` of an output that it was given.
    for (auto& [original, alias] : aliases_) follow(original, alias);
  }

  Tensor result(const Tensor& t) {
    if (!t.defined() || t.is_cuda() || (named_ && named_->is_cpu())) return t;
    for (auto& [original, alias] : aliases_)
      if (t.unsafeGetTensorImpl() == alias.unsafeGetTensorImpl()) return original;
    for (auto& [original, alias] : aliases_)
      if (t.storage().unsafeGetStorageImpl() == alias.storage().unsafeGetStorageImpl())
        return with_storage(original.storage(), c10::DispatchKey::CUDA, t);
    const DeviceIndex where = named_ && named_->is_cuda() ? index_of(named_) : device_ ? device_->index() : current;
    const Tensor fresh = moved_to(t, where);
    use(fresh, actor_of(where), true, name_);
    return fresh;
  }

  // Give an operand the size, and its storage the memory, that the op has given its alias.
  static void follow(const Tensor& original, const Tensor& alias) {
    auto* storage = original.storage().unsafeGetStorageImpl();
    if (alias.storage().data() != storage->data()) {
      storage->set_data_ptr_noswap(shared_memory(alias.storage(), original.device(), true));
      storage->set_nbytes(alias.storage().nbytes());
    }
    if (original.sizes() != alias.sizes() || original.strides() != alias.strides())
      original.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sym_sizes(), alias.sym_strides(),
                                                            alias.sym_storage_offset());
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  const std::string& name_;
  size_t position_ = 0;
  std::vector<std::pair<Tensor, Tensor>> aliases_;  // each operand on a device, and its alias
  std::vector<std::pair<Tensor, bool>> uses_;       // each of them that is read or written; whether it is written
  std::optional<Device> device_, named_;            // of the operands; the one that the call asks for
  bool on_host_ = false;                            // whether an operand is on the host that may not be
};

void serve(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Call(op, stack).run(); }

// --------------------------------------------------------------------------------------------- devices, streams, hooks

// What was done on a stream when an event was recorded, and when that was.
struct Event {
  rehearsal::Times times;
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
    *static_cast<Event*>(*event) = {rehearsal::order().now(actor_of(s)), std::chrono::steady_clock::now()};
  }
  double elapsedTime(void* first, void* last, const DeviceIndex) const override {
    const auto spent = static_cast<Event*>(last)->at - static_cast<Event*>(first)->at;
    return std::chrono::duration<double, std::milli>(spent).count();
  }
  void block(void* event, const Stream& s) const override {
    if (event) rehearsal::order().wait(actor_of(s), static_cast<Event*>(event)->times);
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void* event) const override {
    if (event) rehearsal::order().wait(rehearsal::kHost, static_cast<Event*>(event)->times);
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream& s) const override { rehearsal::order().wait_for(rehearsal::kHost, actor_of(s)); }
  void synchronizeDevice(const DeviceIndex d) const override {
    for (StreamId id = 0; id <= last_stream; ++id)
      rehearsal::order().wait_for(rehearsal::kHost, rehearsal::order().actor(require_device(d), id));
  }
  bool isStreamCapturing(const Stream&) const override { return false; }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const Stream& s) const override {
    rehearsal::order().record(memory.get(), actor_of(s));
  }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard);

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
PinnedMemory& pinned_memory() {
  static auto* memory = new PinnedMemory;  // never deleted, for tensors may outlive everything static
  return *memory;
}
void free_pinned(void* at) {
  if (!at) return;
  auto& memory = pinned_memory();
  std::lock_guard<std::mutex> hold(memory.lock);
  memory.blocks.erase(static_cast<const char*>(at));
  std::free(at);
}
c10::DataPtr PinnedMemory::allocate(size_t bytes) {
  void* at = bytes ? std::aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr;
  std::lock_guard<std::mutex> hold(lock);
  if (at) blocks[static_cast<const char*>(at)] = bytes;
  return c10::DataPtr(at, at, &free_pinned, Device(DeviceType::CPU));
}
c10::DeleterFnPtr PinnedMemory::raw_deleter() const { return &free_pinned; }

// A generator that says it is on a device; the CPU's kernels, which draw the numbers, take the default one in its place.
const at::Generator& device_generator(DeviceIndex index) {
  static auto* all = new std::array<at::Generator, kDevices>{at::detail::createCPUGenerator(), at::detail::createCPUGenerator()};
  return (*all)[require_device(index)];
}

}  // namespace

namespace at {
struct RehearsalHooks : CUDAHooksInterface {
  explicit RehearsalHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return kDevices; }
  int getNumGPUs() const override { return kDevices; }
  DeviceIndex current_device() const override { return current; }
  DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(DeviceIndex d) const override { current = require_device(d); }
  DeviceIndex exchangeDevice(DeviceIndex d) const override {
    const DeviceIndex before = current;
    current = require_device(d);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex d) const override { return d < 0 ? current : exchangeDevice(d); }
  Device getDeviceFromPtr(void*) const override { return Device(DeviceType::CUDA, current); }
  bool isPinnedPtr(const void* at) const override { return pinned_memory().has(at); }
  Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  const Generator& getDefaultGenerator(DeviceIndex d) const override { return device_generator(d); }
  Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  std::string showConfig() const override { return "rehearsal device (host memory)"; }
};
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, RehearsalHooks)
}  // namespace at

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&serve>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("copy_", copy_);
  m.impl("set_.source_Storage_storage_offset", set_storage_offset_);
  m.impl("set_.source_Storage", set_storage_);
  m.impl("set_.source_Tensor", set_tensor_);
  m.impl("set_", set_nothing_);
  m.impl("record_stream", record_stream);
}

// What rehearse.py calls.
extern "C" {
int rehearsal_current_device() { return current; }
// Sets the current device unless the index is negative or there is no such device; the device before, -1 for none such.
int rehearsal_exchange_device(int index) {
  if (index >= kDevices) return -1;
  const int before = current;
  if (index >= 0) current = static_cast<DeviceIndex>(index);
  return before;
}
void rehearsal_start_driver() { start_driver(); }
bool rehearsal_is_initialized() { return context != 0 && driver == getpid(); }
bool rehearsal_is_in_bad_fork() { return driver != 0 && driver != getpid(); }
bool rehearsal_initialize() {
  start_driver();
  if (driver == getpid()) context = getpid();
  return driver == getpid();
}
int rehearsal_device_count() { return kDevices; }
int64_t rehearsal_current_stream(int device) { return streams[device]; }
void rehearsal_set_stream(int device, int64_t stream) { streams[device] = stream; }
// A kernel's use of bytes of a storage, on the current stream; false if it races, and then `text` has the reason.
bool rehearsal_use(int device, const void* memory, int64_t first, int64_t last, bool writes, const char* what, char* text,
                   int64_t room) {
  try {
    rehearsal::order().use(memory, {first, last, true}, actor_of(static_cast<DeviceIndex>(device)), writes, what);
    return true;
  } catch (const c10::Error& error) {
    std::strncpy(text, error.what_without_backtrace(), room - 1);
    return false;
  }
}
int64_t rehearsal_allocated(int device) { return allocated[device]; }
int64_t rehearsal_peak(int device) { return peak[device]; }
void rehearsal_reset_peak(int device) { peak[device] = allocated[device].load(); }
}
