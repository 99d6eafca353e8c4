#include "trainer/node/process_memory.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace spillway::trainer {

// process_memory() reads /proc and does not call getrusage(), because the peak that getrusage() reports is inherited from the parent
// process.
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

// The start time is field 22 of /proc/self/stat (proc(5)), in clock ticks since boot. Fields are counted from the
// last parenthesis on, because the command's name stands in parentheses and may contain spaces or parentheses itself.
double process_age_s(const Host& host) {
  const std::string stat = host.read("/proc/self/stat").value_or("");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(stat.substr(name_end + 1));
  std::string field;
  for (int n = 3; n <= 22; ++n) rest >> field;
  const double ticks = std::strtod(field.c_str(), nullptr);
  timespec now{};
  if (ticks <= 0 || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  return std::max(
      0.0, static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 - ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

}  // namespace spillway::trainer
