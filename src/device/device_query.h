// Which NVIDIA GPUs this process could use, as facts: nothing here throws, a missing driver or GPU is a sentence in `problem`. Called by
// the app before it chooses a device, and by tests that need a GPU. One implementation with CUDA, one without; libcuda is never linked, so
// the program starts where there is no driver. Thread-safe. Opening a GPU makes its context (some 500 MiB of its memory, which free_bytes
// no longer counts), in which whoever waits for the GPU sleeps; the calling thread's current device stays as it was.
#pragma once
#include <optional>
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
  std::string unique;          // the driver's UUID in hexadecimal: of slices of one GPU (MIG), in one place, each has its own
};

struct GpuReport {
  std::vector<GpuFacts> gpus;
  std::string problem;  // why there are none; empty when there are some
};

/// Opens all, or `one` of them alone (modulo their number): a process leaves others' memory alone, and those of exclusive mode to their
/// users. Of the others free_bytes is 0, and the problem says that nobody looked.
GpuReport query_gpus(std::optional<int> one = {});

}  // namespace spillway
