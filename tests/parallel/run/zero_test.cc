// Tests the law of ZeRO: losses, norms, weights and moments are bitwise the same whatever part of the weights, gradients and optimizer
// state each data-parallel rank holds, and in whichever tier that data resides. The ranks are threads. R ranks with one micro-batch each
// are compared with one rank that has R micro-batches. Both runs add the same numbers in the same order, but take different code paths.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "parallel/proof/check.h"
#include "tests/parallel/program/support_program.h"
#include "tests/parallel/run/support_run.h"
#include "tests/support/cells.h"

namespace spillway::test::zero_test {
namespace {

using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::Tier;

RunOptions tiny(const std::string& preset, int ranks, int stage) {
  RunOptions o;
  o.model = models::preset(preset);
  o.model.layers = 2;
  o.sequence_length = 16;
  o.steps = 3;
  o.max_bucket_elems = 4 * parallel::kTileElems;  // buckets are this small so that a group has several, which shards may cut anywhere
  o.ranks = ranks;
  o.zero_stage = stage;
  return o;
}

// Returns the result of a single rank that computes all micro-batches of several ranks. Results are cached, since several tests ask for
// them.
const RunResult& alone(RunOptions o) {
  static std::map<std::pair<std::string, i64>, RunResult> all;
  const std::pair key{o.model.family == models::Family::gpt2 ? "gpt2" : "llama", o.ranks * o.micro_batches * 10 + (o.dtype == DType::bf16)};
  if (const auto found = all.find(key); found != all.end()) return found->second;
  RunOptions one = tiny(key.first + std::string("-tiny"), 1, 0);
  one.dtype = o.dtype;
  one.micro_batches = o.ranks * o.micro_batches;
  return all[key] = train(one);
}

const std::vector<Way>& ways() {
  constexpr Tier device = Tier::device, host = Tier::host, nvme = Tier::nvme;
  static const std::vector<Way> all = {
      {"device", placed(device, device, device, OptimizerOverlap::none)},
      {"device_backward", placed(device, device, device, OptimizerOverlap::backward)},
      {"device_forward", placed(device, device, device, OptimizerOverlap::forward)},
      {"host", placed(host, host, host, OptimizerOverlap::none)},
      {"host_backward", placed(host, host, host, OptimizerOverlap::backward)},
      {"host_forward", placed(host, host, host, OptimizerOverlap::forward)},
      {"nvme", placed(nvme, nvme, nvme, OptimizerOverlap::none)},
      {"nvme_backward", placed(nvme, nvme, nvme, OptimizerOverlap::backward)},
      {"nvme_forward", placed(nvme, nvme, nvme, OptimizerOverlap::forward)},
      {"state_on_nvme", placed(device, device, nvme, OptimizerOverlap::backward)},
      {"weights_on_nvme", placed(nvme, host, device, OptimizerOverlap::forward)},
      {"gradients_on_nvme", placed(device, nvme, host, OptimizerOverlap::none)},
  };
  return all;
}

class Zero : public testing::TestWithParam<std::tuple<const char*, int, int, size_t>> {};

TEST_P(Zero, GivesTheBitsOfOneRank) {
  const auto& [preset, ranks, stage, way] = GetParam();
  RunOptions o = tiny(preset, ranks, stage);
  ways()[way].change(o);
  const RunResult got = train(o);
  expect_same_run(got, alone(o));
  EXPECT_GT(got.moved.exchanged, 0);
}

std::string zero_name(const testing::TestParamInfo<Zero::ParamType>& info) {
  const auto& [preset, ranks, stage, way] = info.param;
  return std::string(preset).substr(0, 4) + "_ranks" + std::to_string(ranks) + "_stage" + std::to_string(stage) + "_" + ways()[way].name;
}
const auto kOfTwo = cells_of(std::vector{"gpt2-tiny"}, std::vector{2}, range(0, 4), range(size_t{0}, size_t{12}));
INSTANTIATE_TEST_SUITE_P(TwoRanks, Zero, testing::ValuesIn(kOfTwo.diagonal), zero_name);
INSTANTIATE_TEST_SUITE_P(TwoRanksMore, Zero, testing::ValuesIn(kOfTwo.rest), zero_name);
const auto kOfThree = cells_of(std::vector{"llama-tiny"}, std::vector{3}, range(0, 4), std::vector<size_t>{1, 5, 6});
INSTANTIATE_TEST_SUITE_P(ThreeRanks, Zero, testing::ValuesIn(kOfThree.diagonal), zero_name);
INSTANTIATE_TEST_SUITE_P(ThreeRanksMore, Zero, testing::ValuesIn(kOfThree.rest), zero_name);

// Lists ways to run K micro-batches on each of R ranks. The reference is stage 0 on
// the device, which sums over micro-batches before it sums over ranks.
const std::vector<Way>& deeper() {
  constexpr Tier device = Tier::device, host = Tier::host, nvme = Tier::nvme;
  static const std::vector<Way> all = {
      {"device", [](RunOptions&) {}},
      {"vertical", [](RunOptions& o) { o.order = Order::vertical, o.overlap = OptimizerOverlap::backward, o.deferred_sixteenths = 8; }},
      {"nvme", [](RunOptions& o) { o.parameters = o.gradients = o.optimizer = nvme, o.prefetch = 2; }},
      {"nvme_vertical",
       [](RunOptions& o) {
         o.parameters = o.gradients = o.optimizer = nvme, o.order = Order::vertical, o.overlap = OptimizerOverlap::forward;
       }},
      {"host_adaptive",
       [](RunOptions& o) { o.parameters = o.gradients = o.optimizer = host, o.adaptive = true, o.deferred_sixteenths = 8, o.threads = 2; }},
      {"spilled", [](RunOptions& o) { o.activations = nvme, o.recompute = true, o.gradients = host, o.optimizer = device; }},
      {"stripes", [](RunOptions& o) { o.optimizer = nvme, o.stripes = 2, o.engine = offload::IoEngineKind::pread; }},
      {"device_forward_two_threads", [](RunOptions& o) { o.overlap = OptimizerOverlap::forward, o.threads = 2, o.parameters = device; }},
  };
  return all;
}

RunOptions several(int stage, DType dtype) {
  RunOptions o = tiny("gpt2-tiny", 2, stage);
  o.micro_batches = 3;
  o.dtype = dtype;
  o.gradient_clipping = 0.5;
  return o;
}

class ZeroSteps : public testing::TestWithParam<std::tuple<int, DType, size_t>> {};

TEST_P(ZeroSteps, OfSeveralMicroBatchesGiveTheBitsOfStage0) {
  static std::map<DType, RunResult> reference;
  const auto& [stage, dtype, way] = GetParam();
  if (!reference.count(dtype)) reference[dtype] = train(several(0, dtype));
  RunOptions o = several(stage, dtype);
  deeper()[way].change(o);
  expect_same_run(train(o), reference[dtype]);
}

std::string steps_name(const testing::TestParamInfo<ZeroSteps::ParamType>& info) {
  const auto& [stage, dtype, way] = info.param;
  return "stage" + std::to_string(stage) + "_" + std::string(to_string(dtype)) + "_" + deeper()[way].name;
}
const auto kSteps = cells_of(range(0, 4), std::vector{DType::f32}, range(size_t{0}, size_t{8}));
INSTANTIATE_TEST_SUITE_P(F32, ZeroSteps, testing::ValuesIn(kSteps.diagonal), steps_name);
INSTANTIATE_TEST_SUITE_P(F32More, ZeroSteps, testing::ValuesIn(kSteps.rest), steps_name);
INSTANTIATE_TEST_SUITE_P(Bf16Release, ZeroSteps,
                         testing::Combine(testing::Range(0, 4), testing::Values(DType::bf16), testing::Range(size_t{0}, size_t{8})),
                         steps_name);

// Tests settings that change numbers. Each setting is compared with a separate reference run.
TEST(ZeroVariants, FrozenSplitMasterRoundedGradientsAndMoments) {
  for (const auto& change : std::vector<std::function<void(RunOptions&)>>{
           [](RunOptions& o) { o.freeze = [](const nn::Parameter& p) { return p.name.find("attn") != std::string::npos; }; },
           [](RunOptions& o) { o.dtype = DType::bf16, o.master = optim::Master::split; },
           [](RunOptions& o) { o.dtype = DType::bf16, o.round_gradients = true; }, [](RunOptions& o) { o.moments = optim::Moments::int8; },
           [](RunOptions& o) { o.dtype = DType::f64; }}) {
    RunOptions reference = tiny("gpt2-tiny", 2, 0);
    change(reference);
    const RunResult want = train(reference);
    for (const int stage : {1, 2, 3}) {
      RunOptions o = reference;
      o.zero_stage = stage;
      for (const bool spilled : {false, true}) {
        SCOPED_TRACE("stage " + std::to_string(stage) + (spilled ? ", spilled" : ""));
        if (spilled) o.parameters = Tier::nvme, o.gradients = Tier::nvme, o.optimizer = Tier::host, o.overlap = OptimizerOverlap::backward;
        expect_same_run(train(o), want);
      }
    }
  }
}

// Shows that each of N ranks holds 1/N, to within a tile per group, of what its ZeRO stage shards: from stage 1 on optimizer state, from
// stage 2 on also gradients, at stage 3 also weights.
TEST(ZeroMemory, FollowsTheFormulas) {
  const nn::Sequential model = models::build(models::preset("llama-tiny"), DType::f32);
  const auto bytes = [&](int stage, int rank, int ranks, const std::string& what) {
    const RunOptions o = tiny("llama-tiny", ranks, stage);
    const parallel::Plan plan = make_plan(plan_request(model, o, rank));
    for (const parallel::PlanRow& row : plan.rows) {
      if (row.what.starts_with(what)) return row.bytes[0];
    }
    return i64{0};
  };
  const auto groups = std::ssize(parallel::make_layout(model).groups);
  for (const int ranks : {2, 3, 4}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const auto& [what, from] : {std::pair("weights", 3), std::pair("gradients", 2), std::pair("optimizer", 1)}) {
        const i64 all = bytes(0, 0, 1, what), tile = parallel::kTileElems * (from == 1 ? 8 : 4);
        i64 sum = 0;
        for (int r = 0; r < ranks; ++r) {
          const i64 held = bytes(stage, r, ranks, what);
          sum += held;
          const double formula = static_cast<double>(all) / (stage < from ? 1 : ranks);
          EXPECT_NEAR(static_cast<double>(held), formula, stage < from ? 0 : static_cast<double>(groups * tile)) << what;
        }
        EXPECT_EQ(sum, stage < from ? ranks * all : all) << what;
      }
    }
  }
}

