// What the module's calls run on: threads of its own, the heap, and the promise that a forked child hears an exception instead of waiting
// for threads that it has not. The thread pool starts with the first call that computes.
#pragma once
#include <nanobind/nanobind.h>

#include "device/stream.h"

namespace spillway::python {

namespace nb = nanobind;

/// A computation on `device`: while one lives its stream is in force for this thread. Throws Error(usage) in a child of a process that
/// computed before it forked.
class Running {
 public:
  explicit Running(Device device = Device::cpu());
  ~Running();

 private:
  const Stream stream_;
  const StreamScope scope_;
};

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
