// Compares the lines of the roofline report with arithmetic done by hand, and runs the command on the two models quoted in the docs.
#include "app/roofline/roofline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "tests/app/support_app.h"

namespace spillway::app::roofline_test {
namespace {

using parallel::Tier;
using Json = nlohmann::json;

// Returns a step in bf16 that a GPU computes with everything in its memory.
parallel::PlanRequest request_on_gpu(const nn::Sequential& model, i64 sequences, i64 length) {
  parallel::PlanRequest request;
  request.model = &model;
  request.layout = parallel::make_layout(model);
  request.scheduling.format = optim::plain_format(DType::bf16);
  request.scheduling.copy_engines = true;
  request.device = Device::Kind::cuda;
  request.micro_batch_size = sequences;
  request.sequence_length = length;
  request.placement = parallel::Placement::uniform(request.layout, Tier::device, Tier::device, Tier::device, {});
  return request;
}

const Timed& line(const Roofline& r, const std::string& name) {
  const auto at = std::ranges::find_if(r.kernels, [&](const Timed& t) { return t.kernel.name == name; });
  if (at == r.kernels.end()) throw std::runtime_error("no line " + name);
  return *at;
}

// Computes the roofline of GPT-2 124M with 16 sequences of 1024 tokens. Weights, gradients and state are all in the GPU's memory.
class Gpt2Roofline : public testing::Test {
 protected:
  static constexpr double kRows = 16 * 1024, kC = 768, kV = 50257, kLayers = 12;

  Gpt2Roofline() : model_(models::build(models::preset("gpt2-124m"), DType::bf16)), request_(request_on_gpu(model_, 16, 1024)) {}
  void place(Tier weights, parallel::ActivationPolicy activations = {}) {
    request_.placement = parallel::Placement::uniform(request_.layout, weights, weights, weights, activations);
  }
  Roofline roofline() const { return make_roofline(make_plan(request_), models::preset("gpt2-124m")); }

