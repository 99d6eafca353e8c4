// Tests that the generator makes instruction lists (a Program) that pass the checker whichever tiers hold the tensors, and that the checker
// refuses lists that would read or overwrite memory wrongly.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "parallel/program/generate.h"
#include "parallel/proof/check.h"
#include "tests/parallel/program/support_program.h"

namespace spillway::parallel::program_test {
namespace {

using spillway::test::without;

constexpr Tier kTiers[] = {Tier::device, Tier::host, Tier::nvme};

Layout layout_of(const char* preset) {
  return make_layout(models::build(models::preset(preset), DType::f32), {.max_bucket_elems = 4 * kTileElems});
}

std::string refusal(const Program& program, const Layout& layout, const Placement& placement) {
  try {
    check(program, layout, placement);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Program, EveryPlacementPasses) {
  for (const char* preset : {"gpt2-tiny", "llama-tiny"}) {
    const Layout layout = layout_of(preset);
    for (Tier p : kTiers) {
      for (Tier g : kTiers) {
        for (i64 k : {1, 3}) {
          for (int prefetch : {0, 1, 3, 9}) {
            for (bool recompute : {false, true}) {
              const Placement placement = Placement::uniform(layout, p, g, Tier::nvme, {recompute});
              EXPECT_EQ(refusal(generate_training(layout, placement, {k, prefetch}), layout, placement), "");
              EXPECT_EQ(refusal(generate_forward(layout, placement, {k, prefetch}), layout, placement), "");
            }
          }
        }
      }
    }
  }
}

class Spilled : public testing::Test {
 protected:
  const Layout layout = layout_of("gpt2-tiny");
  const Placement placement = Placement::uniform(layout, Tier::nvme, Tier::host, Tier::nvme);
  const Program program = generate_training(layout, placement, {2, 1});
};

TEST_F(Spilled, DeletingAnyFetchIsRefused) {
  int fetches = 0;
  for (u32 i = 0; i < program.head.size(); ++i) {
    if (program.head[i].op != Op::Fetch) continue;
    ++fetches;
    Program broken = program;
    broken.head = without(program.head, i);
    EXPECT_NE(refusal(broken, layout, placement), "") << "without instruction " << i;
  }
  EXPECT_GT(fetches, 10);
}

// Deletes one instruction that completes a gradient and stores it: an AddTied, a Reduce or the
// last Evict. No such instruction is dispensable, so each deletion must be refused.
TEST(Program, DeletingWhatFinishesAGradientIsRefused) {
  const Layout layout = layout_of("gpt2-tiny");
  for (Tier tier : kTiers) {
    for (const OptimizerOverlap overlap : {OptimizerOverlap::none, OptimizerOverlap::backward, OptimizerOverlap::forward}) {
      for (const Order order : {Order::micro_batch, Order::vertical}) {
        const Placement placement = Placement::uniform(layout, Tier::host, tier, Tier::host);
        Scheduling scheduling{.micro_batches = 2, .overlap = overlap, .order = order};
        const Program program = generate_training(layout, placement, scheduling);
        ASSERT_EQ(refusal(program, layout, placement), "");
        int finishing = 0;
        for (u32 i = 0; i < program.head.size(); ++i) {
          const Instruction& now = program.head[i];
          const bool home = now.op == Op::Evict && i > 0 && program.head[i - 1].op == Op::Reduce;
          if (now.op != Op::AddTied && now.op != Op::Reduce && !home) continue;
          ++finishing;
          Program broken = program;
          broken.head = without(program.head, i);
          EXPECT_NE(refusal(broken, layout, placement), "") << to_string(now.op) << ", instruction " << i;
        }
        EXPECT_GE(finishing, static_cast<int>(layout.groups.size()) + 1);
      }
    }
  }
}

// Shows that copies which occupy the computing threads, and so overlap no computation, stand right before the instruction that uses them,
// however many blocks are prefetched from nvme.
TEST(Program, HostWeightsAreFetchedJustBeforeTheirUse) {
  const Layout layout = layout_of("gpt2-tiny");
  const Placement placement = Placement::uniform(layout, Tier::host, Tier::host, Tier::host);
  const List head = generate_training(layout, placement, {.micro_batches = 2, .prefetch = 3}).head;
  for (u32 i = 0; i < head.size(); ++i) {
    if (head[i].op != Op::Fetch) continue;
    EXPECT_EQ(head[i].lane, Lane::compute);
    u32 user = i + 1;
    while (head[user].op == Op::Fetch) ++user;
    EXPECT_TRUE(head[user].op == Op::Forward || head[user].op == Op::Backward) << i;
  }
}

TEST_F(Spilled, ForgettingToWaitForAnythingIsRefused) {
  int edges = 0;
  for (u32 i = 0; i < program.head.size(); ++i) {
    if (program.head[i].op == Op::AgreeNorm) continue;  // AgreeNorm waits so that the step may end, not for the use of memory
    for (size_t a = 0; a < program.head[i].after.size(); ++a) {
      // the wait for Load is needed for the tokens, which are outside of the planned memory
      if (program.head[program.head[i].after[a]].op == Op::Load) continue;
      Program broken = program;
      broken.head[i].after.erase(broken.head[i].after.begin() + static_cast<std::ptrdiff_t>(a));
      edges += refusal(broken, layout, placement) != "";
    }
  }
  // Some edges (waits named in `after`) are implied by others, but most are not.
  EXPECT_GT(edges, 20);
}

TEST_F(Spilled, WaitingForSomethingLaterIsRefused) {
  Program broken = program;
  broken.head[1].after.push_back(static_cast<u32>(broken.head.size() - 1));
  EXPECT_NE(refusal(broken, layout, placement).find("not an earlier one"), std::string::npos);
}

TEST_F(Spilled, ASlotOutsideTheSlabIsRefused) {
  Program broken = program;
  broken.slab_bytes[0] -= 1;
  EXPECT_NE(refusal(broken, layout, placement).find("not inside the slab"), std::string::npos);
}

TEST_F(Spilled, FetchingOverWhatIsReadIsRefused) {
  // Makes the second Fetch of weights write to the memory of the first Fetch.
  Program broken = program;
  Slot first;
  for (Instruction& i : broken.head) {
    if (i.op != Op::Fetch || i.what != What::weights) continue;
    if (first.bytes == 0) {
      first = i.out;
    } else if (i.out.bytes == first.bytes) {
      i.out.offset = first.offset;
      break;
    }
  }
  EXPECT_NE(refusal(broken, layout, placement), "");
}

TEST_F(Spilled, PrefetchMeansAnEarlierFetch) {
  const auto gap = [&](int prefetch) {  // counts the computing instructions between the Fetch of the last block and its Forward
    const Program p = generate_training(layout, placement, {1, prefetch});
    const u16 group = layout.blocks.back()[0].group;
    int computing = 0;
    bool fetched = false;
    for (const Instruction& i : p.head) {
      if (i.op == Op::Fetch && i.what == What::weights && i.group == group) fetched = true;
      if (i.op == Op::Forward && i.block + 1u == layout.blocks.size()) return computing;
      computing += fetched && i.op == Op::Forward;
    }
    return -1;
  };
  EXPECT_EQ(gap(0), 0);
  EXPECT_EQ(gap(1), 1);
  EXPECT_EQ(gap(3), 3);
}

TEST_F(Spilled, CountsTheBytesItMoves) {
  const TierBytes head = moved_bytes(program.head), tail = moved_bytes(program.commit);
  const i64 all = layout.elems() * 4;
  i64 tied = 0;
  for (const Group& g : layout.groups) tied += g.tied() ? g.elems * 4 : 0;
  ASSERT_GT(tied, 0);
  EXPECT_EQ(tail.read[2], 3 * all);  // the update reads all weights and both of AdamW's moments
  EXPECT_EQ(tail.written[2], 3 * all);
  EXPECT_EQ(tail.read[1], all);  // the update reads all gradients
  // each of two micro-batches writes all gradients; on the last one the gradient of a tied weight's second use stays on the device
  EXPECT_EQ(head.written[1], 2 * all + tied);
  EXPECT_EQ(head.read[1], all + tied);  // the second micro-batch reads the gradients that the first one wrote
}

// Names the instruction list in which the last gradients are used by the optimizer, if gradients are stored on nvme. The gradients of the
// first blocks are computed last. They stay in the device's memory until their update, which is in the list `tail`, in the list `head`,
// or, if it is deferred, in the next step's `head`.
struct LastGradientCase {
  OptimizerOverlap overlap;
  i64 micro_batches;
  Order order;
  u16 blocks = 1;
  bool once() const { return micro_batches == 1 || order == Order::vertical; }
};

class LastGradient : public testing::TestWithParam<LastGradientCase> {
 protected:
  Program generate(const Placement& p, int prefetch = 1) const {
    const auto [overlap, micro_batches, order, blocks] = GetParam();
    Scheduling scheduling{.micro_batches = micro_batches, .prefetch = prefetch, .overlap = overlap, .order = order};
    scheduling.staying_blocks = blocks;
    return generate_training(layout, p, scheduling);
  }
  bool last(u16 group) const { return layout.groups[group].owner_block < GetParam().blocks; }
  // Returns every instruction list that contains optimizer updates (Op::Step).
  static std::vector<List Program::*> stepping(const Program& p) {
    std::vector<List Program::*> lists;
    for (const auto& [name, list] : kLists) {
      if (std::ranges::any_of(p.*list, [](const Instruction& i) { return i.op == Op::Step; })) lists.push_back(list);
    }
    return lists;
  }
  // Applies `change` to one update of a last gradient at a time and expects the checker to refuse each changed list.
  void expect_refused_when_stepping(const std::function<void(Instruction&)>& change) const {
    for (const auto list : stepping(program)) {
      for (u32 i = 0; i < (program.*list).size(); ++i) {
        if ((program.*list)[i].op != Op::Step || (program.*list)[i].in.bytes == 0) continue;
        Program broken = program;
        change((broken.*list)[i]);
        EXPECT_NE(refusal(broken, layout, placement), "") << "Step, instruction " << i;
      }
    }
  }
  // Inserts these instructions after all computation, just before the norm, and returns the checker's objection.
  std::string refusal_with(const List& more) const {
    Program broken = program;
    const auto norm = std::ranges::find(broken.head, Op::AgreeNorm, &Instruction::op);
    broken.head.insert(norm, more.begin(), more.end());
    return refusal(broken, layout, placement);
  }
  Instruction reduce_of_last() const {
    return *std::ranges::find_if(program.head, [&](const Instruction& i) { return i.op == Op::Reduce && last(i.group); });
  }

  const Layout layout = layout_of("gpt2-tiny");
  const Placement placement = Placement::uniform(layout, Tier::nvme, Tier::nvme, Tier::nvme);
  const Program program = generate(placement);
};

TEST_P(LastGradient, StaysInItsSlotForItsSteps) {
  ASSERT_EQ(refusal(program, layout, placement), "");
  std::map<u16, Slot> reduced;
  for (const Instruction& i : program.head) {
    if (i.op == Op::Reduce) reduced[i.group] = i.in;
    const bool final = i.op == Op::Evict && reduced.count(i.group);
    EXPECT_FALSE(final && last(i.group));
  }
  // The overlap setting decides how many instruction lists contain optimizer updates (Op::Step). Without overlap it is the list `commit`.
  // With backward it is `head` (the list with which a step begins), `clipped_head` and `clipped_settle`. With forward it is `head` and
  // `settle`.
  constexpr size_t kListsWithSteps[] = {1, 3, 2};
  EXPECT_EQ(stepping(program).size(), kListsWithSteps[static_cast<size_t>(GetParam().overlap)]);
  for (const auto list : stepping(program)) {
    int stay = 0;
    for (const Instruction& i : program.*list) {
      if (i.op != Op::Step) continue;
      EXPECT_EQ(i.in, last(i.group) ? reduced.at(i.group) : Slot());
      stay += i.in.bytes > 0;
    }
    EXPECT_GE(stay, 2) << "buckets";
  }
}

// Shows that a gradient that stays in the device's memory until its update takes no more memory, since the step's first list (`head`)
// needs this place until its end anyway.
TEST_P(LastGradient, OfTheFirstBlockTakesNoMoreMemory) {
  if (GetParam().blocks > 1) return;
  const Placement on_host = Placement::uniform(layout, Tier::nvme, Tier::host, Tier::nvme);
  EXPECT_EQ(generate(placement, 0).moving_slab_bytes(), generate(on_host, 0).moving_slab_bytes());
}

TEST_P(LastGradient, IsNeitherWrittenNorRead) {
  const Program on_device = generate(Placement::uniform(layout, Tier::nvme, Tier::device, Tier::nvme));
  const auto moved = [](const Program& p) {
    TierBytes sum = moved_bytes(p.head);
    const TierBytes tail = moved_bytes(p.commit);
    return std::pair(sum.written[2] + tail.written[2], sum.read[2] + tail.read[2]);
  };
  const auto [k, once] = std::pair(GetParam().micro_batches, GetParam().once());
  i64 written = 0, read = 0;
  for (const Group& g : layout.groups) {
    const i64 bytes = g.elems * 4, sum_moves = once ? 1 : k, others = once ? 0 : (std::ssize(g.uses) - 1) * (k - 1);
    written += bytes * (sum_moves - last(g.id) + others);
    read += bytes * (sum_moves - last(g.id) + others);
  }
  EXPECT_EQ(moved(program).first, moved(on_device).first + written);
  EXPECT_EQ(moved(program).second, moved(on_device).second + read);
}

TEST_P(LastGradient, ReadElsewhereIsRefused) {
  expect_refused_when_stepping([](Instruction& step) { step.in = {}; });
  expect_refused_when_stepping([](Instruction& step) { step.in.offset += 4096; });
  for (const auto list : stepping(program)) {  // makes an update read the memory of another group, whose gradient is stored
    Program broken = program;
    const auto other = std::ranges::find_if(broken.*list, [&](const Instruction& i) { return i.op == Op::Step && !last(i.group); });
    other->in = reduce_of_last().in;
    EXPECT_NE(refusal(broken, layout, placement), "");
  }
}

TEST_P(LastGradient, GivenUpOrOverwrittenBeforeItsStepsIsRefused) {
  const Instruction reduce = reduce_of_last();
  Instruction evict{.op = Op::Evict, .lane = Lane::compute, .what = What::gradient, .group = reduce.group};
  evict.in = reduce.in;
  EXPECT_NE(refusal_with({evict}), "");
  // Fetches weights of the same size into the memory that holds a gradient. No other instruction would notice this.
  Instruction fetch{.op = Op::Fetch, .lane = Lane::compute, .what = What::weights, .group = reduce.group};
  fetch.out = reduce.in;
  EXPECT_NE(refusal_with({fetch}), "");
  Instruction backward = *std::ranges::find_if(program.head, [](const Instruction& i) { return i.op == Op::Backward && i.block == 0; });
  backward.weights.assign(backward.weights.size(), {});
  EXPECT_NE(refusal_with({backward}), "") << "not reduced";
}

INSTANTIATE_TEST_SUITE_P(Overlaps, LastGradient,
                         testing::Values(LastGradientCase{OptimizerOverlap::none, 1, Order::micro_batch},
                                         LastGradientCase{OptimizerOverlap::none, 3, Order::micro_batch},
                                         LastGradientCase{OptimizerOverlap::backward, 1, Order::micro_batch},
                                         LastGradientCase{OptimizerOverlap::backward, 3, Order::vertical},
                                         LastGradientCase{OptimizerOverlap::forward, 1, Order::micro_batch},
                                         LastGradientCase{OptimizerOverlap::forward, 3, Order::micro_batch},
                                         LastGradientCase{OptimizerOverlap::forward, 3, Order::vertical},
                                         LastGradientCase{OptimizerOverlap::none, 1, Order::micro_batch, 3},
                                         LastGradientCase{OptimizerOverlap::backward, 3, Order::micro_batch, 2},
                                         LastGradientCase{OptimizerOverlap::forward, 1, Order::micro_batch, 2}));

// Shows that frozen weights wait for a deferred update if they are copied into memory that this update still reads. Frozen weights are not
// updated, so they wait for nothing else.
TEST(Program, WhatComesToTheSlotOfADeferredStepWaitsForIt) {
  const nn::Sequential model = models::build(models::preset("gpt2-tiny"), DType::f32);
  for (const auto& p : model.parameters) p->frozen = p->name.find(".h.2.") == std::string::npos;
  const Layout layout = make_layout(model, {.max_bucket_elems = 4 * kTileElems});
  const Placement placement = Placement::uniform(layout, Tier::nvme, Tier::nvme, Tier::nvme);
  const Program program = generate_training(layout, placement, {.prefetch = 3, .overlap = OptimizerOverlap::forward});
  ASSERT_EQ(refusal(program, layout, placement), "");
  const auto is_step = [&](u32 i) { return program.head[i].op == Op::Step && program.head[i].in.bytes > 0; };
  const auto waiting = std::ranges::find_if(program.head, [&](const Instruction& i) {
    return i.op == Op::Fetch && layout.groups[i.group].frozen && std::ranges::any_of(i.after, is_step);
  });
  ASSERT_NE(waiting, program.head.end());
  Program broken = program;
  std::erase_if(broken.head[static_cast<size_t>(waiting - program.head.begin())].after, is_step);
  EXPECT_NE(refusal(broken, layout, placement).find("may still use"), std::string::npos);
}

// Shows that a step's first list (`head`) computes the same whether the updates of the step before are deferred into it or not.
TEST(Program, TheFirstHeadIsTheHeadWithoutItsSteps) {
  const Layout layout = layout_of("gpt2-tiny");
  for (Tier weights : kTiers) {
    const Placement placement = Placement::uniform(layout, weights, Tier::nvme, Tier::nvme);
    const Program program = generate_training(layout, placement, {.micro_batches = 2, .overlap = OptimizerOverlap::forward});
    ASSERT_EQ(refusal(program, layout, placement), "");
    const auto without_steps = [](List list) {
      std::erase_if(list, [](const Instruction& i) { return i.lane == Lane::optimizer; });
      for (Instruction& i : list) i.after.clear();
      return to_text(list);
    };
    EXPECT_EQ(without_steps(program.first_head), without_steps(program.head));
    EXPECT_EQ(std::ranges::count(program.first_head, Lane::optimizer, &Instruction::lane), 0);
    Program broken = program;
    broken.first_head.push_back(*std::ranges::find(program.head, Op::Step, &Instruction::op));
    EXPECT_NE(refusal(broken, layout, placement), "");
  }
}

}  // namespace
}  // namespace spillway::parallel::program_test
