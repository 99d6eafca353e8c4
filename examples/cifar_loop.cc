// Lesson: an explicit training loop over images. Trains the network of PyTorch's CIFAR-10 tutorial with AdamW, clipped gradients and a
// learning rate schedule. First it measures how much memory the model needs, before any is allocated; later it evaluates the model, saves
// it with its optimizer, loads it again, and at last trains it with all but the last layer frozen. The images are synthetic: class c has
// bright rows where no other class has them.
#include <filesystem>
#include <iostream>

#include "autograd/no_grad.h"
#include "eager/optimizer.h"
#include "models/model.h"
#include "models/presets.h"
#include "models/export/save.h"
#include "models/weights.h"
#include "nn/measure.h"
#include "ops/elementwise/operators.h"
#include "optim/schedule.h"
#include "tensor/create.h"

using namespace spillway;

namespace {

constexpr i64 kSteps = 30, kImages = 20;

MicroBatch batch_of(u64 number) {
  MicroBatch batch{.targets_BT = empty({kImages}, DType::int32), .counted_targets = kImages};
  batch.images_NCHW = uniform({kImages, 3, 32, 32}, RandomKey{number}, 0, 0.3);
  for (i64 n = 0; n < kImages; ++n) {
    const i64 label = n % 10;
    batch.targets_BT.data<i32>()[n] = static_cast<i32>(label);
    for (i64 i = 0; i < 3 * 32 * 32; ++i) {
      if (i / 32 % 32 / 3 == label) batch.images_NCHW.data<float>()[n * 3072 + i] += 1;
    }
  }
  return batch;
}

double mean_loss(const nn::Sequential& model, const MicroBatch& batch) {
  const autograd::NoGrad looking;
  return nn::run(model, {.mode = nn::Mode::evaluate, .batch = &batch}).value.item() / kImages;
}

double train_step(const nn::Sequential& model, nn::EagerParameters& weights, eager::Optimizer& optimizer, const MicroBatch& batch) {
  autograd::Tape tape(&weights);
  // The loss is a sum over the batch; its gradient is multiplied by loss_factor, which makes it the gradient of the mean.
  const nn::Variable loss = nn::run(model, {.batch = &batch, .tape = &tape, .loss_factor = 1.0 / kImages});
  optimizer.zero_grad();
  loss.backward();
  optimizer.step(optim::clip_factor(optimizer.gradient_norm(), 1));
  return loss.value.item() / kImages;
}

}  // namespace

int main() {
  std::cout << nn::measure([] { return models::build(models::preset("cifar-net"), DType::f32); }, kImages, 1).text();

  const nn::Sequential model = models::build(models::preset("cifar-net"), DType::f32);
  nn::EagerParameters weights(model);
  models::fill(model, models::ScratchWeights(1));
  const optim::AdamSettings adamw{.weight_decay = 0.01, .decoupled_weight_decay = true};
  eager::Optimizer optimizer(weights, adamw);
  const optim::Schedule schedule{.learning_rate = 2e-3, .warmup_steps = 5, .steps = kSteps};
  for (i64 step = 0; step < kSteps; ++step) {
    optimizer.set_learning_rate(optim::learning_rate(schedule, step));
    const double loss = train_step(model, weights, optimizer, batch_of(static_cast<u64>(step)));
    if (step % 10 == 9) std::cout << "step " << step + 1 << "  loss " << loss << "\n";
  }

  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "spillway_example_cifar_loop";
  models::save(model, folder);
  optimizer.save(folder / "optimizer.safetensors");
  const nn::Sequential again = models::build(models::preset("cifar-net"), DType::f32);
  nn::EagerParameters weights_again(again);
  models::fill(again, models::FolderWeights(again, folder));
  const MicroBatch unseen = batch_of(1000);
  const bool same = mean_loss(again, unseen) == mean_loss(model, unseen);
  std::cout << "unseen loss " << mean_loss(again, unseen) << (same ? ", as before it was saved\n" : ", not what was saved\n");

  // No gradient flows to frozen layers, and an optimizer that is made now leaves them out.
  for (const auto& parameter : again.parameters) parameter->frozen = !parameter->name.starts_with("fc3");
  eager::Optimizer last_layer(weights_again, optim::SgdSettings{.lr = 0.01});
  train_step(again, weights_again, last_layer, unseen);
  std::cout << last_layer.parameters().size() << " parameters trained, unseen loss " << mean_loss(again, unseen) << "\n";
  return same ? 0 : 1;
}
