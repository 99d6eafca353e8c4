// A named stretch of the calling thread's work, seen by NVIDIA's profilers (NVTX 3, which costs next to nothing where none runs). Two
// versions: nothing without CUDA. Ranges of a thread nest.
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
