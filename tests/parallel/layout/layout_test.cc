#include "parallel/layout/layout.h"

#include <gtest/gtest.h>

#include <set>

#include "models/model.h"
#include "models/presets.h"

namespace spillway::parallel::layout_test {
namespace {

TEST(Layout, EveryParameterLiesOnceAndAligned) {
  for (const char* preset : {"gpt2-tiny", "llama-tiny", "gpt2-124m"}) {
    const nn::Sequential model = models::build(models::preset(preset), DType::f32);
    const Layout layout = make_layout(model);
    std::set<u32> seen;
    for (const Group& g : layout.groups) {
      i64 end = 0;
      for (const Segment& s : g.segments) {
        EXPECT_TRUE(seen.insert(s.parameter).second);
        EXPECT_EQ(s.begin % kSegmentAlignElems, 0);
        EXPECT_GE(s.begin, end);
        EXPECT_EQ(s.elems, model.parameters[s.parameter]->elems());
        EXPECT_EQ(&layout.segment(s.parameter), &s);
        end = s.begin + s.elems;
      }
      EXPECT_LE(end, g.elems);
      EXPECT_EQ(g.elems % kTileElems, 0);
    }
    EXPECT_EQ(seen.size(), model.parameters.size());
  }
}

TEST(Layout, BucketsAreBoundedAndTileTheirGroup) {
  const Layout layout = make_layout(models::build(models::preset("gpt2-124m"), DType::f32), {.max_bucket_elems = 64 * kTileElems});
  for (const Group& g : layout.groups) {
    i64 at = 0;
    for (u16 b : g.buckets) {
      EXPECT_EQ(layout.buckets[b].begin, at);
      EXPECT_LE(layout.buckets[b].elems(), 64 * kTileElems);
      at += layout.buckets[b].elems();
    }
    EXPECT_EQ(at, g.elems);
  }
}

TEST(Layout, ATiedHeadIsAGroupOfItsOwn) {
  const Layout layout = make_layout(models::build(models::preset("gpt2-tiny"), DType::f32));
  int tied = 0;
  for (const Group& g : layout.groups) {
    if (!g.tied()) continue;
    ++tied;
    EXPECT_EQ(g.owner_block, 0);
    EXPECT_EQ(g.uses, (std::vector<u16>{0, static_cast<u16>(layout.blocks.size() - 1)}));
    EXPECT_EQ(g.segments.size(), 1u);
  }
  EXPECT_EQ(tied, 1);
  for (const Group& g : make_layout(models::build(models::preset("llama-tiny"), DType::f32)).groups) EXPECT_FALSE(g.tied());
}

TEST(Layout, OnlyMatricesDecayUnlessAllShall) {
  const nn::Sequential model = models::build(models::preset("gpt2-tiny"), DType::f32);
  for (bool all : {false, true}) {
    const Layout layout = make_layout(model, {.decay_all = all});
    for (const auto& p : model.parameters) EXPECT_EQ(layout.segment(p->id).decay, all || p->shape.rank() >= 2) << p->name;
  }
}

TEST(Layout, SegmentsCoverARangeWithItsGaps) {
  Group g;
  g.segments = {{0, 0, 10, true}, {1, 64, 100, false}};
  g.elems = 256;
  std::vector<std::tuple<i64, i64, bool>> pieces;
  for_segments(g, 5, 200, [&](i64 begin, i64 end, const Segment* s) { pieces.emplace_back(begin, end, s != nullptr); });
  EXPECT_EQ(pieces, (std::vector<std::tuple<i64, i64, bool>>{{5, 10, true}, {10, 64, false}, {64, 164, true}, {164, 200, false}}));
}

}  // namespace
}  // namespace spillway::parallel::layout_test
