// Tests gradients that are reduced over the ranks after each micro-batch. They are rounded differently from those of one reduction per
// step, but are bitwise the same in whichever tier the sums are stored and in whatever order blocks are computed. Each rank holds only its
// shard of the sums. The ranks are threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "parallel/proof/check.h"
#include "tests/parallel/program/support_program.h"
#include "tests/parallel/run/support_run.h"
#include "tests/parallel/run/support_sparse_batch.h"
#include "tests/support/cells.h"

namespace spillway::test::micro_batch_reduction_test {
namespace {

using parallel::Op;
using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::ScheduleKind;
using parallel::Tier;

RunOptions tiny(const std::string& preset, int ranks, i64 micro_batches) {
  RunOptions o;
  o.model = models::preset(preset);
  o.model.layers = 3;
  o.sequence_length = 16;
  o.micro_batches = micro_batches;
  o.max_bucket_elems = 4 * parallel::kTileElems;
  o.ranks = ranks;
  o.zero_stage = 2;
  o.reduce_each = ranks > 1;
  o.gradient_clipping = 0.5;
  return o;
}

// Shows the order of additions. Ranks that reduce after each micro-batch add in the order of a single rank that computes all
// micro-batches; ranks that reduce once per step do not. On a sparse batch (support_sparse_batch.h) the nonzero gradients come in this
// order on the single rank: all micro-batches of k = 0, then one of each k.
TEST(MicroBatchReduction, SumsOverTheRanksFirst) {
  for (const char* preset : {"gpt2-tiny", "llama-tiny"}) {
    for (const int ranks : {2, 3}) {
      RunOptions one = tiny(preset, 1, 3 * ranks);
      one.zero_stage = 0;
      one.batches = [=](i64 step, int rank) { return sparse_batch(one, step, rank, ranks); };
      const RunResult want = train(one);
      RunOptions o = tiny(preset, ranks, 3);
      o.batches = [=](i64 step, int rank) { return sparse_batch(o, step, rank, ranks); };
      const RunResult got = train(o);
      EXPECT_EQ(got.norms, want.norms);
      EXPECT_EQ(got.weights, want.weights);
      EXPECT_EQ(got.m, want.m);
      EXPECT_EQ(got.v, want.v);
      o.reduce_each = false;
      EXPECT_NE(train(o).weights, want.weights);
    }
  }
}

TEST(MicroBatchReduction, OfOneMicroBatchIsTheSumOfTheStep) {
  RunOptions o = tiny("gpt2-tiny", 2, 1);
  const RunResult got = train(o);
  o.reduce_each = false;
  expect_same_run(got, train(o));
}

const std::vector<Way>& ways() {
  constexpr Tier device = Tier::device, host = Tier::host, nvme = Tier::nvme;
  static const std::vector<Way> all = {
      {"device", placed(device, device, device, OptimizerOverlap::none)},
      {"device_forward", placed(device, device, device, OptimizerOverlap::forward)},
      {"host_backward", placed(host, host, host, OptimizerOverlap::backward)},
      {"nvme", placed(nvme, nvme, nvme, OptimizerOverlap::none)},
      {"nvme_forward", placed(nvme, nvme, nvme, OptimizerOverlap::forward)},
      {"nvme_backward_ahead",
       [](RunOptions& o) {
         o.parameters = o.gradients = o.optimizer = nvme, o.overlap = OptimizerOverlap::backward, o.deferred_sixteenths = 8, o.prefetch = 3;
       }},
      {"gradients_on_nvme_adaptive", [](RunOptions& o) { o.gradients = nvme, o.adaptive = true, o.threads = 2, o.optimizer = host; }},
      {"vertical", [](RunOptions& o) { o.order = Order::vertical, o.overlap = OptimizerOverlap::backward; }},
      {"vertical_nvme",
       [](RunOptions& o) {
         o.parameters = o.gradients = o.optimizer = nvme, o.order = Order::vertical, o.overlap = OptimizerOverlap::forward;
       }},
      {"recomputed", [](RunOptions& o) { o.activations = host, o.recompute = true, o.gradients = host; }},
      {"1f1b2", [](RunOptions& o) { o.pipeline = {.ranks = 2}, o.gradients = host; }},
      {"gpipe3_nvme", [](RunOptions& o) { o.pipeline = {.ranks = 3, .kind = ScheduleKind::gpipe}, o.gradients = o.optimizer = nvme; }},
      {"zb_v2_nvme_forward",
       [](RunOptions& o) {
         o.pipeline = {.ranks = 2, .kind = ScheduleKind::zb_v, .chunks = 2};
         o.parameters = o.gradients = o.optimizer = nvme, o.overlap = OptimizerOverlap::forward;
       }},
      {"zb_h1_2_backward",
       [](RunOptions& o) {
         o.pipeline = {.ranks = 2, .kind = ScheduleKind::zb_h1}, o.overlap = OptimizerOverlap::backward, o.deferred_sixteenths = 8;
       }},
      {"vertical2_host", [](RunOptions& o) { o.pipeline = {.ranks = 2}, o.order = Order::vertical, o.gradients = host; }},
  };
  return all;
}

class ReductionWays : public testing::TestWithParam<std::tuple<int, DType, size_t>> {};

TEST_P(ReductionWays, GiveTheSameBits) {
  const auto& [stage, dtype, way] = GetParam();
  static std::map<DType, RunResult> reference;
  RunOptions o = tiny("gpt2-tiny", 2, 3);
  o.dtype = dtype;
  if (!reference.count(dtype)) reference[dtype] = train(o);
  o.zero_stage = stage;
  ways()[way].change(o);
  const RunResult got = train(o);
  expect_same_run(got, reference[dtype]);
  EXPECT_GT(got.moved.exchanged, 0);
}

std::string way_name(const testing::TestParamInfo<ReductionWays::ParamType>& info) {
  const auto& [stage, dtype, way] = info.param;
  return "stage" + std::to_string(stage) + "_" + std::string(to_string(dtype)) + "_" + ways()[way].name;
}
const auto kCells = cells_of(std::vector{2, 3}, std::vector{DType::f32}, range(size_t{0}, ways().size()));
INSTANTIATE_TEST_SUITE_P(F32, ReductionWays, testing::ValuesIn(kCells.diagonal), way_name);
INSTANTIATE_TEST_SUITE_P(F32More, ReductionWays, testing::ValuesIn(kCells.rest), way_name);
INSTANTIATE_TEST_SUITE_P(Bf16Release, ReductionWays,
                         testing::Combine(testing::Values(2, 3), testing::Values(DType::bf16), testing::Range(size_t{0}, ways().size())),
                         way_name);

TEST(ReductionVariantsMore, FrozenSplitMasterAndRoundedGradients) {
  for (const auto& change : std::vector<std::function<void(RunOptions&)>>{
           [](RunOptions& o) { o.freeze = [](const nn::Parameter& p) { return p.name.find("attn") != std::string::npos; }; },
           [](RunOptions& o) { o.dtype = DType::bf16, o.master = optim::Master::split, o.round_gradients = true; },
           [](RunOptions& o) { o.dtype = DType::f64; }}) {
    RunOptions o = tiny("gpt2-tiny", 3, 2);
    change(o);
    const RunResult want = train(o);
    o.zero_stage = 3;
    o.parameters = o.gradients = Tier::nvme, o.optimizer = Tier::host, o.overlap = OptimizerOverlap::backward;
    expect_same_run(train(o), want);
    o.pipeline = {.ranks = 2};
    expect_same_run(train(o), want);
  }
}

i64 resting_gradients(const parallel::Plan& plan) {
  for (const parallel::PlanRow& row : plan.rows) {
    if (row.what == "gradients") return row.bytes[0];
  }
  return 0;
}

i64 summed_bytes(const parallel::Plan& plan) {
  i64 bytes = 0;
  for (const parallel::Instruction& i : plan.train.head) bytes += i.op == Op::Exchange ? i.exchanged_bytes : 0;
  return bytes;
}

// Shows that in any order each rank holds 1/N of the gradients, to within a tile per
// group and use. The exchanged bytes grow with the number of micro-batches.
TEST(ReductionMemory, IsEachRanksPart) {
  const RunOptions whole = [] {
    RunOptions o = tiny("gpt2-tiny", 4, 5);
    o.reduce_each = false;
    return o;
  }();
  RunOptions each = whole;
  each.reduce_each = true;
  const nn::Sequential model = models::build(whole.model, DType::f32);
  const parallel::Plan all = make_plan(plan_request(model, whole));
  i64 uses = 0, sum = 0;
  for (const parallel::Group& g : all.layout.groups) uses += std::ssize(g.uses);
  for (int r = 0; r < each.ranks; ++r) {
    const parallel::Plan part = make_plan(plan_request(model, each, r));
    EXPECT_EQ(summed_bytes(part), 5 * summed_bytes(all));
    sum += resting_gradients(part);
    EXPECT_NEAR(static_cast<double>(resting_gradients(part)), static_cast<double>(resting_gradients(all)) / 4,
                static_cast<double>(uses * parallel::kTileElems * 4));
  }
  EXPECT_EQ(sum, resting_gradients(all));
}

// Deletes each instruction that computes a sum, or stores or fetches it. The checker must refuse every list that lacks such an
// instruction.
class ReductionProgram : public testing::TestWithParam<std::tuple<Tier, Order, int>> {
 protected:
  ReductionProgram() {
    RunOptions o = tiny("gpt2-tiny", 2, 3);
    o.gradients = std::get<0>(GetParam());
    o.order = std::get<1>(GetParam());
    o.pipeline.ranks = std::get<2>(GetParam());
    plan_ = make_plan(plan_request(model_, o));
  }
  bool refused(const parallel::List& head) const {
    parallel::Program broken = plan_.train;
    broken.head = head;
    try {
      parallel::check(broken, plan_.layout, plan_.placement, plan_.scheduling);
    } catch (const Error&) {
      return true;
    }
    return false;
  }
  static bool makes_sum(const parallel::Instruction& i) {
    const bool moves = (i.op == Op::Fetch || i.op == Op::Evict) && i.what == parallel::What::gradient;
    return i.op == Op::Exchange || i.op == Op::Accumulate || moves;
  }
  const nn::Sequential model_ = models::build(tiny("gpt2-tiny", 1, 1).model, DType::f32);
  parallel::Plan plan_;
};

TEST_P(ReductionProgram, MissesWhatIsLeftOut) {
  const parallel::List& head = plan_.train.head;
  ASSERT_FALSE(refused(head));
  std::map<Op, int> deleted;
  for (size_t i = 0; i < head.size(); ++i) {
    if (!makes_sum(head[i])) continue;
    EXPECT_TRUE(refused(without(head, i))) << "without instruction " << i << ", " << to_string(head[i].op);
    ++deleted[head[i].op];
  }
  const int groups = static_cast<int>(std::ranges::count_if(plan_.layout.groups, [](const auto& g) { return g.held(); }));
  EXPECT_GE(deleted[Op::Exchange], 3 * groups);
  EXPECT_GE(deleted[Op::Accumulate], 2 * groups);
  EXPECT_GE(deleted[Op::Evict], 2 * groups);
  EXPECT_GE(deleted[Op::Fetch], 2 * groups);
}

// Removes each wait of an Accumulate for an instruction that makes a sum. Instructions on different threads, or that use the same memory,
// must keep their order, so the checker must refuse every removal.
TEST_P(ReductionProgram, MissesWhatDoesNotWait) {
  const parallel::List& head = plan_.train.head;
  int cut = 0, found = 0;
  for (size_t i = 0; i < head.size(); ++i) {
    if (head[i].op != Op::Accumulate) continue;
    for (const u32 a : head[i].after) {
      if (!makes_sum(head[a])) continue;
      parallel::List broken = head;
      std::erase(broken[i].after, a);
      ++cut;
      found += refused(broken);
    }
  }
  EXPECT_EQ(found, cut);
  EXPECT_GT(cut, 5);
}

TEST_P(ReductionProgram, MissesASumAddedToItselfOrTwice) {
  const parallel::List& head = plan_.train.head;
  const auto sum = std::ranges::find(head, Op::Accumulate, &parallel::Instruction::op) - head.begin();
  parallel::List broken = head;
  broken[static_cast<size_t>(sum)].in = broken[static_cast<size_t>(sum)].out;
  EXPECT_TRUE(refused(broken));
  broken = head;
  parallel::Instruction again = head[static_cast<size_t>(sum)];
  for (parallel::Instruction& i : broken) {
    for (u32& a : i.after) a += a > sum;
  }
  broken.insert(broken.begin() + sum + 1, again);
  EXPECT_TRUE(refused(broken));
}

std::string program_name(const testing::TestParamInfo<ReductionProgram::ParamType>& info) {
  const auto& [tier, order, stages] = info.param;
  return std::string(to_string(tier)) + (order == Order::vertical ? "_vertical" : "_in_turn") + "_stages" + std::to_string(stages);
}
INSTANTIATE_TEST_SUITE_P(Programs, ReductionProgram,
                         testing::Combine(testing::Values(Tier::device, Tier::host, Tier::nvme),
                                          testing::Values(Order::micro_batch, Order::vertical), testing::Values(1, 2)),
                         program_name);

}  // namespace
}  // namespace spillway::test::micro_batch_reduction_test
