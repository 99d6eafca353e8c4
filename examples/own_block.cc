// Lesson: write a block of your own. A model is a list of blocks; a block lists the parameters it reads and computes its forward pass from
// ops. Such a block can be trained eagerly, as below, or passed to the trainer, because a block knows nothing of memory, ranks or
// schedules. The two-layer network here learns exclusive or.
#include <array>
#include <cstdio>

#include "eager/optimizer.h"
#include "models/weights.h"
#include "nn/layers.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

using namespace spillway;
using nn::Context;
using nn::Variable;

namespace {

class Hidden final : public nn::Module {
 public:
  explicit Hidden(Tensor questions) : questions_(std::move(questions)), layer_("hidden", 2, 8, DType::f32, {.std = 1}) {}
  Variable forward(const Variable&, const Context& context) const override { return ops::tanh(layer_(questions_, context)); }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(layer_); }

 private:
  Tensor questions_;
  nn::Linear layer_;
};

class Answer final : public nn::Module {
 public:
  explicit Answer(Tensor answers) : answers_(std::move(answers)), layer_("answer", 8, 1, DType::f32, {.std = 1}) {}
  Variable forward(const Variable& x, const Context& context) const override {
    const Variable error = ops::sub(layer_(x, context), answers_);
    return ops::sum(ops::mul(error, error));
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(layer_); }

 private:
  Tensor answers_;
  nn::Linear layer_;
};

}  // namespace

int main() {
  const std::array<float, 8> questions{0, 0, 0, 1, 1, 0, 1, 1};
  const std::array<float, 4> answers{0, 1, 1, 0};
  nn::Sequential model;
  model.push(std::make_unique<Hidden>(tensor_of<float>(questions, {4, 2})));
  model.push(std::make_unique<Answer>(tensor_of<float>(answers, {4, 1})));

  nn::EagerParameters weights(model);  // allocates memory for every parameter and stores the gradients
  models::fill(model, models::ScratchWeights(1));
  eager::Optimizer optimizer(weights, optim::SgdSettings{.lr = 0.02});
  for (int step = 0; step <= 200; ++step) {
    autograd::Tape tape(&weights);
    Context context;
    context.tape = &tape;
    const Variable loss = nn::run(model, context);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 40 == 0) std::printf("step %3d  loss %.6f\n", step, loss.value.item());
  }
}
