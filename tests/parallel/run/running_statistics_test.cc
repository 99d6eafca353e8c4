// Tests batch norm's running statistics in a rank: their values after a step, that norm, clipping and averages exclude them, and that they
// are bitwise the same in any tier and under any recomputation, sharding and update rule.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/dispatch.h"
#include "models/resnet.h"
#include "nn/eager.h"
#include "tests/parallel/run/support_run.h"

namespace spillway::test::running_statistics_test {
namespace {

using namespace optim;
using parallel::Tier;

const Shape kImage{3, 8, 8};
constexpr i64 kClasses = 5;

nn::Sequential tiny(const models::ModelConfig&, DType dtype) {
  return models::build_resnet({.widths = {4, 6}, .blocks = {1, 1}}, kImage, kClasses, dtype);
}

// Returns a batch whose micro-batches differ in mean and variance.
StepBatch images(const RunOptions& o, i64 step, int rank) {
  StepBatch batch;
  batch.cursor = step * o.micro_batches * o.ranks * o.micro_batch_size;
  for (i64 k = 0; k < o.micro_batches; ++k) {
    MicroBatch m;
    m.first_sample = batch.cursor + (k * o.ranks + rank) * o.micro_batch_size;
    m.images_NCHW = empty({o.micro_batch_size, kImage[0], kImage[1], kImage[2]}, o.dtype);
    m.targets_BT = empty({o.micro_batch_size}, DType::int32);
    const RandomKey key = RandomKey{7}.derive("images", static_cast<u64>(m.first_sample));
    const double mean = static_cast<double>(m.first_sample % 7) / 4;
    kernels::for_dtype("images", o.dtype, [&]<class T>(T) {
      for (i64 i = 0; i < m.images_NCHW.elems(); ++i)
        m.images_NCHW.data<T>()[i] = narrow<T>(static_cast<Wide<T>>(mean + (1 + mean) * normal(key, 0, static_cast<u64>(i))));
    });
    for (i64 n = 0; n < o.micro_batch_size; ++n) m.targets_BT.data<i32>()[n] = static_cast<i32>((m.first_sample + n) % kClasses);
    m.counted_targets = o.micro_batch_size;
    batch.counted_targets += m.counted_targets;
    batch.micro_batches.push_back(std::move(m));
  }
  return batch;
}

struct Kind {
  const char* name;
  RuleSettings settings;
  DType dtype = DType::f32;
  Master master = Master::fp32;
  Moments moments = Moments::fp32;
};
const Kind kKinds[] = {
    {"sgd_f32", SgdSettings{.weight_decay = 0.1}},
    {"adamw_f32", AdamSettings{.weight_decay = 0.1, .decoupled_weight_decay = true}},
    {"adamw_bf16_int8", AdamSettings{.weight_decay = 0.1, .decoupled_weight_decay = true}, DType::bf16, Master::fp32, Moments::int8},
    {"lion_bf16_split", LionSettings{.weight_decay = 0.1}, DType::bf16, Master::split, Moments::bf16},
    // the 1 x 1 kernels of this model give one of Adafactor's factors per row and one per column
    {"adafactor_f32", AdafactorSettings{.weight_decay = 0.1}},
};

RunOptions options(const Kind& kind) {
  RunOptions o;
  o.build = tiny;
  o.update = kind.settings;
  o.dtype = kind.dtype, o.master = kind.master, o.moments = kind.moments;
  o.sequence_length = 1, o.micro_batch_size = 4, o.micro_batches = 2;
  o.learning_rate = 0.01, o.gradient_clipping = 0.5;
  return o;
}
RunResult run(RunOptions o) {
  o.batches = [o](i64 step, int rank) { return images(o, step, rank); };
  return train(o);
}

// Holds results of eager execution: one forward and backward of each micro-batch of a step.
struct Eager {
  std::vector<std::vector<double>> statistics;  // statistics of each parameter, averaged over the micro-batches
  double norm = 0;                              // gradient norm without the running statistics

