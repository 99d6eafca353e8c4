// Tests --detect-anomaly. An op that produces a NaN in the forward or backward is inserted behind each block, from embedding to loss. The
// report must name block, op and layer under any pipeline stages, recomputation and order of micro-batches. Without a fault no number
// changes.
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "tests/parallel/run/support_planted.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test::anomaly_test {
namespace {

struct Fault {
  size_t block = 0;
  bool backward = false;
};

RunOptions options(std::optional<Fault> fault = {}) {
  RunOptions o;
  o.model = models::preset("llama-tiny");
  o.model.layers = 2;
  o.sequence_length = 16;
  o.micro_batches = 2;
  o.steps = 2;
  o.detect_anomaly = true;
  if (fault) {
    o.build = [fault](const models::ModelConfig& config, DType dtype) {
      nn::Sequential model = models::build(config, dtype);
      auto& block = model.blocks.at(fault->block);
      block = planted_behind(std::move(block), fault->backward);
      return model;
    };
  }
  return o;
}

// Returns the error message of the run.
std::string report_of(const RunOptions& o) {
  try {
    train(o);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void expect_named(const RunOptions& o, const Fault& fault, const std::string& name) {
  const std::string report = report_of(o), block = "block " + std::to_string(fault.block + 1) + " of 4 (" + name;
  EXPECT_NE(report.find("[anomaly] here, " + block), std::string::npos) << report;
  EXPECT_NE(report.find(fault.backward ? ": the backward of planted after " : ": the forward of planted after "), std::string::npos)
      << report;
  EXPECT_NE(report.find("1 NaN and 0 infinite of 4096 elements, the first at [0, 0, 0]"), std::string::npos) << report;
}

TEST(AnomalyOfARank, APlantedOpIsNamedBehindEachBlock) {
  const char* const names[] = {"model.embed_tokens", "model.layers.0", "model.layers.1"};
  for (size_t block = 0; block < 3; ++block) {
    for (const bool backward : {false, true}) {
      const Fault fault{block, backward};
      RunOptions o = options(fault);
      for (const bool recompute : {false, true}) {
        o.recompute = recompute;
        expect_named(o, fault, names[block]);
      }
      o.pipeline = {.ranks = 2, .kind = parallel::ScheduleKind::zb_h1};
      expect_named(o, fault, names[block]);
      o.pipeline = {};
      o.ranks = 2;
      o.zero_stage = 3;
      o.parameters = o.gradients = o.optimizer = parallel::Tier::host;
      expect_named(o, fault, names[block]);
    }
  }
}

// Sets a weight to the largest finite number. The first op that multiplies by this weight overflows and must be named in the report.
TEST(AnomalyOfARank, TheOpsOfAModelAreNamedByTheirLayers) {
  const std::pair<const char*, const char*> cases[] = {
      {"layers.0.self_attn.q_proj.weight", "the forward of linear in model.layers.0.self_attn.q_proj is"},
      {"layers.1.mlp.down_proj.weight", "the forward of linear in model.layers.1.mlp.down_proj is"},
      {"layers.1.mlp.gate_proj.weight", "the forward of linear in model.layers.1.mlp.gate_proj is"},
      {"lm_head.weight", "the forward of linear_cross_entropy in lm_head is"}};
  for (const auto& [weight, named] : cases) {
    RunOptions o = options();
    o.weights = [&, end = std::string(weight)](const nn::Parameter& p, i64 begin, std::span<double> out) {
      nn::initial_values(p, 1, begin, out);
      if (p.name.ends_with(end)) std::ranges::fill(out, 3e38);
    };
    const std::string report = report_of(o);
    EXPECT_NE(report.find(named), std::string::npos) << weight << "\n" << report;
  }
}

TEST(AnomalyOfARank, NoNumberIsAnother) {
  for (const bool recompute : {false, true}) {
    RunOptions o = options();
    o.recompute = recompute;
    const RunResult watched = train(o);
    o.detect_anomaly = false;
    expect_same_run(watched, train(o));
  }
}

// Shows that an overflow under the first loss scales of fp16 is no anomaly: the step is skipped, as it is without --detect-anomaly.
TEST(AnomalyOfARank, AnOverflowOfTheLossScaleIsNone) {
  RunOptions o = options();
  o.dtype = DType::f16;
  o.steps = 8;
  o.loss_scale = {0x1p24, 0};
  const RunResult got = train(o);
  EXPECT_TRUE(got.steps.front().skipped);
  EXPECT_FALSE(got.steps.back().skipped);
  o.detect_anomaly = false;
  expect_same_numbers(got, train(o));
}

}  // namespace
}  // namespace spillway::test::anomaly_test
