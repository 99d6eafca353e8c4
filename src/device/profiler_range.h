// Defines ProfilerRange, a named range of the calling thread's work that NVIDIA's profilers show (NVTX 3, which
// costs next to nothing when no profiler runs). Without CUDA a range does nothing. Ranges of a thread nest.
#pragma once
#include <string>

namespace spillway {

class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace spillway