  nn::Sequential model_;
  parallel::PlanRequest request_;
};

TEST_F(Gpt2Roofline, TheModelsFlopsAreSixAParameterAndToken) {
  const Roofline r = roofline();
  const double matrices = kLayers * 12 * kC * kC + kV * kC;  // the head's matrix is the tied embedding, counted once
  // FLOPs of the causal scores; a backward costs twice as much as a forward
  const double attention = 3 * kLayers * 4 * kC * 16 * 1024 * 1025 / 2;
  // FLOPs with which the backward computes the logits again for their gradients
  const double again = 2 * kV * kC * kRows;
  EXPECT_NEAR(r.model_flops, 6 * matrices * kRows + attention, 1e-6 * r.model_flops);
  EXPECT_GT(r.flops, r.model_flops + again) << "and attention's seven products instead of four";
  EXPECT_DOUBLE_EQ(r.share_of_peak(r.model_flops), r.model_flops / r.gpu_s / 989e12);
}

TEST_F(Gpt2Roofline, ALineIsItsFlopsAndBytesAtTheCeilings) {
  const Roofline r = roofline();
  const Timed& up = line(r, "MLP up");
  EXPECT_EQ(up.kernel.times, kLayers);
  EXPECT_DOUBLE_EQ(up.kernel.flops, 2 * kRows * kC * 4 * kC);
  EXPECT_DOUBLE_EQ(up.kernel.bytes, 2 * (kRows * kC + kC * 4 * kC + 2 * kRows * 4 * kC)) << "with what GELU is taken of";
  // The matrix product of "MLP up" has 128 x 12 output tiles of 128 x 256, which 132 multiprocessors compute in twelve waves.
  EXPECT_NEAR(up.kernel.compute, 1536.0 / (12 * 132), 1e-12);
  EXPECT_NEAR(up.seconds, kLayers * (up.kernel.flops / (989e12 * 0.72 * 1536 / 1584) + 2e-6), 1e-9);
  EXPECT_EQ(up.bound, Bound::compute);

  EXPECT_DOUBLE_EQ(line(r, "MLP down, dx").kernel.bytes, 2 * (kRows * kC + 4 * kC * kC + 2 * kRows * 4 * kC));

  const Timed& norm = line(r, "norm before the MLP, dx");
  EXPECT_DOUBLE_EQ(norm.kernel.bytes, 4 * 2 * kRows * kC) << "with the residual's gradient";
  EXPECT_NEAR(norm.seconds, kLayers * (norm.kernel.bytes / (3.35e12 * 0.9) + 2e-6), 1e-9);
  EXPECT_EQ(norm.bound, Bound::memory);

  // The kernel of the bias gradient has 48 thread blocks, each for two packs of columns. A thread block has 512
  // threads with eight loads of 16 bytes in flight each, which is enough to reach the full memory bandwidth.
  const Timed& bias = line(r, "MLP down, dbias");
  EXPECT_NEAR(bias.seconds, kLayers * (2 * kRows * kC / (3.35e12 * 0.9) + 2e-6), 1e-9);
  // The kernel of the position table's gradient has 32 blocks of 128 threads, 128 bytes in flight each. So few are bound by latency.
  const Timed& positions = line(r, "positions, dw");
  EXPECT_NEAR(positions.seconds, positions.kernel.bytes / (32 * 128 * 128 / 0.7e-6) + 2e-6, 1e-9);
}

// cuDNN's attention is priced at the rates measured for it. cuDNN's deterministic
// backward writes the gradients of all scores and reads them again.
TEST_F(Gpt2Roofline, ProductsInFp8TakeHalfTheTimeAndTwoPassesOverTheirOperands) {
  models::ModelConfig config = models::preset("gpt2-124m");
  const Roofline plain = roofline();
  config.fp8 = true;
  const Roofline r = make_roofline(make_plan(request_), config);
  const double operands = kRows * kC + 3 * kC * kC;
  for (const char* name : {"qkv", "qkv, dx", "qkv, dw"}) {
    const Timed& fast = line(r, name);
    const Timed& slow = line(plain, name);
    EXPECT_EQ(fast.kernel.flops, slow.kernel.flops);
    EXPECT_EQ(fast.kernel.compute, 2 * slow.kernel.compute) << name;
  }
  EXPECT_DOUBLE_EQ(line(plain, "qkv").kernel.bytes - line(r, "qkv").kernel.bytes, operands) << "one byte instead of two";
  EXPECT_DOUBLE_EQ(line(r, "qkv, rounded to fp8").kernel.bytes, 5 * operands) << "two reads of bf16, and the codes";
  EXPECT_EQ(r.flops, plain.flops);
}

TEST_F(Gpt2Roofline, AttentionByCudnn) {
  models::ModelConfig model = models::preset("gpt2-124m");
  model.attention = kernels::AttentionLibrary::cudnn;
  const Roofline r = make_roofline(make_plan(request_), model), own = roofline();
  const double scores = 16 * 12 * 1024.0 * (1024 + 128) / 2, square = 2 * 16 * 12 * 1024.0 * 1024;
  const Timed& forward = line(r, "attention");
  EXPECT_NEAR(forward.seconds, kLayers * (2 * 2 * 64 * scores / (989e12 * 0.377) + 2e-6), 1e-9);
  const Timed &keys = line(r, "attention, dk dv and dscores"), &queries = line(r, "attention, dq of dscores");
  EXPECT_DOUBLE_EQ(keys.kernel.flops + queries.kernel.flops, 5 * 2 * 64 * scores);
  EXPECT_NEAR(queries.seconds, kLayers * ((square + 2 * 2 * kRows * kC) / (3.35e12 * 0.9) + 2e-6), 1e-9);
  EXPECT_EQ(queries.bound, Bound::memory);
  EXPECT_NEAR(r.model_flops, own.model_flops, 1e-6 * own.model_flops);
  EXPECT_THROW(line(r, "attention, dq dk dv"), std::runtime_error);
}

// A window of 256 leaves few of the scores of a row of 1024. Layers with and without a window have separate lines.
TEST(Roofline, AttentionInWindows) {
  models::ModelConfig config = models::preset("llama-tiny");
  config.positions = 1024, config.window = 256;
  config.windowed = std::vector<bool>(static_cast<size_t>(config.layers), true);
  config.windowed[0] = false;
  const nn::Sequential model = models::build(config, DType::bf16);
  const auto line_of = [&](const std::string& name) {
    return line(make_roofline(make_plan(request_on_gpu(model, 2, 1024)), config), name).kernel;
  };
  const double heads = 2 * static_cast<double>(config.heads), width = static_cast<double>(config.head_dim);
  const Kernel full = line_of("attention"), windowed = line_of("attention in windows of 256");
  EXPECT_EQ(full.times, 1);
  EXPECT_EQ(windowed.times, static_cast<double>(config.layers - 1));
  double seen = 0;
  for (int t = 0; t < 1024; ++t) seen += std::min(t + 1, 256);
  EXPECT_DOUBLE_EQ(windowed.model_flops, 2 * 2 * width * heads * seen);
  EXPECT_DOUBLE_EQ(full.model_flops, 2 * 2 * width * heads * 1024 * 1025 / 2);
  EXPECT_GT(windowed.flops, windowed.model_flops);
  EXPECT_LT(windowed.flops, full.flops / 1.5);
  config.window = 1024;
  EXPECT_EQ(line_of("attention").times, static_cast<double>(config.layers)) << "such a window holds the whole row";
}

// The head computes logits in pieces of 256 MiB. A piece holds 4096 columns of the fp32 logits of all rows.
TEST_F(Gpt2Roofline, TheHeadIsCutInPiecesOfColumns) {
  const Roofline r = roofline();
  const double columns = 4096, pieces = kV / columns;
  const Timed& logits = line(r, "logits");
  EXPECT_DOUBLE_EQ(logits.kernel.times, pieces);
  EXPECT_DOUBLE_EQ(logits.kernel.bytes, 2 * (kRows * kC + columns * kC) + 4 * kRows * columns);
  EXPECT_DOUBLE_EQ(line(r, "logits, again").kernel.times, pieces);
  EXPECT_DOUBLE_EQ(line(r, "logits, dw").kernel.bytes, 2 * (columns * kRows + kC * kRows) + 4 * columns * kC);
  EXPECT_DOUBLE_EQ(line(r, "logits, dx").kernel.bytes * pieces,
                   pieces * 2 * (kRows * columns + kC * columns) + (2 * pieces - 1) * 4 * kRows * kC);
  const Timed& losses = line(r, "cross-entropy");
  EXPECT_NEAR(losses.seconds, pieces * (4 * kRows * columns / (3.35e12 * 0.9) + 2e-6), 1e-9);
}

TEST_F(Gpt2Roofline, KeptLogitsAreNotMadeAgain) {
  const Roofline again = roofline();
  request_.placement.keeps_logits = true;
  const Roofline kept = roofline();
  EXPECT_THROW(line(kept, "logits, again"), std::runtime_error);
  EXPECT_NEAR(again.flops - kept.flops, 2 * kV * kC * kRows, 1e-6 * again.flops);
  EXPECT_NEAR(kept.model_flops, again.model_flops, 1e-6 * again.model_flops);
  EXPECT_NEAR(again.gpu_s - kept.gpu_s, line(again, "logits, again").seconds, 1e-9);
  // The logits of one sequence take 196.5 MiB and are kept. They are two pieces, the second with the 17 columns beyond a multiple of 64.
  request_.placement.keeps_logits = false;
  request_.micro_batch_size = 1;
  EXPECT_THROW(line(roofline(), "logits, again"), std::runtime_error);
}

TEST_F(Gpt2Roofline, AnUpdateReadsAndWritesThirtyBytesAParameter) {
  const Roofline r = roofline();
  const auto elems = static_cast<double>(request_.layout.elems());
  const Kernel& update = line(r, "AdamW").kernel;
  EXPECT_NEAR(update.times * update.bytes, 30 * elems, 1e-6 * 30 * elems);
  const Kernel& squares = line(r, "squares of gradients").kernel;
  EXPECT_NEAR(squares.times * squares.bytes, 4 * elems, 1e-6 * 4 * elems);
}

TEST_F(Gpt2Roofline, WhatIsRunAgainIsNoWorkOfTheModel) {
  const Roofline once = roofline();
  place(Tier::device, {.recompute = true});
  const Roofline twice = roofline();
  EXPECT_NEAR(twice.model_flops, once.model_flops, 1e-6 * once.model_flops);
  EXPECT_NEAR(twice.flops - once.flops, kLayers * 24 * kC * kC * kRows + kLayers * line(once, "attention").kernel.flops, 1e-6 * once.flops);
  EXPECT_GT(twice.gpu_s, once.gpu_s);
}

TEST_F(Gpt2Roofline, LaterMicroBatchesAddTheirWeightGradients) {
  EXPECT_THROW(line(roofline(), "weight gradients added"), std::runtime_error);
  request_.scheduling.micro_batches = 3;
  const Kernel added = line(roofline(), "weight gradients added").kernel;
  EXPECT_EQ(added.times, 2 * kLayers);
  EXPECT_DOUBLE_EQ(added.bytes, 12 * (12 * kC * kC + 13 * kC));
}

// If weights and state are in host memory, the GPU fetches weights twice a step. The CPU
// updates them: its new weights are copied to the GPU, and gradients are copied to the host.
TEST_F(Gpt2Roofline, CopiesAreBesideTheKernels) {
  place(Tier::host);
  const Roofline r = roofline();
  const Kernel& fetched = line(r, "weights fetched").kernel;
  const auto elems = static_cast<double>(request_.layout.elems());
  EXPECT_GT(fetched.times * fetched.bytes, 2 * elems);
  EXPECT_LE(fetched.times * fetched.bytes, 2 * 2 * elems);
  EXPECT_NEAR(r.to_gpu_s, fetched.times * fetched.bytes / (64e9 * 0.85), 1e-9);
  EXPECT_GT(r.from_gpu_s, 0);
  double gpu_s = 0;
  for (const Timed& t : r.kernels) gpu_s += t.bound == Bound::link ? 0 : t.seconds;
  EXPECT_NEAR(r.gpu_s, gpu_s, 1e-9);
  EXPECT_THROW(line(r, "AdamW"), std::runtime_error);
}

TEST_F(Gpt2Roofline, OnlyTrainingOfTextInHalvesOnAGpu) {
  request_.training = false;
  EXPECT_THROW(roofline(), Error);
  request_.training = true;
  request_.device = Device::Kind::cpu;
  request_.scheduling.copy_engines = false;
  EXPECT_THROW(roofline(), Error);
}

// Two layers of Qwen3-30B-A3B, the first of them with a plain MLP: 128 experts of width 768, of which each position takes eight.
class ExpertsRoofline : public testing::Test {
 protected:
  static constexpr double kC = 2048, kF = 768, kExperts = 128, kChosen = 8;

