// Tests the instruction lists of zero-bubble schedules. In these the weight gradients of a block and micro-batch are computed by a separate
// instruction, the weight part. It runs later, on data that the input part left in planned memory. The checker finds every planted fault.
// pipeline_test.cc shows that the results are bitwise the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "parallel/proof/check.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test::weight_part_test {
namespace {

using parallel::Instruction;
using parallel::List;
using parallel::Op;
using parallel::ScheduleKind;
using parallel::Tier;

struct Case {
  ScheduleKind kind;
  const char* model;
  Tier tier;
  bool recompute;
};

class WeightParts : public testing::TestWithParam<Case> {
 protected:
  RunOptions options() const {
    const Case& c = GetParam();
    RunOptions o;
    o.model = models::preset(c.model);
    o.model.layers = 4;
    o.sequence_length = 16;
    o.micro_batches = 5;
    o.steps = 2;
    o.pipeline = {.ranks = 2, .kind = c.kind, .chunks = parallel::default_chunks(c.kind)};
    o.parameters = o.gradients = o.optimizer = o.activations = c.tier;
    o.recompute = c.recompute;
    return o;
  }
  parallel::Plan plan(int pipeline_rank) const {
    const RunOptions o = options();
    return make_plan(plan_request(models::build(o.model, o.dtype), o, 0, pipeline_rank));
  }
};

std::string refusal(const parallel::Plan& p) {
  try {
    check(p.train, p.layout, p.placement, p.scheduling);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

size_t find(const List& list, Op op, u16 block, u16 micro_batch) {
  const auto same = [&](const Instruction& i) { return i.op == op && i.block == block && i.micro_batch == micro_batch; };
  return static_cast<size_t>(std::ranges::find_if(list, same) - list.begin());
}

TEST_P(WeightParts, AreInstructionsOfTheirOwnAndLater) {
  for (const int rank : {0, 1}) {
    const parallel::Plan p = plan(rank);
    ASSERT_EQ(refusal(p), "");
    int parts = 0, later = 0;
    for (size_t w = 0; w < p.train.head.size(); ++w) {
      const Instruction& now = p.train.head[w];
      EXPECT_NE(now.op, Op::Backward);
      if (now.op != Op::BackwardWeight) continue;
      const size_t input = find(p.train.head, Op::BackwardInput, now.block, now.micro_batch);
      ASSERT_LT(input, w);
      ++parts;
      later += std::any_of(p.train.head.begin() + static_cast<std::ptrdiff_t>(input), p.train.head.begin() + static_cast<std::ptrdiff_t>(w),
                           [&](const Instruction& i) { return computes_block(i.op) && i.micro_batch != now.micro_batch; });
      EXPECT_EQ(now.weights.size(), p.layout.blocks[now.block].size());
      EXPECT_FALSE(now.recompute);
      EXPECT_EQ(now.in.bytes + now.out.bytes + now.spill.bytes, 0) << "messages and spilled activations are the input part's";
    }
    EXPECT_EQ(parts, 5 * std::ranges::count(p.layout.rank_of, p.layout.rank));
    if (rank == 1) {  // only ranks after the first one wait between the two parts; the first rank is idle elsewhere
      EXPECT_GT(later, 0);
    }
  }
}

// Shows that the weight part of blocks that consist of matrix products and norms reads no weights: it uses activations alone.
TEST_P(WeightParts, OfInnerBlocksReadNoWeights) {
  const parallel::Plan p = plan(0);
  for (const Instruction& i : p.train.head) {
    if (i.op != Op::BackwardWeight || i.block + 1u == p.layout.blocks.size()) continue;
    for (const parallel::Slot& slot : i.weights) EXPECT_EQ(slot.bytes, 0);
  }
}

TEST_P(WeightParts, LeftOutOrDoubledAreRefused) {
  parallel::Plan p = plan(0);
  const List all = p.train.head;
  int planted = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].op != Op::BackwardWeight && all[i].op != Op::BackwardInput) continue;
    p.train.head[i].op = Op::Release;  // a Release frees nothing here, so the list lacks the effect of the replaced instruction
    p.train.head[i].in = {};
    p.train.head[i].group = 0;
    EXPECT_NE(refusal(p), "") << to_string(all[i].op) << ", instruction " << i;
    p.train.head[i] = all[i];
    p.train.head[i].op = all[i].op == Op::BackwardWeight ? Op::BackwardInput : Op::Backward;
    EXPECT_NE(refusal(p), "") << to_string(all[i].op) << ", instruction " << i;
    p.train.head[i] = all[i];
    ++planted;
  }
  EXPECT_GE(planted, 2 * 5 * 3);
}

