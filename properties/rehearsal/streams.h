// Who waits for whom: the host and the streams of all devices, and who used which memory when.
//
// What this is for: the rehearsal device does all work at once, so that work which should have waited goes right. A GPU
// may do the work of two streams in any order that nothing forbids. Here each stream, and the host, has a vector clock:
// for each other one, how much of its work has happened for certain before what it does next. Two uses of the same bytes
// of which one writes must be ordered by these clocks, or they race. All threads of the host count as one.
#pragma once
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace rehearsal {
using Times = std::vector<int64_t>;

constexpr int kHost = 0;

inline void take_later(Times& times, const Times& others) {
  times.resize(std::max(times.size(), others.size()));
  for (size_t k = 0; k < others.size(); ++k) times[k] = std::max(times[k], others[k]);
}

// A range of the bytes of a storage; whether every byte in it belongs to the tensor that is used.
struct Range {
  int64_t first, last;
  bool dense;
};

class Order {
 public:
  // The streams' numbers here are those of actors; `kHost` is the host.
  int actor(int device, int64_t stream) {
    std::lock_guard<std::mutex> hold(lock_);
    auto [found, fresh] = actors_.try_emplace({device, stream}, static_cast<int>(times_.size()));
    if (fresh) {
      times_.emplace_back();
      names_.push_back("stream " + std::to_string(stream) + " of cuda:" + std::to_string(device));
    }
    return found->second;
  }

  // What an actor has done by now, for an event. A stream also has what the host had seen when it queued the work.
  Times now(int who) {
    std::lock_guard<std::mutex> hold(lock_);
    if (who != kHost) take_later(times_[who], times_[kHost]);
    return times_[who];
  }

  void wait(int who, const Times& until) {
    std::lock_guard<std::mutex> hold(lock_);
    take_later(times_[who], until);
  }

  void wait_for(int who, int other) { wait(who, now(other)); }

  // A moment of an actor, which others have seen that wait for it later.
  int64_t tick(int who) {
    std::lock_guard<std::mutex> hold(lock_);
    times_[who].resize(std::max<size_t>(times_[who].size(), who + 1));
    return ++times_[who][who];
  }

  bool has_seen(int who, int other, int64_t time) {
    std::lock_guard<std::mutex> hold(lock_);
    return static_cast<int>(times_[who].size()) > other && times_[who][other] >= time;
  }

  // A stream that has seen a moment of another one, which has not seen all that it did since; -1 for none.
  int find_unjoined(int origin, int64_t time) {
    std::lock_guard<std::mutex> hold(lock_);
    for (int who = 1; who < static_cast<int>(times_.size()); ++who) {
      const Times& own = times_[who];
      const bool joined = static_cast<int>(own.size()) > origin && own[origin] >= time;
      if (who == origin || !joined || static_cast<int>(own.size()) <= who) continue;
      if (static_cast<int>(times_[origin].size()) <= who || times_[origin][who] < own[who]) return who;
    }
    return -1;
  }

  std::string name(int who) {
    std::lock_guard<std::mutex> hold(lock_);
    return who < 0 ? "" : names_[who];
  }

  void allocate(const void* memory, int64_t bytes, int home) {
    if (!memory || !bytes) return;
    std::lock_guard<std::mutex> hold(lock_);
    blocks_.erase(memory);
    if (!capturing_) blocks_[memory] = Block{home, bytes, {}, {}};
  }

  // Where the memory begins in which an address lies, and its bytes; nothing for an address outside of all memory.
  std::pair<const void*, int64_t> find_memory(const void* address) {
    std::lock_guard<std::mutex> hold(lock_);
    auto found = blocks_.upper_bound(address);
    if (found == blocks_.begin()) return {nullptr, 0};
    --found;
    const bool within = static_cast<const char*>(address) < static_cast<const char*>(found->first) + found->second.bytes;
    return within ? std::make_pair(found->first, found->second.bytes) : std::make_pair(nullptr, int64_t{0});
  }

  // The allocator may give the memory to the next work of its stream at once.
  void free(const void* memory) {
    std::lock_guard<std::mutex> hold(lock_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) return;
    Times before = times_[found->second.home];
    take_later(before, times_[kHost]);
    for (const Use& use : found->second.uses)
      if (use.who != found->second.home && !found->second.recorded.count(use.who) && !has(before, use))
        complaint_ = "rehearsal: memory of " + names_[found->second.home] + " was freed, and " + use.what + " on " +
                     names_[use.who] + " may still use it; need record_stream, or a stream that waits";
    blocks_.erase(found);
  }

  // What is captured is not done yet: it uses nothing, and its memory belongs to the graph.
  void set_capturing(bool capturing) {
    std::lock_guard<std::mutex> hold(lock_);
    capturing_ = capturing;
  }

  void record(const void* memory, int who) {
    std::lock_guard<std::mutex> hold(lock_);
    const auto found = blocks_.find(memory);
    if (found != blocks_.end()) found->second.recorded.insert(who);
  }

  // Raises an error if a use of memory races with an earlier one, or if memory was freed too early.
  void use(const void* memory, Range range, int who, bool writes, const std::string& what) {
    std::string wrong;
    {
      std::lock_guard<std::mutex> hold(lock_);
      std::swap(wrong, complaint_);
      const auto found = blocks_.find(memory);
      if (capturing_) {
        take_later(times_[who], times_[kHost]);
        times_[who].resize(std::max<size_t>(times_[who].size(), who + 1));
        ++times_[who][who];
      } else if (found != blocks_.end() && range.first < range.last) {
        add(found->second.uses, {range, who, 0, writes, what}, wrong);
      }
    }
    TORCH_CHECK(wrong.empty(), wrong);
  }

 private:
  struct Use {
    Range range;
    int who;
    int64_t time;
    bool writes;
    std::string what;
  };
  struct Block {
    int home;
    int64_t bytes;
    std::set<int> recorded;
    std::vector<Use> uses;
  };

  static bool has(const Times& times, const Use& use) {
    return static_cast<int>(times.size()) > use.who && times[use.who] >= use.time;
  }

  void add(std::vector<Use>& uses, Use next, std::string& wrong) {
    Times& mine = times_[next.who];
    take_later(mine, times_[kHost]);
    mine.resize(std::max<size_t>(mine.size(), next.who + 1));
    next.time = ++mine[next.who];
    for (const Use& use : uses) {
      const bool apart = use.range.last <= next.range.first || next.range.last <= use.range.first;
      // The elements of two tensors with gaps may lie between each other.
      if (apart || !(use.writes || next.writes) || !(use.range.dense || next.range.dense) || has(mine, use)) continue;
      wrong = "rehearsal: race: " + next.what + " on " + names_[next.who] + (next.writes ? " writes" : " reads") +
              " what " + use.what + " on " + names_[use.who] + (use.writes ? " wrote" : " read") +
              ", and nothing makes it wait";
    }
    // What is forgotten is ordered before the new use, which stands for it.
    uses.erase(std::remove_if(uses.begin(), uses.end(), [&](const Use& use) {
      const bool within = next.range.first <= use.range.first && use.range.last <= next.range.last;
      // With gaps it may not have all that the earlier one has, but whatever is compared with both sees them alike.
      if (!next.range.dense && (use.range.dense || use.who != next.who)) return false;
      return within && has(mine, use) && (next.writes || (use.who == next.who && !use.writes));
    }), uses.end());
    uses.push_back(std::move(next));
  }

  std::mutex lock_;
  std::vector<Times> times_ = std::vector<Times>(1);
  std::vector<std::string> names_{"the host"};
  std::map<std::pair<int, int64_t>, int> actors_;
  std::map<const void*, Block> blocks_;
  std::string complaint_;
  bool capturing_ = false;
};

inline Order& order() {
  static auto* all = new Order;  // never deleted, for tensors may outlive everything static
  return *all;
}
}  // namespace rehearsal
