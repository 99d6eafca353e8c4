// What the module's calls run on: threads of its own, the heap, and the promise that a forked child hears an exception instead of waiting
// for threads that it has not. The thread pool starts with the first call that computes. On a GPU: memory of the driver's pool, and the
// queue that PyTorch uses too, so that what both do to the same memory is done in order.
#pragma once
#include <nanobind/nanobind.h>

#include <string>

#include "device/gpu_queue.h"
#include "device/stream.h"
#include "python/module/turn.h"

namespace spillway::python {

/// A computation on `device`: a turn of this thread, for which the device's stream is in force. `long_enough`: what takes more than
/// microseconds does not keep the GIL. Python's objects are not touched while one lives (turn.h). Throws Error(usage) in a child of a
/// process that computed before it forked, and where there is no such GPU.
class Running {
 public:
  explicit Running(Device device = Device::cpu(), bool long_enough = false);

 private:
  const Turn turn_;
  const Stream stream_;
  const CurrentDevice current_;
  const StreamScope scope_;
};

/// Until what any queue of a GPU may still do to memory that is let go of is done; nothing of the CPU, and of a GPU that is lost.
void settle(Device device) noexcept;

/// "cpu", "cuda" and "cuda:1", and what PyTorch calls so (torch.device). Throws WrongValue on others.
Device device_of(const nb::handle& name);

/// Throws as Running does; for what makes threads of its own.
void check_process();

/// Where the GIL is let go of: half a millisecond's work and more.
constexpr i64 kLongBytes = 1 << 20;

void bind_runtime(nb::module_& module);

}  // namespace spillway::python
