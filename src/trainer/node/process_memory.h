// Reports this process's memory (resident set size), current and peak, and its age, as the operating system knows them. Thread-safe.
#pragma once
#include "base/types.h"
#include "trainer/node/host.h"

namespace spillway::trainer {

struct ProcessMemory {
  i64 now_bytes = 0, peak_bytes = 0;
};
/// Returns the resident set size of this process, current and peak. Both sizes are zero if the system does not report them.
ProcessMemory process_memory(const Host& host = {});

/// Returns the seconds since this process was started, or 0 if the system does not report it.
double process_age_s(const Host& host = {});

}  // namespace spillway::trainer