// Shows that a fault on one rank also ends the others, and that the error names the rank with the fault.
TEST(ZeroFaults, OnOneRankReachAll) {
  RunOptions o = tiny("gpt2-tiny", 3, 3);
  std::atomic<int> loads{0};
  o.batches = [&](i64 step, int) -> StepBatch {
    if (loads++ == 4) throw Error(ErrorCode::data, "planted");
    return random_batch(o, step);
  };
  try {
    train(o);
    FAIL() << "the fault was lost";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("planted"), std::string::npos) << e.what();
  }
}

// Plants errors in the instruction lists of several ranks. The checker must find each error.
class ZeroProgram : public testing::TestWithParam<std::tuple<int, OptimizerOverlap>> {
 protected:
  parallel::Plan plan(int rank = 0) const {
    RunOptions o = tiny("gpt2-tiny", 2, std::get<0>(GetParam()));
    o.overlap = std::get<1>(GetParam());
    o.deferred_sixteenths = 8;
    return make_plan(plan_request(model_, o, rank));
  }
  void expect_refused(const parallel::Plan& plan, const parallel::Program& program, const std::string& what) const {
    EXPECT_THROW(parallel::check(program, plan.layout, plan.placement, plan.scheduling), Error) << what;
  }
  const nn::Sequential model_ = models::build(tiny("gpt2-tiny", 1, 0).model, DType::f32);
};

