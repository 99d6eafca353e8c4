// Tells ThreadSanitizer about the threads of a kernel: each counts as a thread, and only the barriers of its warp and block
// order its accesses, not the CPU thread that runs all in turn. Other builds do nothing. Files that use this header are
// compiled without ThreadSanitizer, since accesses by the emulation are no race. See "sanitizer/tsan_interface.h", fibers.
#pragma once
#ifdef EMULATED_CUDA_TSAN
#include <sanitizer/tsan_interface.h>

#include <mutex>
#include <utility>
#include <vector>

namespace emulated_cuda {

constexpr bool kRaceDetector = true;

/// Tells ThreadSanitizer the order of threads: what a thread did before come() happens before what another thread does after leave().
class Meeting {
 public:
  void come() { __tsan_release(this); }
  void leave() { __tsan_acquire(this); }
};

/// Owns a ThreadSanitizer fiber. Fibers are kept for reuse, since ThreadSanitizer has only a few thousand in all.
class SeenAsThread {
 public:
  SeenAsThread() : SeenAsThread(kept(), true) {}
  static SeenAsThread caller() { return {__tsan_get_current_fiber(), false}; }
  SeenAsThread(SeenAsThread&& other) noexcept : fiber_(other.fiber_), ours_(std::exchange(other.ours_, false)) {}
  ~SeenAsThread() {
    if (!ours_) return;
    const std::lock_guard lock(mutex());
    all().push_back(fiber_);
  }
  void enter() const { __tsan_switch_to_fiber(fiber_, __tsan_switch_to_fiber_no_sync); }

 private:
  SeenAsThread(void* fiber, bool ours) : fiber_(fiber), ours_(ours) {}
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::vector<void*>& all() {
    static std::vector<void*> fibers;
    return fibers;
  }
  static void* kept() {
    const std::lock_guard lock(mutex());
    if (all().empty()) return __tsan_create_fiber(0);
    void* fiber = all().back();
    all().pop_back();
    return fiber;
  }

  void* fiber_;
  bool ours_;
};

}  // namespace emulated_cuda

#else

namespace emulated_cuda {

constexpr bool kRaceDetector = false;

struct Meeting {
  void come() {}
  void leave() {}
};
struct SeenAsThread {
  static SeenAsThread caller() { return {}; }
  void enter() const {}
};

}  // namespace emulated_cuda
#endif
