#include "app/plan/fit.h"

#include <algorithm>

#include "base/error.h"

namespace spillway::app {

using parallel::Plan;

std::array<i64, offload::kTiers> excess(const Plan& plan, const TierBudgets& b) {
  std::array<i64, offload::kTiers> over{};
  for (size_t t = 0; t < over.size(); ++t) over[t] = std::max<i64>(0, plan.total[t] - b.bytes[t]);
  if (b.host_from_device) {
    over[1] = 0;
    over[0] = std::max<i64>(0, plan.total[0] + plan.total[1] + (b.nvme_is_memory ? plan.total[2] : 0) - b.bytes[0]);
  } else if (b.nvme_is_memory) {
    over[1] = std::max<i64>(over[1], plan.total[1] + plan.total[2] - b.bytes[1]);
  }
  return over;
}

i64 total_excess(const Plan& plan, const TierBudgets& b) {
  const auto over = excess(plan, b);
  return over[0] + over[1] + over[2];
}

void require_room(const Plan& plan, const TierBudgets& budgets) {
  if (total_excess(plan, budgets) == 0) return;
  throw Error(ErrorCode::refused, "[plan] the first rank's plan does not fit this one:\n" + memory_table(plan, budgets));
}

bool hopeless(const Candidate& c, const TierBudgets& b) {
  const i64 device_bytes = c.bytes[0] + (b.host_from_device ? c.bytes[1] : 0);
  return device_bytes > b.bytes[0] || (!b.host_from_device && c.bytes[1] > b.bytes[1]) || c.bytes[2] > b.bytes[2];
}

}  // namespace spillway::app
