// Tests that the executor obeys the order of the instruction list and nothing more. A Fetch that is placed earlier overlaps the preceding
// block's computation; the same Fetch placed late does not. The times are those that the executor measured.
#include <gtest/gtest.h>

#include "models/presets.h"
#include "parallel/proof/check.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/faulty_engine.h"

namespace spillway::test::trace_test {
namespace {

using parallel::Instruction;
using parallel::Op;
using parallel::Tier;

// Makes every Fetch of weights wait for the computing instruction before it in the list, so that it does not start before its place in
// the list.
void pin_fetches(parallel::List& list) {
  u32 computed = 0;
  bool any = false;
  for (u32 i = 0; i < list.size(); ++i) {
    if (list[i].op == Op::Fetch && list[i].what == parallel::What::weights && any) list[i].after.push_back(computed);
    if (list[i].op == Op::Forward || list[i].op == Op::Backward) computed = i, any = true;
  }
}

// Counts the Fetches of weights that ran during the Forward of another block.
int overlapped(const RunResult& r) {
  const parallel::List& list = r.plan.train.head;
  int count = 0;
  for (u32 f = 0; f < list.size(); ++f) {
    if (list[f].op != Op::Fetch || list[f].what != parallel::What::weights) continue;
    for (u32 c = 0; c < list.size(); ++c) {
      const auto &fetch = r.head_timings[f], &compute = r.head_timings[c];
      const bool needs = std::find(list[c].after.begin(), list[c].after.end(), f) != list[c].after.end();
      if (list[c].op == Op::Forward && !needs && fetch.start_us < compute.end_us && compute.start_us < fetch.end_us) {
        ++count;
        break;
      }
    }
  }
  return count;
}

RunResult traced(int prefetch) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.parameters = o.optimizer = Tier::nvme;
  o.micro_batch_size = 4;
  o.sequence_length = 128;
  o.prefetch = prefetch;
  o.steps = 2;
  o.wrap_engine = [](std::unique_ptr<offload::IoEngine>) {
    auto slow = std::make_unique<FaultyEngine>();
    slow->system().delay_us = 3000;
    return slow;
  };
  o.change_plan = [](parallel::Plan& plan) {
    pin_fetches(plan.train.head);
    check(plan.train, plan.layout, plan.placement, plan.scheduling);
  };
  return train(o);
}

TEST(Trace, AFetchPlacedEarlierIsInFlightWhileTheBlockBeforeComputes) {
  EXPECT_EQ(overlapped(traced(0)), 0);
  EXPECT_GE(overlapped(traced(1)), 3);
}

}  // namespace
}  // namespace spillway::test::trace_test
