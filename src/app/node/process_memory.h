// What this process holds of the machine's memory (resident set), now and at its most. Thread-safe.
#pragma once
#include "app/node/host.h"
#include "base/types.h"

namespace spillway::app {

struct ProcessMemory {
  i64 now_bytes = 0, peak_bytes = 0;
};
/// Zeros where the system does not say.
ProcessMemory process_memory(const Host& host = {});

}  // namespace spillway::app
