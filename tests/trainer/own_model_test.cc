// Trains a model whose blocks the test defines through the library's Trainer. Losses equal those of a training loop that the test runs by
// itself. The results depend bitwise neither on the tiers of weights and state nor on a kill of the process. A model that cannot be trained
// correctly is refused.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/loader/own_samples.h"
#include "data/safetensors/safetensors.h"
#include "eager/optimizer.h"
#include "models/weights.h"
#include "nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/losses/loss.h"
#include "ops/losses/row_loss.h"
#include "tensor/create.h"
#include "tests/support/temporary_folder.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/checkpoints/model_source.h"
#include "trainer/trainer.h"

namespace spillway::own_model_test {
namespace {

using trainer::PlacementWish;
using trainer::Tier;
using trainer::TrainConfig;
using Json = nlohmann::json;
using nn::Context;
using nn::Variable;
using test::TemporaryFolder;

constexpr i64 kWidth = 8;

/// Computes x -> tanh(W x + b). The first layer of a model reads input 0 of the batch.
class Layer final : public nn::Module {
 public:
  Layer(const std::string& name, i64 inputs, DType dtype) : layer_(name, inputs, kWidth, dtype, {.std = 0.5}) {}
  Variable forward(const Variable& x, const Context& context) const override {
    return ops::tanh(layer_(x.value.defined() ? x : Variable(context.batch->inputs[0]), context));
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(layer_); }

 private:
  nn::Linear layer_;
};

/// Computes the squared error against input 1. With `counts_padding` it sums all rows, like a faulty block that ignores the row mask.
class Error2 final : public nn::Module {
 public:
  Error2(DType dtype, bool counts_padding) : layer_("out", kWidth, 1, dtype, {.std = 0.5}), counts_padding_(counts_padding) {}
  Variable forward(const Variable& x, const Context& context) const override {
    const Variable error = ops::sub(layer_(x, context), context.batch->inputs[1]);
    const Variable losses = ops::mul(error, error);
    if (!counts_padding_) return context.loss(losses);
    return ops::sum_of_rows(losses, {}, context.loss_factor);
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(layer_); }

 private:
  nn::Linear layer_;
  bool counts_padding_;
};

nn::Sequential build_model(DType dtype, bool counts_padding = false) {
  nn::Sequential model;
  model.inputs = {{"x", {3}, dtype}, {"y", {1}, dtype}};
  model.push(std::make_unique<Layer>("first", 3, dtype));
  model.push(std::make_unique<Layer>("second", kWidth, dtype));
  model.push(std::make_unique<Error2>(dtype, counts_padding));
  return model;
}
nn::Sequential build(DType dtype) { return build_model(dtype); }

double x_of(i64 index, i64 place) { return std::sin(static_cast<double>(index * 3 + place)); }
double y_of(i64 index) { return x_of(index, 0) * x_of(index, 1) - x_of(index, 2); }

class Points final : public data::TensorSource {
 public:
  explicit Points(i64 samples) : samples_(samples) {}
  i64 samples() const override { return samples_; }
  void read(i64 index, std::span<const Tensor> out) const override {
    const auto put = [](const Tensor& t, i64 at, double value) {
      if (t.dtype() == DType::f64) {
        t.span<double>()[static_cast<size_t>(at)] = value;
      } else {
        t.span<float>()[static_cast<size_t>(at)] = static_cast<float>(value);
      }
    };
    for (i64 place = 0; place < 3; ++place) put(out[0], place, x_of(index, place));
    put(out[1], 0, y_of(index));
  }

 private:
  const i64 samples_;
};

trainer::OwnData points(i64 samples, DType dtype = DType::f32) {
  return {.training = [=] { return data::samples_of(std::make_shared<Points>(samples), build(dtype).inputs); }, .validation = {}};
}

/// Points whose losses count once, twice or three times in the mean of a step.
class WeightedPoints final : public data::TensorSource {
 public:
  i64 samples() const override { return points_.samples(); }
  void read(i64 index, std::span<const Tensor> out) const override { points_.read(index, out); }
  i64 targets(std::span<const Tensor> sample) const override { return weight_of(sample[0].span<double>()[0]); }
  i64 most_targets() const override { return 3; }
  static i64 weight_of(double x) { return x < -0.3 ? 1 : x < 0.3 ? 2 : 3; }