  Eager(const RunOptions& o, i64 step) {
    const nn::Sequential model = tiny({}, o.dtype);
    nn::EagerParameters weights(model);
    for (const auto& p : model.parameters) {
      std::vector<double> values(static_cast<size_t>(p->elems()));
      nn::initial_values(*p, 1, 0, values);
      for (i64 i = 0; i < p->elems(); ++i) p->value().data<double>()[i] = values[static_cast<size_t>(i)];
    }
    const StepBatch batch = images(o, step, 0);
    for (const MicroBatch& m : batch.micro_batches) {
      autograd::Tape tape(&weights);
      nn::Context context;
      context.batch = &m;
      context.tape = &tape;
      context.loss_factor = 1 / static_cast<double>(batch.counted_targets);
      nn::run(model, context).backward();
    }
    double squares = 0;
    for (const auto& p : model.parameters) {
      statistics.emplace_back();
      const Tensor gradient = weights.gradient(p->id);
      for (const double g : gradient.span<double>()) {
        if (p->statistic)
          statistics.back().push_back(g / static_cast<double>(o.micro_batches));
        else
          squares += g * g;
      }
    }
    norm = std::sqrt(squares);
  }
};

TEST(RunningStatistics, MoveOnceAStepToTheMeanOfTheMicroBatches) {
  RunOptions o = options({"", SgdSettings{}, DType::f64});
  o.steps = 1;
  const RunResult got = run(o);
  const Eager want(o, 0);
  EXPECT_NEAR(got.norms[0], want.norm, 1e-12 * want.norm) << "they are no part of the gradient's norm";
  EXPECT_TRUE(got.steps[0].clipped) << "and clipping does not scale them";
  const nn::Sequential model = tiny({}, o.dtype);
  int compared = 0;
  for (const auto& p : model.parameters) {
    if (!p->statistic) continue;
    const double start = p->name.ends_with("running_var") ? 1 : 0;
    for (size_t c = 0; c < want.statistics[p->id].size(); ++c, ++compared)
      EXPECT_NEAR(got.weights[p->id][c], start + 0.1 * (want.statistics[p->id][c] - start), 1e-14) << p->name;
  }
  EXPECT_EQ(compared, 2 * (3 * 4 + 3 * 6));
}

// Shows that the "gradients" of running statistics, which are means and variances, are not rounded to
// bf16, wherever gradients reside. Rounding would change a variance by up to 2^-9 of itself.
TEST(RunningStatistics, AreNotRoundedWithTheGradients) {
  RunOptions o = options({"", SgdSettings{}});
  o.steps = 1;
  const RunResult want = run(o);
  const nn::Sequential model = tiny({}, o.dtype);
  o.round_gradients = true;
  for (const Tier gradients : {Tier::device, Tier::host, Tier::nvme}) {
    for (const int ranks : {1, 2}) {
      RunOptions rounded = o;
      rounded.gradients = gradients;
      rounded.ranks = ranks, rounded.micro_batches = 2 / ranks, rounded.zero_stage = ranks == 2 ? 2 : 0;
      const RunResult got = run(rounded);
      EXPECT_NE(got.weights, want.weights) << "the gradients are";
      for (const auto& p : model.parameters) {
        if (!p->statistic) continue;
        EXPECT_EQ(got.weights[p->id], want.weights[p->id]) << p->name << " " << static_cast<int>(gradients);
      }
    }
  }
}

// Shows that no average of the running statistics is kept, because the update rule does not change them.
TEST(RunningStatistics, HaveNoAverage) {
  RunOptions o = options(kKinds[1]);
  o.average_decay = 0.9;
  const RunResult got = run(o);
  const nn::Sequential model = tiny({}, o.dtype);
  for (const auto& p : model.parameters) EXPECT_EQ(got.average[p->id].empty(), p->statistic) << p->name;
}

TEST(RunningStatistics, StayWithAStepThatIsSkipped) {
  RunOptions o = options({"", SgdSettings{}, DType::f16});
  o.steps = 1;
  o.loss_scale.scale = 0x1p60;
  const RunResult got = run(o);
  EXPECT_TRUE(got.steps[0].skipped);
  const nn::Sequential model = tiny({}, o.dtype);
  for (const auto& p : model.parameters) {
    if (!p->statistic) continue;
    EXPECT_EQ(got.weights[p->id][0], p->name.ends_with("running_var") ? 1 : 0) << p->name;
  }
}

const std::vector<Way>& ways() {
  static const std::vector<Way> all = [] {
    std::vector<Way> more = common_ways();
    more.push_back({"recomputed", [](RunOptions& o) { o.recompute = true, o.order = parallel::Order::vertical; }});
    more.push_back({"recomputed_spilled", [](RunOptions& o) { o.recompute = true, o.activations = Tier::nvme, o.gradients = Tier::host; }});
    return more;
  }();
  return all;
}

class StatisticsPlaced : public testing::TestWithParam<Kind> {};

TEST_P(StatisticsPlaced, GivesTheSameBitsAnywhere) {
  const RunResult want = run(options(GetParam()));
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    RunOptions o = options(GetParam());
    o.threads = 2;
    way.change(o);
    expect_same_run(run(o), want);
  }
}

TEST_P(StatisticsPlaced, GivesTheBitsOfOneRankAtEveryZeroStage) {
  const RunResult want = run(options(GetParam()));
  for (const size_t way : {size_t{0}, size_t{1}, size_t{5}}) {
    for (int stage = 0; stage < 4; ++stage) {
      SCOPED_TRACE(testing::Message() << ways()[way].name << " stage " << stage);
      RunOptions o = options(GetParam());
      ways()[way].change(o);
      o.ranks = 2, o.zero_stage = stage, o.micro_batches = 1;
      expect_same_run(run(o), want);
    }
  }
}

TEST_P(StatisticsPlaced, GivesTheSameBitsInTwoStages) {
  const RunResult want = run(options(GetParam()));
  for (const size_t way : {size_t{0}, size_t{1}, size_t{5}}) {
    SCOPED_TRACE(ways()[way].name);
    RunOptions o = options(GetParam());
    ways()[way].change(o);
    o.pipeline = {.ranks = 2};
    expect_same_run(run(o), want);
  }
}

// Shows that the state holds no array of the update rule for running statistics: only a master copy, if weights have 16 bits.
TEST_P(StatisticsPlaced, HoldsNoStateOfThem) {
  const RunResult got = run(options(GetParam()));
  const Kind& kind = GetParam();
  const i64 master = kind.dtype == DType::f32 ? 0 : kind.master == Master::split ? 2 : 4;
  i64 planned = 0, statistics = 0, others_bytes = 0;
  for (const parallel::Group& g : got.plan.layout.groups) {
    const StateFormat& format = got.plan.scheduling.format;
    const i64 tiles = parallel::whole(g).count();
    if (g.statistics)
      statistics += tiles;
    else
      others_bytes += tiles * (g.factors > 0 ? format.factored(g.factors) : format).state_tile_bytes();
  }
  for (const parallel::PlanRow& row : got.plan.rows) planned += row.what.starts_with("optimizer state (") ? row.bytes[0] : 0;
  EXPECT_EQ(statistics, 3) << "of the stem and two blocks, a tile each";
  EXPECT_EQ(planned, others_bytes + statistics * parallel::kTileElems * master);
}

std::string name_of(const testing::TestParamInfo<Kind>& kind) { return kind.param.name; }
INSTANTIATE_TEST_SUITE_P(Kinds, StatisticsPlaced, testing::Values(kKinds[2]), name_of);
INSTANTIATE_TEST_SUITE_P(KindsMore, StatisticsPlaced, testing::Values(kKinds[0], kKinds[1], kKinds[3], kKinds[4]), name_of);

}  // namespace
}  // namespace spillway::test::running_statistics_test
