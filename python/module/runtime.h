// What the module's calls run on: threads of its own, the heap, and the promise that a forked child hears an exception instead of waiting
// for threads that it has not. The thread pool starts with the first call that computes. On a GPU: memory of the driver's pool, and the
// queue that PyTorch uses too, so that what both do to the same memory is done in order.
#pragma once
#include <nanobind/nanobind.h>

#include <string>

#include "device/gpu_queue.h"
#include "device/stream.h"

namespace spillway::python {

namespace nb = nanobind;

/// A computation on `device`: while one lives its stream is in force for this thread. Throws Error(usage) in a child of a process that
/// computed before it forked, and where there is no such GPU.
class Running {
 public:
  explicit Running(Device device = Device::cpu());
  ~Running();

 private:
  const Stream stream_;
  const CurrentDevice current_;
  const StreamScope scope_;
};

/// Until what any queue of a GPU may still do to memory that is let go of is done; nothing of the CPU, and of a GPU that is lost.
void settle(Device device) noexcept;

/// "cpu", "cuda" and "cuda:1", and what PyTorch calls so (torch.device). ValueError on others.
Device device_of(const nb::handle& name);

/// Throws as Running does; for what makes threads of its own.
void check_process();

/// Compute threads from now on; at first as many as cores are granted. Not while something computes.
void set_threads(int threads);
int get_threads();

/// The GIL is released while one lives, if `long_enough`: what takes microseconds is done sooner than another thread would get it.
class Unlocked {
 public:
  explicit Unlocked(bool long_enough = true) : state_(long_enough ? PyEval_SaveThread() : nullptr) {}
  ~Unlocked() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

void bind_runtime(nb::module_& module);

}  // namespace spillway::python
