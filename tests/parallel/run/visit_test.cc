// Tests that Rank::visit shows every weight where it is stored, each exactly once, whichever ranks hold the weight and in whatever tier.
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/presets.h"
#include "tests/parallel/run/support_visit.h"

namespace spillway::test::visit_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Tier;

RunOptions small(const char* preset) {
  RunOptions o;
  o.model = models::preset(preset);
  o.model.layers = 2;
  o.sequence_length = 16;
  o.steps = 2;
  o.threads = 2;
  o.max_bucket_elems = 4 * parallel::kTileElems;  // buckets are this small so that a group has several, which shards may cut anywhere
  return o;
}

const std::vector<Way>& ways() {
  constexpr Tier device = Tier::device, host = Tier::host, nvme = Tier::nvme;
  static const std::vector<Way> all = {
      {"device", placed(device, device, device, OptimizerOverlap::none)},
      {"device_forward", placed(device, device, device, OptimizerOverlap::forward)},
      {"host_backward", placed(host, host, host, OptimizerOverlap::backward)},
      {"nvme", placed(nvme, nvme, nvme, OptimizerOverlap::none)},
      {"nvme_forward", placed(nvme, nvme, nvme, OptimizerOverlap::forward)},
      {"weights_on_nvme", placed(nvme, host, device, OptimizerOverlap::backward)},
      {"bf16", [](RunOptions& o) { o.dtype = DType::bf16; }},
      {"bf16_split_on_nvme",
       [](RunOptions& o) {
         placed(nvme, nvme, nvme, OptimizerOverlap::backward)(o);
         o.dtype = DType::bf16, o.master = optim::Master::split;
       }},
      {"f64", [](RunOptions& o) { o.dtype = DType::f64; }},
      {"some_frozen", [](RunOptions& o) { o.freeze = [](const nn::Parameter& p) { return p.name.ends_with("bias"); }; }},
  };
  return all;
}

struct Ranks {
  int data, stage, pipeline;
};

// Checks every `every`-th pair of a number of ranks and a placement (which tier holds which tensors).
void every_weight_is_shown_once(size_t every) {
  size_t pair = 0;
  for (const Ranks& ranks : {Ranks{1, 0, 1}, {2, 0, 1}, {3, 1, 1}, {2, 3, 1}, {1, 0, 2}, {2, 3, 2}}) {
    for (const Way& way : ways()) {
      if (pair++ % every != 0) continue;
      SCOPED_TRACE(way.name + " on " + std::to_string(ranks.data) + " ranks of stage " + std::to_string(ranks.stage) + " times " +
                   std::to_string(ranks.pipeline));
      RunOptions o = small(ranks.data == 2 ? "llama-tiny" : "gpt2-tiny");
      o.ranks = ranks.data;
      o.zero_stage = ranks.stage;
      o.pipeline.ranks = ranks.pipeline;
      o.micro_batches = ranks.pipeline;
      way.change(o);
      expect_all_shown(o);
    }
  }
}

TEST(Visit, ShowsEveryWeightOnce) { every_weight_is_shown_once(17); }
TEST(SoakVisit, ShowsEveryWeightOnce) { every_weight_is_shown_once(1); }

TEST(Visit, SaysWhenWhatItWouldShowIsNotThere) {
  RunOptions o = small("gpt2-tiny");
  o.steps = 1;
  o.overlap = OptimizerOverlap::forward;
  o.between = [](parallel::Rank& rank, i64) {
    EXPECT_THROW(rank.visit(0, [](std::span<const float>, int) {}), Error) << "an update is deferred";
  };
  train(o);
}

}  // namespace
}  // namespace spillway::test::visit_test
