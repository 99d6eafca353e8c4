// Tests that a key/value cache in host memory, copied to the GPU block by block, gives the same logits as a cache on the GPU.
#include "tests/parallel/device/support_gpu_run.h"
#include "tests/parallel/run/support_cache_place.h"

namespace spillway::test::cache_place_cuda_test {
namespace {

using GpuCachePlace = GpuRuns;

TEST_F(GpuCachePlace, ChangesNoBit) {
  models::ModelConfig config = small_gpu_run("llama-tiny").model;
  config.layers = 4;
  for (const DType dtype : {DType::f32, DType::bf16}) expect_the_place_of_the_cache_changes_no_bit(config, dtype, true);
}

}  // namespace
}  // namespace spillway::test::cache_place_cuda_test