TEST_P(ZeroProgram, MissesEveryMeetingThatIsLeftOut) {
  const parallel::Plan whole_plan = plan();
  int deleted = 0;
  for (const auto& [name, list] : parallel::kLists) {
    const parallel::List& all = whole_plan.train.*list;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].op != parallel::Op::Gather && all[i].op != parallel::Op::Exchange) continue;
      parallel::Program broken = whole_plan.train;
      broken.*list = without(all, i);
      expect_refused(whole_plan, broken, "without instruction " + std::to_string(i));
      ++deleted;
    }
  }
  EXPECT_GE(deleted, 5);
}

TEST_P(ZeroProgram, MissesEveryWaitForAMeeting) {
  const parallel::Plan whole_plan = plan();
  int cut = 0;
  const parallel::List& head = whole_plan.train.head;
  for (size_t i = 0; i < head.size(); ++i) {
    for (const u32 a : head[i].after) {
      if (head[a].op != parallel::Op::Gather && head[a].op != parallel::Op::Exchange) continue;
      parallel::Program broken = whole_plan.train;
      std::erase(broken.head[i].after, a);
      bool refused = false;
      try {
        parallel::check(broken, whole_plan.layout, whole_plan.placement, whole_plan.scheduling);
      } catch (const Error&) {
        refused = true;
      }
      cut += refused;
    }
  }
  EXPECT_GE(cut, 4);  // at least four waits cannot be removed; for each of the others a further wait ensures the same order
}

TEST_P(ZeroProgram, AllRanksMeet) {
  const parallel::Plan a = plan(0), b = plan(1);
  const std::array programs{&a.train, &b.train};
  parallel::check_meetings(programs);
  parallel::Program other = b.train;
  for (size_t i = 0; i < other.head.size(); ++i) {
    if (other.head[i].op == parallel::Op::Exchange) {
      other.head = without(other.head, i);
      break;
    }
  }
  const std::array broken{&a.train, static_cast<const parallel::Program*>(&other)};
  EXPECT_THROW(parallel::check_meetings(broken), Error);
}

std::string program_name(const testing::TestParamInfo<ZeroProgram::ParamType>& info) {
  constexpr const char* overlaps[] = {"none", "backward", "forward"};
  return "stage" + std::to_string(std::get<0>(info.param)) + "_" + overlaps[static_cast<size_t>(std::get<1>(info.param))];
}
INSTANTIATE_TEST_SUITE_P(Stages, ZeroProgram,
                         testing::Combine(testing::Range(0, 4),
                                          testing::Values(OptimizerOverlap::none, OptimizerOverlap::backward, OptimizerOverlap::forward)),
                         program_name);

}  // namespace
}  // namespace spillway::test::zero_test
