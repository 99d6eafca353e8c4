// Tests --detect-anomaly on a GPU: the report names the op, the layer and what was read. Without a fault no number changes.
#include "models/model.h"
#include "tests/parallel/device/support_gpu_run.h"
#include "tests/parallel/run/support_planted.h"

namespace spillway::test::anomaly_cuda_test {
namespace {

class GpuAnomaly : public GpuRuns {};

TEST_F(GpuAnomaly, APlantedOpIsNamed) {
  for (const bool backward : {false, true}) {
    RunOptions o = small_gpu_run("llama-tiny");
    o.detect_anomaly = true;
    o.build = [backward](const models::ModelConfig& config, DType dtype) {
      nn::Sequential model = models::build(config, dtype);
      model.blocks[1] = planted_behind(std::move(model.blocks[1]), backward);
      return model;
    };
    std::string report = "nothing was thrown";
    try {
      train(o);
    } catch (const Error& error) {
      report = error.what();
    }
    EXPECT_NE(report.find("[anomaly] here, block 2 of 4 (model.layers.0"), std::string::npos) << report;
    EXPECT_NE(report.find(backward ? ": the backward of planted after " : ": the forward of planted after "), std::string::npos) << report;
    EXPECT_NE(report.find("1 NaN and 0 infinite of 512 elements, the first at [0, 0, 0]"), std::string::npos) << report;
  }
}

TEST_F(GpuAnomaly, NoNumberIsAnother) {
  RunOptions o = small_gpu_run("llama-tiny");
  o.recompute = true;
  const RunResult want = train(o);
  o.detect_anomaly = true;
  expect_same_run(train(o), want);
}

}  // namespace
}  // namespace spillway::test::anomaly_cuda_test
