#include "device/profiler_range.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace spillway {

// NVTX initialises itself at the first call in a way that is not thread-safe, so a static variable guards it.
ProfilerRange::ProfilerRange(const std::string& name) {
  [[maybe_unused]] static const bool started = (nvtxInitialize(nullptr), true);
  nvtxRangePushA(name.c_str());
}
ProfilerRange::~ProfilerRange() { nvtxRangePop(); }

}  // namespace spillway
#else  // on the emulated GPU there is no NVTX

namespace spillway {

ProfilerRange::ProfilerRange(const std::string&) {}
ProfilerRange::~ProfilerRange() = default;

}  // namespace spillway
#endif