  static Roofline roofline(i64 sequences, i64 length) {
    models::ModelConfig config = models::preset("qwen3-30b-a3b");
    config.layers = 2;
    config.experts->dense_layers = {0};
    const nn::Sequential model = models::build(config, DType::bf16);
    return make_roofline(make_plan(request_on_gpu(model, sequences, length)), config);
  }
};

// 8192 positions are 65,536 rows, 512 an expert: tiles of 128 rows, of which each expert leaves half of one empty. The sums over rows take
// 32 rows at a time.
TEST_F(ExpertsRoofline, ProductsAreOfTheRoutedRowsAndTheirTiles) {
  const Roofline r = roofline(4, 2048);
  const Timed &gate = line(r, "experts' gate"), &down = line(r, "experts' down, dx"), &dw = line(r, "experts' up, dw");
  EXPECT_EQ(gate.kernel.times, 1);
  EXPECT_EQ(line(r, "MLP gate").kernel.times, 1);
  EXPECT_EQ(line(r, "q").kernel.times, 2);
  EXPECT_DOUBLE_EQ(gate.kernel.flops, 2 * (65536.0 + 128 * 64) * 768 * 2048);
  EXPECT_DOUBLE_EQ(gate.kernel.model_flops, 2 * 65536.0 * 768 * 2048);
  EXPECT_DOUBLE_EQ(gate.kernel.bytes, 2 * (65536.0 * (768 + 2048) + 128.0 * 768 * 2048));
  EXPECT_NEAR(gate.seconds, 2 * 73728.0 * 768 * 2048 / (989e12 * 0.45) + 2e-6, 1e-9);
  EXPECT_DOUBLE_EQ(down.kernel.flops, gate.kernel.flops);
  EXPECT_DOUBLE_EQ(dw.kernel.flops, 2 * (65536.0 + 128 * 16) * 768 * 2048);
  EXPECT_DOUBLE_EQ(dw.kernel.bytes, 2 * 65536.0 * (768 + 2048) + 4 * 128.0 * 768 * 2048);
  EXPECT_DOUBLE_EQ(line(r, "experts' SwiGLU").kernel.bytes, 2 * 3 * 65536.0 * 768);
  EXPECT_DOUBLE_EQ(line(r, "rows copied to experts").kernel.bytes, 2 * 2 * 65536.0 * 2048);
}

// 8 positions are 64 rows, which at most 64 of the 128 experts get, in tiles of 64.
TEST_F(ExpertsRoofline, FewRowsReadTheWeightsOfFewExperts) {
  const Roofline r = roofline(1, 8);
  const Timed& gate = line(r, "experts' gate");
  EXPECT_DOUBLE_EQ(gate.kernel.flops, 2 * (64.0 + 64 * 32) * 768 * 2048);
  EXPECT_DOUBLE_EQ(gate.kernel.bytes, 2 * (64.0 * (768 + 2048) + 64.0 * 768 * 2048));
  EXPECT_EQ(gate.bound, Bound::memory);
}

TEST_F(ExpertsRoofline, TheModelsFlopsAreSixAUsedParameterAndToken) {
  const Roofline r = roofline(4, 2048);
  const double attention = 2 * (2 * kC * 4096 + 2 * kC * 512), scores = 3 * 2 * 4 * 4096.0 * 4 * 2048 * 2049 / 2;
  const double matrices = attention + 3 * kC * 6144 + kC * kExperts + 3 * kC * kF * kChosen + 151936 * kC;
  EXPECT_NEAR(r.model_flops, 6 * matrices * 8192 + scores, 1e-6 * r.model_flops);
}

Outcome planned(const std::string& model, std::vector<std::string> more) {
  std::vector<std::string> args = {"plan", "--roofline", "--model", model, "--cluster", "1x1xH100-80GiB,1TiB", "--threads", "1"};
  args.insert(args.end(), more.begin(), more.end());
  return run_app(args);
}

TEST(RooflineCommand, SaysWhatBoundsEachOfTheTwoModels) {
  const Outcome gpt2 = planned("gpt2-124m", {"--sequence-length", "1024", "--micro-batch-size", "16", "--json"});
  ASSERT_EQ(gpt2.status, 0) << gpt2.err;
  const Json small = Json::parse(gpt2.out)["roofline"];
  EXPECT_GT(small["share_of_peak"], 0.15);
  EXPECT_LT(small["share_of_peak"], 0.6);
  const Outcome llama =
      planned("llama3-8b", {"--sequence-length", "8192", "--micro-batch-size", "2", "--place-parameters", "device", "--place-gradients",
                            "device", "--place-optimizer", "host", "--place-activations", "device", "--recompute", "block", "--json"});
  ASSERT_EQ(llama.status, 0) << llama.err;
  const Json large = Json::parse(llama.out)["roofline"];
  // A model needs 6 FLOPs per token for each parameter of a matrix, and the FLOPs of attention.
  const double matrices = 32.0 * (2 * 4096.0 * 4096 + 2 * 4096.0 * 1024 + 3 * 4096.0 * 14336) + 128256.0 * 4096;
  const double attention = 3.0 * 32 * 4 * 4096 * 2 * 8192 * 8193 / 2;
  EXPECT_NEAR(large["model_flops"], 6 * matrices * 16384 + attention, 1e9);
  EXPECT_GT(large["share_of_peak"], 0.3);
  EXPECT_LT(large["share_of_peak"], 0.6);
  EXPECT_GT(large["to_gpu_s"], 0) << "new weights from the CPU's Steps, or tiles that the GPU updates";
}

TEST(RooflineCommand, HasTheLogitsThatThePlanKeeps) {
  const auto has = [](const char* gpu) {
    const Outcome outcome = run_app({"plan", "--roofline", "--model", "gpt2-124m", "--sequence-length", "1024", "--micro-batch-size", "16",
                                     "--cluster", std::string("1x1x") + gpu + ",1TiB", "--threads", "1"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const bool again = outcome.out.find("\n  logits, again ") != std::string::npos;
    EXPECT_EQ(again, outcome.out.find("\n  logits: recomputed") != std::string::npos) << outcome.out;
    return !again;
  };
  EXPECT_TRUE(has("H100-80GiB"));
  EXPECT_FALSE(has("H100-8GiB"));
}

TEST(RooflineCommand, PrintsItsCeilingsAndLines) {
  const Outcome outcome = planned("gpt2-tiny", {});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* piece :
       {"989 TFLOP/s dense in bf16", "3.35 TB/s of memory", "\nproducts: ", "\nattention: ", "\nhead: ", "\nGPU in all: "})
    EXPECT_NE(outcome.out.find(piece), std::string::npos) << piece << " in " << outcome.out;
  int rows = 0;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  ") || !line.ends_with(" %")) continue;
    EXPECT_LE(line.size(), 80u) << line;
    ++rows;
  }
  EXPECT_GT(rows, 20) << outcome.out;
}

TEST(RooflineCommand, OfACpuIsRefusedWithWhatWasExpected) {
  const Outcome outcome = run_app({"plan", "--roofline", "--model", "gpt2-tiny", "--device", "cpu", "--threads", "1"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("[--roofline] expected a plan for training text on a GPU"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace spillway::app::roofline_test
