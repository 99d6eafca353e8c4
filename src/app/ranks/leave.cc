#include "app/ranks/leave.h"

#include <unistd.h>

#include "app/ranks/rank_report.h"

namespace spillway::app {

void leave_stuck(const std::string& why) {
  const std::string line = "spillway: " + why + "\n";
  if (!report_failure({ErrorCode::peer, why})) static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
  ::_exit(static_cast<int>(ErrorCode::peer));
}

}  // namespace spillway::app
