// Which NVIDIA GPUs this process could use, as facts: nothing here throws, a missing driver or GPU is a sentence in `problem`. Called by
// the app before it chooses a device, and by tests that need a GPU. One implementation with CUDA, one without; libcuda is never linked, so
// the program starts where there is no driver. Thread-safe. The first call on a GPU makes its context (some 500 MiB of GPU memory, which
// free_bytes no longer counts) and leaves the calling thread's current device as it was.
#pragma once
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway {

struct GpuFacts {
  int index = 0;  // as in Device::cuda(index): the visible ones, from 0
  std::string name;
  std::string bus;  // where it is plugged in, as the driver says it: which GPU of the node this is
  i64 total_bytes = 0;
  i64 free_bytes = 0;
  int compute_capability = 0;  // major * 10 + minor: 90 for Hopper
  std::string problem;         // empty: this build can run here
};

struct GpuReport {
  std::vector<GpuFacts> gpus;
  std::string problem;  // why there are none; empty when there are some
};

GpuReport query_gpus();

}  // namespace spillway
