// Lists the NVIDIA GPUs that this process could use. No function here throws; a missing driver or GPU is reported as a
// sentence in `problem`. The app calls query_gpus() before it chooses a device, as do tests that need a GPU. One
// implementation is built with CUDA and one without. libcuda is never linked, so the program starts on machines without
// a driver. Thread-safe. Opening a GPU creates its context, which takes some 500 MiB of the GPU's memory; free_bytes is what
// remains beside the context. The calling thread's current device does not change.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway {

struct GpuFacts {
  int index = 0;  // the index as in Device::cuda(index): visible GPUs are counted from 0
  std::string name;
  std::string bus;  // the PCI address as "domain:bus:device" in decimal, which tells the GPUs of a node apart
  i64 total_bytes = 0;
  i64 free_bytes = 0;
  int compute_capability = 0;  // the compute capability as major * 10 + minor: 90 for Hopper
  std::string problem;         // why this build cannot run on this GPU; empty if it can
  std::string unique;          // the driver's UUID in hexadecimal; each MIG slice of one GPU has its own
};

struct GpuReport {
  std::vector<GpuFacts> gpus;
  std::string problem;  // why no GPU was found; empty if at least one was found
};

/// How threads of the process wait for a GPU: asleep, which leaves their cores free, or as whoever opened the GPU first decided, or CUDA's
/// default, for a library among others in a process.
enum class GpuWaiting { asleep, as_it_is };

/// Opens all GPUs, or, if `one` is given, only the GPU with that index modulo the number of GPUs. A process that
/// opens only its own GPU takes no memory on the GPUs of other ranks and does not disturb users of GPUs in
/// exclusive mode. For GPUs that were not opened, free_bytes is 0 and `problem` says that they were not examined.
GpuReport query_gpus(std::optional<int> one = {}, GpuWaiting waiting = GpuWaiting::asleep);

}  // namespace spillway
