// Graphs: the work of a stream from one moment to another, kept and done again; what capture refuses is refused.
//
// A real capture does no work, it only records. Here the work is done, too, so results look ready that are not on a GPU;
// whoever reads them back is refused.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "memory.h"

namespace rehearsal {
class Capture {
 public:
  using Steps = std::vector<std::function<void()>>;

  bool running() const { return running_; }

  // Whether work on a stream is recorded: the stream of the capture, or one that has waited for it since it began.
  bool has(int who) const { return running_ && order().has_seen(who, origin_, start_); }

  void begin(int origin) {
    TORCH_CHECK(!running_, "CUDA error: operation not permitted when stream is capturing");
    origin_ = origin;
    start_ = order().tick(origin);
    steps_ = std::make_shared<Steps>();
    running_ = true;
    order().set_capturing(true);
  }

  std::shared_ptr<Steps> end() {
    running_ = false;
    order().set_capturing(false);
    // Whatever else was recorded must come back to the stream where the capture began.
    const int apart = order().find_unjoined(origin_, start_);
    TORCH_CHECK(apart < 0, "CUDA error: capturing stream has unjoined work (", order().name(apart), ")");
    return std::move(steps_);
  }

  void record(int who, std::function<void()> step) {
    if (!running_) return;
    TORCH_CHECK(has(who), "CUDA error: operation would make the legacy stream depend on a capturing blocking stream (work on ",
                order().name(who), ", which has not waited for the capture)");
    std::lock_guard<std::mutex> hold(lock_);
    steps_->push_back(std::move(step));
  }

  // To be called where the host waits for the device.
  void refuse(const std::string& what) const {
    TORCH_CHECK(!running_, "CUDA error: operation not permitted when stream is capturing (", what, ")");
  }

  size_t size() const { return running_ ? steps_->size() : 0; }

 private:
  std::atomic<bool> running_{false};
  int origin_ = 0;
  int64_t start_ = 0;
  std::mutex lock_;
  std::shared_ptr<Steps> steps_;
};

inline Capture& capture() {
  static auto* only = new Capture;
  return *only;
}
}  // namespace rehearsal