 private:
  Points points_{8};
};

class OwnModel : public testing::Test {
 protected:
  TrainConfig settings(const std::string& run) const {
    TrainConfig s;
    s.out = (folder_.path() / run).string();
    s.steps = 6;
    s.micro_batch_size = 2;
    s.global_batch_size = 4;
    s.learning_rate = 0.05;
    s.warmup_steps = 0;
    s.lr_schedule = optim::Schedule::Kind::constant;
    s.weight_decay = 0;
    s.gradient_clipping = 0;
    s.precision = trainer::Precision::fp32;
    s.device = "cpu";
    s.threads = 1;
    s.data_order = trainer::DataOrder::sequential;
    return s;
  }
  TrainConfig on(TrainConfig s, Tier tier) const {
    s.nvme = {{.path = (folder_.path() / "nvme").string(), .bytes = {}}};
    s.placement->parameters = s.placement->gradients = s.placement->optimizer = PlacementWish::whole(tier);
    return s;
  }
  static std::vector<std::string> losses(const TrainConfig& s) {
    std::ifstream file(s.out + "/metrics.jsonl");
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(Json::parse(line).at("loss").dump());
    return all;
  }
  static std::string weights(const TrainConfig& s) {
    std::ifstream file(trainer::checkpoint_path(s.out, *s.steps) / "model.safetensors", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string why(const std::function<void()>& work, ErrorCode code = ErrorCode::usage) const {
    try {
      work();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      return e.what();
    }
    return "nothing was thrown";
  }
  trainer::TrainingResult fit(const TrainConfig& s, const trainer::OwnData& data = points(10)) {
    return Trainer("own", build, s).fit(data);
  }
  const TemporaryFolder folder_;
};

// The reference is a loop by hand in fp64: ten samples in steps of four, so that the third step of each
// epoch has only two. Its gradients come from autograd, its mean and its update from formulas in the test.
TEST_F(OwnModel, LossesAreThoseOfALoopByHand) {
  TrainConfig s = settings("run");
  s.precision = trainer::Precision::fp64;
  s.optimizer = "sgd";
  fit(s, points(10, DType::f64));

  nn::Sequential model = build(DType::f64);
  nn::EagerParameters memory(model);
  models::fill(model, models::ScratchWeights(s.seed));
  eager::Optimizer sgd(memory, optim::SgdSettings{.lr = *s.learning_rate});
  std::vector<double> expected;
  for (i64 step = 0; step < *s.steps; ++step) {
    const i64 begin = (step % 3) * 4, rows = std::min<i64>(4, 10 - begin);
    MicroBatch batch = nn::empty_batch(model, rows, 1);
    for (i64 r = 0; r < rows; ++r) {
      for (i64 p = 0; p < 3; ++p) batch.inputs[0].span<double>()[static_cast<size_t>(r * 3 + p)] = x_of(begin + r, p);
      batch.inputs[1].span<double>()[static_cast<size_t>(r)] = y_of(begin + r);
      batch.row_mask_B.span<u8>()[static_cast<size_t>(r)] = 1;
    }
    autograd::Tape tape(&memory);
    const Context context{.batch = &batch, .tape = &tape, .loss_factor = 1.0 / static_cast<double>(rows)};
    const Variable loss = nn::run(model, context);
    expected.push_back(loss.value.item() / static_cast<double>(rows));
    sgd.zero_grad();
    loss.backward();
    sgd.step();
  }
  const std::vector<std::string> got = losses(s);
  ASSERT_EQ(got.size(), expected.size());
  // The tolerance: ten additions and three layers of products of fp64 numbers of size 1 have an error of at most 1000 * 2^-53.
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(std::stod(got[i]), expected[i], 1.2e-13) << "step " << i + 1;
}

// A step divides the sum of its losses by the targets of its samples.
TEST_F(OwnModel, SamplesCountAsTheirTargets) {
  TrainConfig s = settings("run"), weighted = settings("weighted");
  s.precision = weighted.precision = trainer::Precision::fp64;
  s.steps = weighted.steps = 1;
  fit(s, points(8, DType::f64));
  fit(weighted,
      {.training = [] { return data::samples_of(std::make_shared<WeightedPoints>(), build(DType::f64).inputs); }, .validation = {}});
  double targets = 0;
  for (i64 index = 0; index < 4; ++index) targets += static_cast<double>(WeightedPoints::weight_of(x_of(index, 0)));
  ASSERT_GT(targets, 4);
  EXPECT_NEAR(std::stod(losses(weighted)[0]) * targets, std::stod(losses(s)[0]) * 4, 1e-12);
}

TEST_F(OwnModel, BitsDoNotDependOnWhereTheBytesLie) {
  const TrainConfig base = settings("host");
  fit(on(base, Tier::host));
  ASSERT_EQ(losses(base).size(), 6u);
  TrainConfig nvme = on(settings("nvme_run"), Tier::nvme), stages = on(settings("stages"), Tier::nvme);
  nvme.durability = trainer::Durability::step;
  nvme.placement->recompute = trainer::Recompute::block;
  stages.ranks = stages.pipeline_stages = 2;
  stages.communicator = "local";
  for (const TrainConfig& s : {nvme, stages}) {
    EXPECT_TRUE(fit(s).finished);
    EXPECT_EQ(losses(s), losses(base)) << s.out;
    EXPECT_EQ(weights(s), weights(base)) << s.out;
  }
}

TEST_F(OwnModel, BitsOfTwoRanksDoNotDependOnTheZeroStage) {
  std::vector<TrainConfig> all;
  for (const char* stage : {"0", "3"}) {
    TrainConfig s = on(settings(std::string("zero") + stage), *stage == '3' ? Tier::nvme : Tier::device);
    s.ranks = 2;
    s.communicator = "local";
    s.placement->zero_stage = *stage - '0';
    all.push_back(s);
    EXPECT_TRUE(fit(s).finished);
  }
  EXPECT_EQ(losses(all[0]), losses(all[1]));
  EXPECT_EQ(weights(all[0]), weights(all[1]));
  TrainConfig one = settings("one");
  fit(one);
  ASSERT_EQ(losses(one).size(), losses(all[0]).size());
  for (size_t i = 0; i < losses(one).size(); ++i) EXPECT_NEAR(std::stod(losses(one)[i]), std::stod(losses(all[0])[i]), 1e-5);
}

// A run is killed in each step in turn, in the middle of a callback, and resumed with the state that it left on nvme.
TEST_F(OwnModel, GoesOnAfterAKillWithTheSameBits) {
  const TrainConfig whole = on(settings("whole"), Tier::nvme);
  TrainConfig killed = on(settings("killed"), Tier::nvme);
  killed.ranks = killed.pipeline_stages = 2;
  killed.communicator = "local";
  killed.run->checkpoint_every = {trainer::Cadence::Unit::steps, 2};
  for (i64 at = 1; at < 6; ++at) {
    const pid_t child = ::fork();
    if (child == 0) {
      Trainer trainer("own", build, killed);
      trainer.callbacks.on_step = [&](const trainer::StepEvent& e) {
        if (e.step == at) ::kill(::getpid(), SIGKILL);
      };
      trainer.fit(points(10));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "step " << at << " status " << status;
  }
  std::string log;
  trainer::LineMessages lines([&](std::string_view line) { log += std::string(line) + "\n"; });
  Trainer trainer("own", build, killed);
  EXPECT_TRUE(trainer.fit(points(10), lines).finished);
  // When the kill came, the last update may not have been written to nvme completely.
  EXPECT_TRUE(log.find("step 5 of 6") != std::string::npos || log.find("step 4 of 6") != std::string::npos) << log;
  fit(whole);
  EXPECT_EQ(weights(killed), weights(whole));
  EXPECT_EQ(losses(killed), losses(whole));
}

TEST_F(OwnModel, ValidatesAndKeepsNamesOfParameters) {
  TrainConfig s = settings("run");
  s.validate_every = 3;
  trainer::OwnData data = points(10);
  data.validation = [] { return data::samples_of(std::make_shared<Points>(3), build(DType::f32).inputs); };
  std::vector<double> validations;
  Trainer trainer("own", build, s);
  trainer.callbacks.on_validate = [&](const trainer::ValidationEvent& e) { validations.push_back(e.loss); };
  const trainer::TrainingResult result = trainer.fit(data);
  ASSERT_EQ(validations.size(), 2u);
  const data::SafetensorsReader saved(result.checkpoint / "model.safetensors");
  nn::Sequential model = build(DType::f32);
  nn::EagerParameters memory(model);
  ASSERT_EQ(saved.tensors().size(), model.parameters.size());
  models::fill(model, models::FolderWeights(model, result.checkpoint));
  double sum = 0;
  MicroBatch batch = nn::empty_batch(model, 3, 1);
  for (i64 r = 0; r < 3; ++r) {
    for (i64 p = 0; p < 3; ++p) batch.inputs[0].span<float>()[static_cast<size_t>(r * 3 + p)] = static_cast<float>(x_of(r, p));
    batch.inputs[1].span<float>()[static_cast<size_t>(r)] = static_cast<float>(y_of(r));
    batch.row_mask_B.span<u8>()[static_cast<size_t>(r)] = 1;
  }
  sum = nn::run(model, {.mode = nn::Mode::evaluate, .batch = &batch}).value.item() / 3;
  EXPECT_NEAR(validations.back(), sum, 1e-6 * std::abs(sum));
}

TEST_F(OwnModel, RefusesALossThatCountsPadding) {
  const auto wrong = [](DType dtype) { return build_model(dtype, true); };
  TrainConfig s = settings("run");
  EXPECT_NE(why([&] { Trainer("own", wrong, s).fit(points(10)); }).find("rows of padding"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(s.out) / "config.json"));
  s.drop_last = true;
  EXPECT_TRUE(Trainer("own", wrong, s).fit(points(10)).finished);
  TrainConfig even = settings("even");
  EXPECT_TRUE(Trainer("own", wrong, even).fit(points(8)).finished);
}

TEST_F(OwnModel, RefusesWhatItCannotTrain) {
  const TrainConfig s = settings("run");
  const auto with = [&](auto change) {
    TrainConfig other = s;
    change(other);
    return why([&] { fit(other); });
  };
  EXPECT_NE(with([](TrainConfig& c) { c.out.clear(); }).find("--out"), std::string::npos);
  EXPECT_NE(with([](TrainConfig& c) { c.sequence_length = 8; }).find("[sequence_length]"), std::string::npos);
  EXPECT_NE(with([](TrainConfig& c) { c.tokenizer = "bytes"; }).find("[tokenizer]"), std::string::npos);
  EXPECT_NE(with([](TrainConfig& c) { c.lora = 8; }).find("[lora]"), std::string::npos);
  EXPECT_NE(with([](TrainConfig& c) { c.data = {"x.bin"}; }).find("[data]"), std::string::npos);
  EXPECT_NE(with([](TrainConfig& c) { c.micro_batch_size = 0; }).find("[micro_batch_size]"), std::string::npos);
  EXPECT_NE(with([](TrainConfig& c) { c.learning_rate = std::nan(""); }).find("[learning_rate]"), std::string::npos);
  EXPECT_NE(with([](TrainConfig& c) { c.optimizer = "adamm"; }).find("[optimizer]"), std::string::npos);
  EXPECT_NE(with([](TrainConfig& c) { c.validate_every = 2; }).find("[validate_every]"), std::string::npos);
  EXPECT_NE(with([](TrainConfig& c) { c.ranks = 2; }).find("launcher"), std::string::npos);
  EXPECT_NE(why([&] { fit(s, points(0)); }).find("no training sample"), std::string::npos);
  EXPECT_NE(why([&] { Trainer("a/b", build, s).fit(points(4)); }).find("a/b"), std::string::npos);
  EXPECT_NE(why([&] { Trainer("gpt2-tiny", build, s).fit(points(4)); }).find("preset"), std::string::npos);
  EXPECT_NE(why([&] { Trainer("own", nullptr, s); }).find("function"), std::string::npos);
  EXPECT_NE(why([&] {
              Trainer(
                  "own", [](DType) { return nn::Sequential(); }, s)
                  .fit(points(4));
            }).find("block"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(s.out) / "config.json"));
}

// Defines blocks of the test's own that read tokens: an embedding and a head. The rows of tokens are made by the test.
class Words final : public nn::Module {
 public:
  Words(DType dtype, bool counts_padding) : table_("table", 11, 4, dtype, 0.5), head_("head", 4, 11, dtype, {}), counts_(counts_padding) {}
  Variable forward(const Variable&, const Context& context) const override {
    const Variable logits = head_(table_(context.batch->tokens_BT, context), context);
    if (counts_) return context.loss(logits);
    return ops::cross_entropy_sum(logits, context.batch->targets_BT, context.loss_factor);
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(table_, head_); }

 private:
  nn::Embedding table_;
  nn::Linear head_;
  bool counts_;
};

class Counting final : public data::TextRows {
 public:
  i64 rows() const override { return 5; }
  i64 tokens() const override { return 5 * 7; }
  bool packed() const override { return false; }
  data::RowTokens read(i64 row, std::span<i32> tokens, std::span<i32> targets, std::span<i32> positions) const override {
    for (size_t t = 0; t < tokens.size(); ++t) {
      tokens[t] = static_cast<i32>((static_cast<size_t>(row) + t) % 11);
      targets[t] = (tokens[t] + 1) % 11;
      positions[t] = static_cast<i32>(t);
    }
    return {std::ssize(tokens), std::ssize(targets)};
  }
};

TEST_F(OwnModel, ReadsTokensOfItsOwnRows) {
  const auto reader = [](bool counts_padding) {
    return [=](DType dtype) {
      nn::Sequential model;
      model.push(std::make_unique<Words>(dtype, counts_padding));
      return model;
    };
  };
  const auto rows = [] {
    std::vector<std::unique_ptr<data::TextRows>> sources;
    sources.push_back(std::make_unique<Counting>());
    return data::rows_of(std::move(sources), 7);
  };
  TrainConfig s = settings("words");
  EXPECT_NE(why([&] { Trainer("words", reader(false), s).fit({.training = rows, .validation = {}}); }).find("[sequence_length]"),
            std::string::npos);
  s.sequence_length = 7;
  s.steps = 40;
  EXPECT_NE(why([&] { Trainer("words", reader(true), s).fit({.training = rows, .validation = {}}); }).find("[loss]"), std::string::npos);
  EXPECT_TRUE(Trainer("words", reader(false), s).fit({.training = rows, .validation = {}}).finished);
  EXPECT_NEAR(std::stod(losses(s).front()), std::log(11), 0.2) << "the loss of a guess";
  EXPECT_LT(std::stod(losses(s).back()), 0.5);
}

TEST_F(OwnModel, NeedsDataOfItsOwn) {
  TrainConfig s = settings("run");
  EXPECT_NE(why([&] { fit(s, {}); }).find("[data]"), std::string::npos);
  s.data = {"x.bin"};
  EXPECT_NE(why([&] { fit(s, {}); }).find("[data]"), std::string::npos);
  s.model = "gpt2-tiny";
  s.data.clear();
  EXPECT_NE(why([&] { Trainer(s).fit({}); }).find("[data]"), std::string::npos);
}

TEST_F(OwnModel, ItsCheckpointIsNamedWhereTheProgramIsNeeded) {
  const TrainConfig s = settings("run");
  const trainer::TrainingResult result = fit(s);
  for (const std::string& at : {s.out, result.checkpoint.string()}) {
    const std::string said = why([&] { trainer::find_trained_model(at, "last"); });
    EXPECT_NE(said.find("`own`"), std::string::npos) << said;
    EXPECT_NE(said.find("model.safetensors"), std::string::npos) << said;
  }
}

TEST_F(OwnModel, AnotherModelOrOtherDataDoNotGoOnWithTheRun) {
  TrainConfig s = settings("run");
  fit(s);
  s.steps = 8;
  const auto narrow = [](DType dtype) {
    nn::Sequential model;
    model.inputs = {{"x", {3}, dtype}, {"y", {1}, dtype}};
    model.push(std::make_unique<Layer>("first", 3, dtype));
    model.push(std::make_unique<Error2>(dtype, false));
    return model;
  };
  EXPECT_NE(why([&] { Trainer("own", narrow, s).fit(points(10)); }).find("--model"), std::string::npos);
  EXPECT_NE(why([&] { Trainer("own", build, s).fit(points(11)); }).find("--data"), std::string::npos);
  EXPECT_TRUE(fit(s).finished);
  EXPECT_EQ(losses(s).size(), 8u);
}

}  // namespace
}  // namespace spillway::own_model_test
