#include "device/profiler_range.h"

namespace spillway {

ProfilerRange::ProfilerRange(const std::string&) {}
ProfilerRange::~ProfilerRange() = default;

}  // namespace spillway
