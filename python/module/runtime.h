// The resources of the module's calls: its own compute threads and heap memory. A forked child that calls the module gets an exception
// instead of waiting for threads that it does not have. The thread pool starts with the first call that computes. On a GPU the resources
// are memory from the driver's pool and the stream that PyTorch uses too, so that the work of Spillway and PyTorch on the same memory is
// ordered.
#pragma once
#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "device/gpu_queue.h"
#include "device/stream.h"
#include "python/module/turn.h"

namespace spillway::python {

/// How a computation is treated in the forward of a block written in Python (pass.h): it is refused; it runs in host memory that does not
/// belong to the training run; or it runs on the block's device.
enum class InForward { refused, on_host, on_block };

/// A computation on `device`: takes the turn for this thread and makes the device's stream current. Set `long_enough` for work of more than
/// microseconds, to release the GIL. Python's objects must not be touched meanwhile (turn.h). In a block's forward there are no turns, and
/// `in_forward` decides. Throws Error(usage) in a child of a process that computed before it forked, and if there is no such GPU.
class Running {
 public:
  explicit Running(Device device = Device::cpu(), bool long_enough = false, InForward in_forward = InForward::refused);

 private:
  std::optional<Turn> turn_;
  std::optional<Unlocked> unlocked_;
  Stream stream_;
  std::optional<CurrentDevice> current_;
  std::optional<StreamScope> scope_;
};

/// Waits until none of this module's work on the GPU (`ours`), or nobody's (`all`), can still use memory that is about to be released. Does
/// nothing for the CPU or for a GPU that is lost.
enum class Settle { ours, all };
void settle(Device device, Settle what) noexcept;

/// Parses "cpu", "cuda" and "cuda:1", and PyTorch's devices of these names (torch.device). Throws WrongValue on any other name.
Device device_of(const nb::handle& name);

/// Throws Error(usage) in a child of a process that computed before it forked. Calls that start threads call it first.
void check_process();

/// The number of bytes from which a call releases the GIL: half a millisecond of work and more.
constexpr i64 kLongBytes = 1 << 20;

void bind_runtime(nb::module_& module);

}  // namespace spillway::python
