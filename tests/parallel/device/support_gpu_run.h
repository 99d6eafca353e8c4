// Runs on a GPU small enough for the emulated one. Included by *cuda_test.cc alone.
#pragma once
#include <gtest/gtest.h>

#include "device/device_query.h"
#include "models/presets.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test {

/// Two layers of half the preset's width: a few tiles a group, several buckets a block.
inline RunOptions small_gpu_run(const std::string& preset) {
  RunOptions o;
  o.model = models::preset(preset);
  o.model.layers = 2;
  o.model.width /= 2, o.model.heads /= 2, o.model.kv_heads /= 2, o.model.mlp_width /= 2;
  o.sequence_length = 8;
  o.micro_batch_size = 1;
  o.micro_batches = 2;
  o.steps = 2;
  o.max_bucket_elems = 2 * parallel::kTileElems;
  o.on_gpu = true;
  return o;
}

/// Skips without a GPU.
class GpuRuns : public testing::Test {
 protected:
  void SetUp() override {
    const GpuReport report = query_gpus();
    if (report.gpus.empty()) GTEST_SKIP() << report.problem;
  }
};

}  // namespace spillway::test
