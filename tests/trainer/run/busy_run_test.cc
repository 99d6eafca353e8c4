// Tests that a run's end says whether the machine was busy, as text and as JSON.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trainer/record/audit.h"
#include "trainer/run/metrics.h"

namespace spillway::trainer::busy_run_test {
namespace {

TEST(BusyRun, TheAuditAndTheSummarySaySo) {
  const Contention busy{.obtained = 0.6, .others = 0.4, .others_s = 4}, idle{.obtained = 0.98, .others = 0};
  const std::vector<AuditRow> rows = {{"step", 1, 2}};
  EXPECT_NE(to_text(rows, 3, busy).find("the machine was busy, so the measured times are too long: its threads got 60 %"),
            std::string::npos);
  EXPECT_EQ(to_text(rows, 3, idle).find("busy"), std::string::npos);
  Summary summary;
  summary.contention = busy;
  EXPECT_EQ(nlohmann::json::parse(to_json(summary))["machine_was_busy"], true);
  summary.contention = idle;
  EXPECT_EQ(nlohmann::json::parse(to_json(summary))["machine_was_busy"], false);
}

}  // namespace
}  // namespace spillway::trainer::busy_run_test
