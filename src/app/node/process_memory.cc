#include "app/node/process_memory.h"

#include <sstream>

namespace spillway::app {

// Not getrusage: its peak is inherited from whoever started us.
ProcessMemory process_memory(const Host& host) {
  ProcessMemory memory;
  std::istringstream lines(host.read("/proc/self/status").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    i64 kib = 0;
    if (!(words >> key >> kib)) continue;
    if (key == "VmRSS:") memory.now_bytes = kib * kKiB;
    if (key == "VmHWM:") memory.peak_bytes = kib * kKiB;
  }
  return memory;
}

}  // namespace spillway::app
