// Tests that a plan counts the memory that blocks take from another library: what they need while they compute, and what they keep from
// forward to backward.
#include "device/foreign_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/units.h"
#include "models/model.h"
#include "models/presets.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test::foreign_memory_test {
namespace {

constexpr i64 kWhile = 8 * kMiB, kKept = kMiB;

Allocation taken(i64 bytes) {
  Allocator* const counting = ForeignMemory::current();
  return counting ? counting->allocate(bytes, "another library") : Allocation();
}

/// Computes what another block computes, and takes kWhile bytes of another library while it does; if it is recorded, it keeps kKept bytes
/// until its backward.
class Taking final : public nn::Module {
 public:
  explicit Taking(std::unique_ptr<nn::Module> inner) : inner_(std::move(inner)) {}
  nn::Variable forward(const nn::Variable& x, const nn::Context& context) const override {
    static_cast<void>(taken(kWhile));
    const nn::Variable y = inner_->forward(x, context);
    autograd::Recorder recorder({y});
    if (!recorder.recording()) return y;
    const auto kept = std::make_shared<Allocation>(taken(kKept));
    return recorder.output(y.value, [kept](autograd::Backward& b) { b.pass(0, b.gradient()); });
  }
  std::vector<nn::ParameterUse> parameters() const override { return inner_->parameters(); }

 private:
  const std::unique_ptr<nn::Module> inner_;
};

nn::Sequential taking(const RunOptions& options) {
  nn::Sequential model = models::build(options.model, options.dtype), wrapped;
  for (auto& block : model.blocks) wrapped.push(std::make_unique<Taking>(std::move(block)));
  return wrapped;
}

RunOptions small(bool recompute) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.sequence_length = 16;
  o.recompute = recompute;
  return o;
}

parallel::Plan plan_of(const nn::Sequential& model, const RunOptions& options) { return make_plan(plan_request(model, options)); }

TEST(ForeignMemory, IsARowOfThePlanAndNotOfItsOwnBytes) {
  const RunOptions o = small(false);
  const nn::Sequential plain = models::build(o.model, o.dtype), model = taking(o);
  const parallel::Plan without = plan_of(plain, o), plan = plan_of(model, o);
  EXPECT_EQ(without.foreign_bytes, 0);
  const auto row = std::ranges::find(plan.rows, "PyTorch", &parallel::PlanRow::what);
  ASSERT_NE(row, plan.rows.end());
  EXPECT_EQ(row->bytes[0], plan.foreign_bytes);
  EXPECT_EQ(plan.total[0], without.total[0] + plan.foreign_bytes);
  EXPECT_EQ(plan.own_bytes(), without.total);
}

TEST(ForeignMemory, OfAllBlocksIsKeptUntilTheirBackwards) {
  const RunOptions o = small(false);
  const nn::Sequential model = taking(o);
  // the last block computes while all others keep their bytes
  EXPECT_EQ(plan_of(model, o).foreign_bytes, kWhile + (std::ssize(model.blocks) - 1) * kKept);
}

TEST(ForeignMemory, OfARecomputedBlockIsKeptForOneBlockAtATime) {
  const RunOptions o = small(true);
  EXPECT_EQ(plan_of(taking(o), o).foreign_bytes, kWhile);
}

TEST(ForeignMemory, IsNotCountedOutsideOfADryRun) { EXPECT_EQ(ForeignMemory::current(), nullptr); }

}  // namespace
}  // namespace spillway::test::foreign_memory_test
