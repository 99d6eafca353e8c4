// Tests on a GPU that a head that keeps its logits gives bitwise the results of a head that recomputes them, within the memory that the
// plan says.
#include "tests/parallel/device/support_gpu_run.h"
#include "tests/parallel/run/support_kept_logits.h"

namespace spillway::test::kept_logits_cuda_test {
namespace {

class GpuKeptLogits : public GpuRuns {
 protected:
  static RunOptions small(DType dtype, parallel::Order order) {
    RunOptions o = small_gpu_run("gpt2-tiny");
    o.dtype = dtype;
    o.order = order;
    o.model.layers = 1;
    o.model.vocabulary = 12000;  // a vocabulary that takes three pieces of at most 4096 columns, and is not a multiple of 64
    o.steps = 1;
    return o;
  }
};

TEST_F(GpuKeptLogits, OfOneMicroBatchAfterTheOther) {
  expect_kept_logits_change_no_bit(small(DType::bf16, parallel::Order::micro_batch), 1);
}

TEST_F(GpuKeptLogits, OfAllMicroBatchesInVerticalOrder) {
  expect_kept_logits_change_no_bit(small(DType::f32, parallel::Order::vertical), 2);
}

}  // namespace
}  // namespace spillway::test::kept_logits_cuda_test
