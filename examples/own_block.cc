// Lesson: a model of your own blocks, trained with everything that `spillway train` has. A model is a list of blocks; a block lists the
// parameters it reads and computes its forward pass from ops. It knows nothing of memory, ranks or schedules, so its weights, gradients and
// optimizer state may lie on the device, in host memory or on nvme, on one rank or on several. The two-layer network here learns exclusive
// or. Usage: example_own_block [RUN [NVME [RANKS STAGES]]]: the run folder (the same one resumes the run), a scratch folder (if given,
// weights and optimizer state lie there), and the number of ranks, which are threads of this process, and of pipeline stages.
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "data/loader/own_samples.h"
#include "nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "trainer/trainer.h"

using namespace spillway;
using nn::Context;
using nn::Variable;

namespace {

// Hidden is the first block. It reads input 0 of the batch, a tensor [B, 2].
class Hidden final : public nn::Module {
 public:
  explicit Hidden(DType dtype) : layer_("hidden", 2, 8, dtype, {.std = 1}) {}
  Variable forward(const Variable&, const Context& context) const override { return ops::tanh(layer_(context.batch->inputs[0], context)); }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(layer_); }

 private:
  nn::Linear layer_;
};

// Answer is the last block. It compares its result with input 1 of the batch, a tensor [B, 1], and returns the loss of the batch.
class Answer final : public nn::Module {
 public:
  explicit Answer(DType dtype) : layer_("answer", 8, 1, dtype, {.std = 1}) {}
  Variable forward(const Variable& x, const Context& context) const override {
    const Variable error = ops::sub(layer_(x, context), context.batch->inputs[1]);
    return context.loss(ops::mul(error, error));
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(layer_); }

 private:
  nn::Linear layer_;
};

nn::Sequential build(DType dtype) {
  nn::Sequential model;
  model.inputs = {{"question", {2}, DType::f32}, {"answer", {1}, DType::f32}};
  model.push(std::make_unique<Hidden>(dtype));
  model.push(std::make_unique<Answer>(dtype));
  return model;
}

class ExclusiveOr final : public data::TensorSource {
 public:
  i64 samples() const override { return 4; }
  void read(i64 index, std::span<const Tensor> out) const override {
    const bool a = index & 1, b = index & 2;
    out[0].span<float>()[0] = a;
    out[0].span<float>()[1] = b;
    out[1].span<float>()[0] = a != b;
  }
};

}  // namespace

int main(int argc, char** argv) try {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "spillway_example_own_block";
  if (argc < 2) std::filesystem::remove_all(folder);
  trainer::TrainConfig settings;
  settings.out = argc > 1 ? argv[1] : folder.string();
  settings.steps = 200;
  settings.micro_batch_size = 1;
  settings.global_batch_size = 4;
  settings.learning_rate = 0.05;
  settings.weight_decay = 0;
  settings.precision = trainer::Precision::fp32;
  settings.device = "cpu";
  if (argc > 2) {
    settings.nvme = {{.path = argv[2], .bytes = {}}};
    settings.placement->parameters = settings.placement->gradients = settings.placement->optimizer =
        trainer::PlacementWish::whole(trainer::Tier::nvme);
  }
  if (argc > 4) {
    settings.ranks = std::atoi(argv[3]);
    settings.pipeline_stages = std::atoi(argv[4]);
    settings.communicator = "local";
  }
  Trainer trainer("exclusive-or", build, settings);
  trainer.callbacks.on_step = [](const trainer::StepEvent& e) {
    if (e.step % 40 == 0) std::cout << "step " << e.step << "  loss " << e.loss << "\n";
  };
  const auto samples = [] { return data::samples_of(std::make_shared<ExclusiveOr>(), build(DType::f32).inputs); };
  const trainer::TrainingResult result = trainer.fit({.training = samples, .validation = {}});
  std::cout << (result.finished ? "finished: " : "stopped: ") << result.checkpoint.string() << "\n";
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_status();
}
