// Tests the law of pipeline parallelism: losses, norms, weights and moments are bitwise the same whichever rank computes and holds which
// blocks, in whatever order of micro-batches. The ranks are threads. The reference has one pipeline rank and the same number of
// data-parallel ranks and micro-batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>

#include "base/error.h"
#include "models/presets.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/cells.h"

namespace spillway::test::pipeline_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::ScheduleKind;
using parallel::Tier;

RunOptions tiny(const std::string& preset, int data) {
  RunOptions o;
  o.model = models::preset(preset);
  o.model.layers = 4;
  o.sequence_length = 16;
  o.micro_batches = 3;
  o.steps = 3;
  o.gradient_clipping = 0.5;
  o.max_bucket_elems = 4 * parallel::kTileElems;
  o.ranks = data;
  return o;
}

// Returns the reference: the same number of data-parallel ranks, all blocks on each, nothing sharded or spilled.
const RunResult& one_stage(const RunOptions& o) {
  static std::map<std::tuple<models::Family, int, DType>, RunResult> all;
  const std::tuple key{o.model.family, o.ranks, o.dtype};
  if (const auto found = all.find(key); found != all.end()) return found->second;
  RunOptions one = tiny(o.model.family == models::Family::gpt2 ? "gpt2-tiny" : "llama-tiny", o.ranks);
  one.dtype = o.dtype;
  return all[key] = train(one);
}

struct Dealt {
  std::string name;
  parallel::Pipeline pipeline;
  Order order = Order::micro_batch;
};

const std::vector<Dealt>& dealt() {
  static const std::vector<Dealt> all = {
      {"gpipe2", {.ranks = 2, .kind = ScheduleKind::gpipe}},
      {"1f1b2", {.ranks = 2}},
      {"1f1b4", {.ranks = 4, .begins = {0, 1, 4, 5}}},
      {"interleaved2", {.ranks = 2, .kind = ScheduleKind::interleaved, .chunks = 2}},
      {"zb_h1_3", {.ranks = 3, .kind = ScheduleKind::zb_h1}},
      {"zb_v2", {.ranks = 2, .kind = ScheduleKind::zb_v, .chunks = 2}},
      {"vertical2", {.ranks = 2}, Order::vertical},
      {"1f1b3", {.ranks = 3}},
      {"interleaved2by3", {.ranks = 2, .kind = ScheduleKind::interleaved, .chunks = 3}},
      {"zb_v3", {.ranks = 3, .kind = ScheduleKind::zb_v, .chunks = 2}},
      {"vertical4", {.ranks = 4}, Order::vertical},
  };
  return all;
}

const std::vector<Way>& ways() {
  constexpr Tier device = Tier::device, host = Tier::host, nvme = Tier::nvme;
  static const std::vector<Way> all = {
      {"device", placed(device, device, device, OptimizerOverlap::none)},
      {"device_backward", placed(device, device, device, OptimizerOverlap::backward)},
      {"device_forward", placed(device, device, device, OptimizerOverlap::forward)},
      {"host_backward", placed(host, host, host, OptimizerOverlap::backward)},
      {"nvme", placed(nvme, nvme, nvme, OptimizerOverlap::none)},
      {"nvme_backward", placed(nvme, nvme, nvme, OptimizerOverlap::backward)},
      {"nvme_forward", placed(nvme, nvme, nvme, OptimizerOverlap::forward)},
      {"spilled_adaptive",
       [](RunOptions& o) { o.activations = nvme, o.recompute = true, o.adaptive = true, o.gradients = host, o.parameters = nvme; }},
      {"kept_on_host", [](RunOptions& o) { o.activations = host, o.threads = 2, o.optimizer = nvme, o.prefetch = 2; }},
  };
  return all;
}

// Runs all pairs of a split of the blocks and a placement (which tier holds which tensors). Model, precision, number of data-parallel ranks
// and ZeRO stage vary from pair to pair, so that each of these values is combined with each split and each placement.
class Pipelines : public testing::TestWithParam<std::tuple<size_t, size_t>> {};

