// Simulates the instruction lists of all stages of a pipeline together. With stages of equal length this gives the time that the
// schedule's own simulation gives.
#include <gtest/gtest.h>

#include <algorithm>

#include "models/model.h"
#include "models/presets.h"
#include "parallel/proof/simulate.h"
#include "parallel/schedule/schedule_simulate.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test::simulate_together_test {
namespace {

using parallel::Instruction;
using parallel::Op;
using parallel::ScheduleKind;
using parallel::Timing;
using parallel::Work;

class Simulated : public testing::TestWithParam<std::tuple<ScheduleKind, int, int>> {
 protected:
  // Returns a run with four layers, which make six blocks, so that every stage has equally many blocks.
  RunOptions options() const {
    const auto& [kind, ranks, data] = GetParam();
    RunOptions o;
    o.model = models::preset("gpt2-tiny");
    o.model.layers = 4;
    o.micro_batches = 5;
    o.ranks = data;
    o.pipeline = {.ranks = ranks, .kind = kind, .chunks = parallel::default_chunks(kind)};
    return o;
  }
  double makespan(const std::function<Work(int, const Instruction&)>& work) const {
    const RunOptions o = options();
    const nn::Sequential model = models::build(o.model, o.dtype);
    const parallel::Mesh mesh{o.ranks, o.pipeline.ranks};
    std::vector<parallel::Plan> plans;
    for (int r = 0; r < mesh.size(); ++r) plans.push_back(make_plan(plan_request(model, o, mesh.data_rank(r), mesh.pipeline_rank(r))));
    std::vector<const parallel::List*> heads;
    for (const parallel::Plan& p : plans) heads.push_back(&p.train.head);
    double end_us = 0;
    for (const std::vector<Timing>& rank : simulate_together(heads, mesh, work, {})) {
      for (const Timing& t : rank) end_us = std::max(end_us, t.end_us);
    }
    return end_us / 1e6;
  }
};

TEST_P(Simulated, TakesWhatTheScheduleTakes) {
  const auto& [kind, ranks, data] = GetParam();
  const i64 chunks = parallel::default_chunks(kind);
  const auto blocks_a_stage = static_cast<double>(6 / (ranks * chunks));
  const auto work = [](int, const Instruction& i) {
    return i.op == Op::Backward ? Work{.cpu_s = 2} : computes_block(i.op) ? Work{.cpu_s = 1} : Work{};
  };
  const parallel::ScheduleTimes times =
      simulate_schedule(parallel::generate_schedule(kind, {ranks, 5, chunks}), {.stages = {{.forward = 1, .backward = 2}}});
  EXPECT_NEAR(makespan(work), times.makespan * blocks_a_stage, 1e-6);
}

// Shows that a message takes time of its sender and holds up whoever waits for the message.
TEST_P(Simulated, MessagesTakeTime) {
  const auto computing = [](const Instruction& i) { return computes_block(i.op) ? Work{.cpu_s = 1} : Work{}; };
  const double free = makespan([&](int, const Instruction& i) { return computing(i); });
  const double slow = makespan([&](int, const Instruction& i) {
    return i.sent_bytes > 0 && i.micro_batch != parallel::kNone ? Work{.cpu_s = 0.25, .cores = 0} : computing(i);
  });
  // each message between neighbours takes time: activations forward and gradients back
  EXPECT_GE(slow, free + 0.5 * (std::get<1>(GetParam()) - 1) - 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Pipeline, Simulated,
                         testing::Combine(testing::Values(ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward, ScheduleKind::zb_h1),
                                          testing::Values(2, 3, 6), testing::Values(1, 2)));
INSTANTIATE_TEST_SUITE_P(Interleaved, Simulated,
                         testing::Combine(testing::Values(ScheduleKind::interleaved, ScheduleKind::zb_v), testing::Values(3),
                                          testing::Values(1)));

}  // namespace
}  // namespace spillway::test::simulate_together_test
