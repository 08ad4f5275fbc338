// Two devices of torch's kind CUDA whose memory is the host's, for a build of torch without CUDA.
//
// What this is for: whatever torch and Python do with CUDA tensors above the kernels happens as on a GPU: dispatch,
// device guards, autograd's thread for each device, autocast, refusals of operands on two devices. What computes is the
// CPU: every op of aten is run by its CPU kernel on an alias of the same bytes. Kernels of Triton come another way
// (launches.py).
// The state and the memory are in memory.h, what torch asks of devices in guard.h, the clocks in streams.h, graphs in
// capture.h; driver.h is CUDA's driver, for kernels that host code launches there.
//
// What is hard here: torch asks once, when it is imported, whether there is CUDA, so this library must be loaded between
// torch's libraries and the module torch (start.py). An op may return an argument, a view of one or a new tensor, and
// each must come back as what it is: the argument itself, a view of its memory, a new tensor on the device.
#include <ATen/ops/diagonal.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include <set>

#include "capture.h"
#include "driver.h"
#include "guard.h"
#include "memory.h"

namespace rehearsal {
using c10::IValue;

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
  const bool both = self.is_cuda() && source.is_cuda();
  if (!both && !non_blocking) capture().refuse("a copy that waits, between the host and a device");
  const int from = actor_of(source.is_cuda() ? source.device().index() : self.device().index());
  const int to = self.is_cuda() ? actor_of(self.device().index()) : from;
  if (from != to) order().wait_for(from, to);
  use(source, from, false, "aten::copy_");
  use(self, from, true, "aten::copy_");
  auto there = self.is_cuda() ? alias_on_host(self) : self;
  there.copy_(source.is_cuda() ? alias_on_host(source) : source);
  if (from != to) order().wait_for(to, from);
  capture().record(from, [self, source]() mutable { copy_(self, source, true); });
  if (!both && !non_blocking) order().wait_for(kHost, from);
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

void record_stream(Tensor& self, Stream s) { order().record(self.storage().data(), actor_of(s)); }

// A sum, as on CUDA (aten/src/ATen/native/cuda/TriangularOps.cu), and so it autocasts; the CPU has a kernel of its own.
Tensor trace(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "expected a matrix");
  return self.diagonal().sum();
}

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
    const torch::jit::Stack operands(stack_->end() - op_.schema().arguments().size(), stack_->end());
    take_operands();
    if (kReadsBack.count(name_) && device_) capture().refuse(name_);
    for (auto& [original, writes] : uses_) use(original, actor_of(device_->index()), writes, name_);
    op_.callBoxed(stack_);
    give_results();
    if (capture().running() && !aliases_.empty()) record(operands);
    if (device_ && kReadsBack.count(name_)) order().wait_for(kHost, actor_of(device_->index()));
  }

 private:
  // Keep the call for a graph: done again, it writes into the operands and the results of this time.
  void record(const torch::jit::Stack& operands) {
    const size_t count = op_.schema().returns().size();
    const torch::jit::Stack results(stack_->end() - count, stack_->end());
    capture().record(actor_of(device_->index()), [op = op_, operands, results]() {
      torch::jit::Stack again = operands;
      Call(op, &again).run();
      for (size_t k = 0; k < results.size(); ++k) {
        if (!results[k].isTensor() || !results[k].toTensor().defined()) continue;
        const Storage &to = results[k].toTensor().storage(), &from = again[again.size() - results.size() + k].toTensor().storage();
        if (to.data() != from.data()) std::memcpy(to.mutable_data(), from.data(), std::min(to.nbytes(), from.nbytes()));
      }
    });
  }

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
        return view_of(original, t);
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

  const c10::OperatorHandle op_;
  torch::jit::Stack* stack_;
  const std::string& name_;
  size_t position_ = 0;
  std::vector<std::pair<Tensor, Tensor>> aliases_;  // each operand on a device, and its alias
  std::vector<std::pair<Tensor, bool>> uses_;       // each of them that is read or written; whether it is written
  std::optional<Device> device_, named_;            // of the operands; the one that the call asks for
  bool on_host_ = false;                            // whether an operand is on the host that may not be
};

void serve(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Call(op, stack).run(); }

}  // namespace rehearsal

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, rehearsal::Guard);
}
namespace at {
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, RehearsalHooks)
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&rehearsal::serve>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", rehearsal::empty);
  m.impl("empty_strided", rehearsal::empty_strided);
  m.impl("copy_", rehearsal::copy_);
  m.impl("set_.source_Storage_storage_offset", rehearsal::set_storage_offset_);
  m.impl("set_.source_Storage", rehearsal::set_storage_);
  m.impl("set_.source_Tensor", rehearsal::set_tensor_);
  m.impl("set_", rehearsal::set_nothing_);
  m.impl("record_stream", rehearsal::record_stream);
  m.impl("trace", rehearsal::trace);
  // What these call on CUDA has kernels nowhere else, as that of a convolution of each channel by itself.
  m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&rehearsal::serve>());
  m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&rehearsal::serve>());
  // Without a kernel for the device these would be compositions, which autocast; on CUDA they have kernels.
  m.impl("native_group_norm", torch::CppFunction::makeFromBoxedFunction<&rehearsal::serve>());
  m.impl("native_layer_norm", torch::CppFunction::makeFromBoxedFunction<&rehearsal::serve>());
}

// What torch_cuda.py and launches.py call.
using namespace rehearsal;
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
// Graphs: by a number, whose `steps` are done again from the first to before the last.
struct Graph {
  std::shared_ptr<Capture::Steps> steps;
};
static bool tell_error(char* text, int64_t room, const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const c10::Error& error) {
    std::strncpy(text, error.what_without_backtrace(), room - 1);
    return false;
  }
}
// A kernel's use of bytes of a storage, on the current stream; false if it races, and then `text` has the reason.
bool rehearsal_use(int device, const void* memory, int64_t first, int64_t last, bool writes, const char* what, char* text,
                   int64_t room) {
  return tell_error(text, room, [&] {
    order().use(memory, {first, last, true}, actor_of(static_cast<DeviceIndex>(device)), writes, what);
  });
}
// The bytes of the memory in which an address lies, whose beginning is told; 0 outside of all memory of the device.
int64_t rehearsal_find_memory(const void* address, const void** begin) {
  const auto [first, bytes] = order().find_memory(address);
  *begin = first;
  return bytes;
}
bool rehearsal_is_capturing(int device) { return capture().has(actor_of(static_cast<DeviceIndex>(device))); }
bool rehearsal_begin_capture(char* text, int64_t room) {
  return tell_error(text, room, [] { capture().begin(actor_of(current)); });
}
void* rehearsal_end_capture(char* text, int64_t room) {
  auto* graph = new Graph;
  if (tell_error(text, room, [&] { graph->steps = capture().end(); })) return graph;
  delete graph;
  return nullptr;
}
int64_t rehearsal_capture_size() { return capture().size(); }
int64_t rehearsal_graph_size(void* graph) { return static_cast<Graph*>(graph)->steps->size(); }
bool rehearsal_replay(void* graph, int64_t first, int64_t last, char* text, int64_t room) {
  return tell_error(text, room, [&] {
    for (auto k = first; k < last; ++k) (*static_cast<Graph*>(graph)->steps)[k]();
  });
}
void rehearsal_delete_graph(void* graph) { delete static_cast<Graph*>(graph); }
int64_t rehearsal_allocated(int device) { return allocated[device]; }
int64_t rehearsal_peak(int device) { return peak[device]; }
void rehearsal_reset_peak(int device) { peak[device] = allocated[device].load(); }
}