RunOptions cell(size_t deal, size_t way) {
  RunOptions o = tiny((deal + way / 2) % 2 ? "llama-tiny" : "gpt2-tiny", (3 * deal + way) % 5 ? 2 : 1);
  o.zero_stage = static_cast<int>((deal + way + way / 2) % 4);
  o.dtype = (way + deal / 4) % 2 ? DType::bf16 : DType::f32;
  o.pipeline = dealt()[deal].pipeline;
  o.order = dealt()[deal].order;
  ways()[way].change(o);
  return o;
}

TEST_P(Pipelines, GiveTheBitsOfOneStage) {
  const RunOptions o = cell(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const RunResult got = train(o);
  expect_same_run(got, one_stage(o));
  EXPECT_GT(got.moved.sent, 0);
}

std::string name_of(const testing::TestParamInfo<Pipelines::ParamType>& info) {
  const auto& [deal, way] = info.param;
  const RunOptions o = cell(deal, way);
  return dealt()[deal].name + "_" + ways()[way].name + "_data" + std::to_string(o.ranks) + "_stage" + std::to_string(o.zero_stage) + "_" +
         std::string(to_string(o.dtype)) + (o.model.family == models::Family::gpt2 ? "_gpt2" : "_llama");
}
const auto kCells = cells_of(range(size_t{0}, size_t{8}), range(size_t{0}, ways().size()));
INSTANTIATE_TEST_SUITE_P(Schedules, Pipelines, testing::ValuesIn(kCells.diagonal), name_of);
INSTANTIATE_TEST_SUITE_P(SoakSchedules, Pipelines, testing::ValuesIn(kCells.rest), name_of);
const auto kLaterCells = cells_of(range(size_t{8}, dealt().size()), std::vector<size_t>{3, 6, 7});
INSTANTIATE_TEST_SUITE_P(LaterSchedules, Pipelines, testing::ValuesIn(kLaterCells.diagonal), name_of);
INSTANTIATE_TEST_SUITE_P(SoakLaterSchedules, Pipelines, testing::ValuesIn(kLaterCells.rest), name_of);

// Tests settings that change numbers. Each setting is compared with a separate reference run.
TEST(PipelineVariantsMore, FrozenSplitMasterRoundedGradientsAndMoments) {
  const auto frozen = [](auto names) {
    return [=](RunOptions& o) {
      o.freeze = [=](const nn::Parameter& p) {
        return std::ranges::any_of(names, [&](const char* n) { return p.name.find(n) != p.name.npos; });
      };
    };
  };
  for (const auto& change : std::vector<std::function<void(RunOptions&)>>{
           frozen(std::array{"attn"}), frozen(std::array{"wte"}), frozen(std::array{"wpe", "wte", "h.0", "h.1", "h.2"}),
           [](RunOptions& o) { o.dtype = DType::bf16, o.master = optim::Master::split; },
           [](RunOptions& o) { o.dtype = DType::bf16, o.round_gradients = true; }, [](RunOptions& o) { o.moments = optim::Moments::int8; },
           [](RunOptions& o) { o.dtype = DType::f64; }}) {
    RunOptions reference = tiny("gpt2-tiny", 1);
    reference.micro_batches = 2;
    reference.steps = 2;
    change(reference);
    const RunResult want = train(reference);
    for (const bool spilled : {false, true}) {
      RunOptions o = reference;
      o.pipeline = {.ranks = 3};
      if (spilled) o.parameters = o.gradients = o.optimizer = Tier::nvme, o.overlap = OptimizerOverlap::forward, o.order = Order::vertical;
      expect_same_run(train(o), want);
    }
    RunOptions in_parts = reference;
    in_parts.pipeline = {.ranks = 2, .kind = ScheduleKind::zb_h1};
    in_parts.parameters = Tier::host;
    in_parts.recompute = true;
    expect_same_run(train(in_parts), want);
  }
}

// Shows that a fault on one rank ends all ranks, and that the error names the rank with the fault.
TEST(PipelineFaults, OnOneRankReachAll) {
  RunOptions o = tiny("gpt2-tiny", 2);
  o.pipeline = {.ranks = 3};
  std::atomic<int> loads{0};
  o.batches = [&](i64 step, int) -> StepBatch {
    if (loads++ == 8) throw Error(ErrorCode::data, "planted");
    return random_batch(o, step);
  };
  try {
    train(o);
    FAIL() << "the fault was lost";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("planted"), std::string::npos) << e.what();
  }
}