TEST_P(WeightParts, InAnotherOrderAreRefused) {
  parallel::Plan p = plan(0);
  const List all = p.train.head;
  for (u16 block = 0; block < p.layout.blocks.size(); ++block) {
    if (!p.layout.here(block)) continue;
    for (u16 m = 0; m + 1u < 5; ++m) {
      const size_t a = find(all, Op::BackwardWeight, block, m), b = find(all, Op::BackwardWeight, block, static_cast<u16>(m + 1));
      ASSERT_LT(std::max(a, b), all.size());
      std::swap(p.train.head[a].micro_batch, p.train.head[b].micro_batch);
      std::swap(p.train.head[a].first, p.train.head[b].first);
      EXPECT_NE(refusal(p), "") << "block " << block << ", micro-batches " << m << " and the next";
      p.train.head = all;
    }
    // Plants a fault: the weight part of a backward stands before its input part.
    const size_t input = find(all, Op::BackwardInput, block, 1), weight = find(all, Op::BackwardWeight, block, 1);
    std::swap(p.train.head[input].op, p.train.head[weight].op);
    EXPECT_NE(refusal(p), "");
    p.train.head = all;
  }
}

TEST_P(WeightParts, RunApartAndLater) {
  const RunResult run = train(options()).others.at(0);
  const List& head = run.plan.train.head;
  int apart = 0;
  for (size_t w = 0; w < head.size(); ++w) {
    if (head[w].op != Op::BackwardWeight) continue;
    const parallel::Timing &weight = run.head_timings[w],
                           &input = run.head_timings[find(head, Op::BackwardInput, head[w].block, head[w].micro_batch)];
    EXPECT_GE(weight.start_us, input.end_us);
    for (size_t i = 0; i < head.size(); ++i) {
      const bool other = computes_block(head[i].op) && head[i].micro_batch != head[w].micro_batch;
      apart += other && run.head_timings[i].start_us >= input.end_us && run.head_timings[i].end_us <= weight.start_us;
    }
  }
  EXPECT_GT(apart, 0);
}

// Shows that the data that weight parts need is kept in the activation slab, and that the plan counts it to the page: a budget that is
// one page smaller does not suffice.
TEST_P(WeightParts, WaitInPlannedMemory) {
  RunOptions o = options();
  i64 together = 0, in_parts = 0;
  o.change_plan = [&](parallel::Plan& p) {
    if (p.layout.rank == 0) in_parts = p.activation_slab_bytes;
  };
  train(o);
  RunOptions joint = o;
  joint.pipeline.kind = ScheduleKind::one_forward_one_backward;
  joint.pipeline.chunks = 1;
  joint.change_plan = [&](parallel::Plan& p) {
    if (p.layout.rank == 0) together = p.activation_slab_bytes;
  };
  train(joint);
  if (GetParam().kind == ScheduleKind::zb_h1) {
    EXPECT_GT(in_parts, together);
  }
  o.change_plan = [](parallel::Plan& p) { p.activation_slab_bytes -= 4096; };
  EXPECT_THROW(train(o), Error);
}

INSTANTIATE_TEST_SUITE_P(Pipeline, WeightParts,
                         testing::Values(Case{ScheduleKind::zb_h1, "gpt2-tiny", Tier::device, false},
                                         Case{ScheduleKind::zb_h1, "llama-tiny", Tier::nvme, false},
                                         Case{ScheduleKind::zb_v, "gpt2-tiny", Tier::nvme, true}));
INSTANTIATE_TEST_SUITE_P(PipelineMore, WeightParts,
                         testing::Values(Case{ScheduleKind::zb_h1, "gpt2-tiny", Tier::host, true},
                                         Case{ScheduleKind::zb_v, "llama-tiny", Tier::device, false}));

// Shows that a block without trained parameters has no weight part, and passes the gradient on to the block before it.
TEST(WeightPartsOfFrozen, AreNotThere) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.sequence_length = 16;
  o.micro_batches = 3;
  o.pipeline = {.ranks = 2, .kind = ScheduleKind::zb_h1};
  o.freeze = [](const nn::Parameter& p) { return p.name.find(".h.3.") != p.name.npos; };
  const nn::Sequential model = models::build(o.model, o.dtype);
  for (const auto& p : model.parameters) p->frozen = o.freeze(*p);
  const List head = make_plan(plan_request(model, o, 0, 1)).train.head;
  EXPECT_LT(find(head, Op::BackwardInput, 4, 0), head.size());
  EXPECT_EQ(find(head, Op::BackwardWeight, 4, 0), head.size());
  EXPECT_LT(find(head, Op::BackwardWeight, 5, 0), head.size());
  EXPECT_GT(train(o).losses.size(), 0u);
}

}  // namespace
}  // namespace spillway::test::weight_part_test
