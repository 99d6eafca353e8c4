// Provides options of training runs on a GPU that are small enough for the emulated GPU. Only *cuda_test.cc files include this header.
#pragma once
#include <gtest/gtest.h>

#include "device/device_query.h"
#include "models/presets.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test {

/// Returns a run with two layers of half the preset's width, so that a group has a few tiles and a block has several buckets.
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

/// GpuRuns is a fixture that skips its tests if there is no GPU.
class GpuRuns : public testing::Test {
 protected:
  void SetUp() override {
    const GpuReport report = query_gpus();
    if (report.gpus.empty()) GTEST_SKIP() << report.problem;
  }
};

}  // namespace spillway::test