// Shows that validation and generation run through all stages, and that every rank returns the result of a single stage.
TEST(PipelineForward, GivesTheBitsOfOneStage) {
  for (const size_t deal : {size_t{1}, size_t{3}, size_t{5}, size_t{6}}) {
    std::mutex mutex;
    std::vector<std::pair<double, std::vector<double>>> answers;
    const auto ask = [&](const RunOptions& o) {
      answers.clear();
      RunOptions asking = o;
      asking.at_end = [&](parallel::Rank& rank) {
        const MicroBatch batch = random_batch(o, 9).micro_batches[0];
        RunOptions row = o;
        row.micro_batch_size = 1;
        const double loss = rank.evaluate(batch);
        const std::vector<double> logits = rank.logits(random_batch(row, 11).micro_batches[0], 7);
        const std::lock_guard lock(mutex);
        answers.emplace_back(loss, logits);
      };
      train(asking);
      return answers;
    };
    RunOptions o = tiny("gpt2-tiny", 1);
    o.steps = 1;
    const auto want = ask(o);
    ASSERT_GT(want[0].second.size(), 100u);
    o.pipeline = dealt()[deal].pipeline;
    o.order = dealt()[deal].order;
    o.parameters = Tier::nvme;
    o.overlap = OptimizerOverlap::forward;
    const auto got = ask(o);
    EXPECT_EQ(got.size(), static_cast<size_t>(o.pipeline.ranks));
    for (const auto& answer : got) EXPECT_EQ(answer, want[0]) << dealt()[deal].name;
  }
}

// Maps group and tile to the bytes of weights and state that a snapshot delivers while training goes on.
using Tiles = std::map<std::pair<u16, i64>, std::string>;

Tiles snapshot_of(RunOptions o) {
  std::mutex mutex;
  Tiles tiles;
  const auto keep = [&](u16 group, parallel::TileRange range, std::span<const std::byte> weights, std::span<const std::byte> state) {
    const std::lock_guard lock(mutex);
    for (i64 t = range.begin; t < range.end; ++t) {
      std::string bytes;
      for (const auto& all : {weights, state}) {
        const auto each = all.size() / static_cast<size_t>(range.count());
        bytes.append(reinterpret_cast<const char*>(all.data()) + static_cast<size_t>(t - range.begin) * each, each);
      }
      EXPECT_TRUE(tiles.emplace(std::pair(group, t), std::move(bytes)).second) << "group " << group << " tile " << t << " came twice";
    }
  };
  o.between = [&](parallel::Rank& rank, i64 steps) {
    if (steps == 1) rank.begin_snapshot([&](const parallel::Snapshot::Tiles& all) { all(keep); });
  };
  o.at_end = [](parallel::Rank& rank) {
    rank.snapshot()->drain();
    rank.end_snapshot();
  };
  train(o);
  return tiles;
}

TEST(PipelineSnapshot, HandsOutEveryTileOnceOverAllRanks) {
  const Tiles want = snapshot_of(tiny("gpt2-tiny", 1));
  for (const size_t deal : {size_t{2}, size_t{3}, size_t{5}}) {
    RunOptions o = tiny("gpt2-tiny", 1);
    o.pipeline = dealt()[deal].pipeline;
    o.optimizer = Tier::nvme;
    o.overlap = OptimizerOverlap::backward;
    o.deferred_sixteenths = 8;
    EXPECT_TRUE(snapshot_of(o) == want) << dealt()[deal].name;
  }
  RunOptions o = tiny("gpt2-tiny", 2);
  o.zero_stage = 3;
  const Tiles of_two = snapshot_of(o);
  o.pipeline = {.ranks = 2};
  EXPECT_TRUE(snapshot_of(o) == of_two);
}

}  // namespace
}  // namespace spillway::test::pipeline_test
