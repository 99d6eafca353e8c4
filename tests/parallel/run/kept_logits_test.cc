// Tests that a head that keeps its logits gives bitwise the results of a head that recomputes them, in every order of micro-batches and
// with activations in any tier. Logits that would be spilled are not kept.
#include "models/presets.h"
#include "tests/parallel/run/support_kept_logits.h"

namespace spillway::test::kept_logits_test {
namespace {

using parallel::Order;
using parallel::ScheduleKind;
using parallel::Tier;

RunOptions tiny(Order order = Order::micro_batch, i64 micro_batches = 2) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  o.model.layers = 1;
  o.model.vocabulary = 2000;
  o.steps = 1;
  o.sequence_length = 32;
  o.order = order;
  o.micro_batches = micro_batches;
  return o;
}

TEST(KeptLogits, OfOneMicroBatchAfterTheOther) { expect_kept_logits_change_no_bit(tiny(), 1); }

TEST(KeptLogits, OfHalves) {
  RunOptions o = tiny();
  o.dtype = DType::bf16;
  expect_kept_logits_change_no_bit(o, 1);
}

TEST(KeptLogits, OfAllMicroBatchesInVerticalOrder) { expect_kept_logits_change_no_bit(tiny(Order::vertical, 3), 3); }

TEST(KeptLogits, OfABlockThatRunsAgain) {
  RunOptions o = tiny(Order::vertical, 3);
  o.recompute = true;
  expect_kept_logits_change_no_bit(o, 1);
}

// Shows that logits are not kept if they would be spilled, as in vertical order with
// activations in host memory. Recomputing them is faster than moving them out and back.
TEST(KeptLogits, AreNotThoseThatWouldSpill) {
  RunOptions o = tiny(Order::vertical, 3);
  o.activations = Tier::host;
  expect_kept_logits_change_no_bit(o, 0);
  o.order = Order::micro_batch;  // in this order the activations of the output head stay on the device
  expect_kept_logits_change_no_bit(o, 1);
}

// Shows that logits are kept until the weight part of a backward that is split into an input part
// and a weight part (zero-bubble), because the weight part uses their gradient.
TEST(KeptLogits, OfABackwardInTwoParts) {
  RunOptions o = tiny(Order::micro_batch, 4);
  o.pipeline.ranks = 2;
  o.pipeline.kind = ScheduleKind::zb_h1;
  expect_kept_logits_change_no_bit(o, 1);
}

}  // namespace
}  // namespace spillway::test::kept_logits_test
