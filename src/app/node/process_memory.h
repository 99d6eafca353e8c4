// What the system says of this process: memory (resident set), now and at its most, and its age. Thread-safe.
#pragma once
#include "app/node/host.h"
#include "base/types.h"

namespace spillway::app {

struct ProcessMemory {
  i64 now_bytes = 0, peak_bytes = 0;
};
/// Zeros where the system does not say.
ProcessMemory process_memory(const Host& host = {});

/// Seconds since this process was started; 0 where the system does not say.
double process_age_s(const Host& host = {});

}  // namespace spillway::app
