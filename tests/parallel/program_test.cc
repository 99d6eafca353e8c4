// The generator makes Programs that pass the check under every placement, and the check refuses what would read or overwrite wrongly.
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "parallel/check.h"
#include "parallel/generate.h"

namespace spillway::parallel {
namespace {

constexpr Tier kTiers[] = {Tier::device, Tier::host, Tier::nvme};

Layout layout_of(const char* preset) {
  return make_layout(models::build(models::preset(preset), DType::f32), {.max_bucket_elems = 4 * kTileElems});
}

// The list without instruction n; later numbers move down, nobody waits for n any more.
List without(const List& list, u32 n) {
  List rest;
  for (u32 i = 0; i < list.size(); ++i) {
    if (i == n) continue;
    rest.push_back(list[i]);
    std::erase(rest.back().after, n);
    for (u32& a : rest.back().after) a -= a > n;
  }
  return rest;
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

// What makes a gradient final and brings it home; of AddTied, Reduce and the last Evict of each none is dispensable.
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

// Copies by the computing threads hide behind nothing: they stand right before their use, whatever is fetched ahead from nvme.
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
    if (program.head[i].op == Op::AgreeNorm) continue;  // it waits so that the tail may start, not for memory
    for (size_t a = 0; a < program.head[i].after.size(); ++a) {
      if (program.head[program.head[i].after[a]].op == Op::Load) continue;  // tokens are no slot
      Program broken = program;
      broken.head[i].after.erase(broken.head[i].after.begin() + static_cast<std::ptrdiff_t>(a));
      edges += refusal(broken, layout, placement) != "";
    }
  }
  // Some edges are implied by others; most are not.
  EXPECT_GT(edges, 20);
}

TEST_F(Spilled, WaitingForSomethingLaterIsRefused) {
  Program broken = program;
  broken.head[1].after.push_back(static_cast<u32>(broken.head.size() - 1));
  EXPECT_NE(refusal(broken, layout, placement).find("does not come before"), std::string::npos);
}

TEST_F(Spilled, ASlotOutsideTheSlabIsRefused) {
  Program broken = program;
  broken.slab_bytes[0] -= 1;
  EXPECT_NE(refusal(broken, layout, placement).find("leaves the slab"), std::string::npos);
}

TEST_F(Spilled, FetchingOverWhatIsReadIsRefused) {
  // The second Fetch of weights goes where the first one's lie.
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
  const auto gap = [&](int prefetch) {  // computing instructions between the Fetch of the last block and its Forward
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
  EXPECT_EQ(tail.read[2], 3 * all);  // weights, m, v
  EXPECT_EQ(tail.written[2], 3 * all);
  EXPECT_EQ(tail.read[1], all);                // gradients
  EXPECT_EQ(head.written[1], 2 * all + tied);  // by each micro-batch; the tied one's second use waits in its slot on the last
  EXPECT_EQ(head.read[1], all + tied);         // fetched by the second micro-batch
}

}  // namespace
}  // namespace spillway::parallel
