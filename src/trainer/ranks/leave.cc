#include "trainer/ranks/leave.h"

#include <unistd.h>

#include "trainer/ranks/rank_report.h"

namespace spillway::trainer {

void leave_stuck(const std::string& why) {
  const std::string line = "spillway: " + why + "\n";
  if (!report_failure({ErrorCode::peer, why})) static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
  ::_exit(static_cast<int>(ErrorCode::peer));
}

}  // namespace spillway::trainer
