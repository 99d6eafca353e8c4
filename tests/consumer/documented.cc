// Runs the C++ code that docs/ shows. test.sh copies the code, block by block and
// unchanged, into blocks.inc, and runs the program in a folder that contains a text.
#include <iostream>

#include "base/thread_pool.h"
#include "data/loader/own_samples.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "trainer/trainer.h"

using namespace spillway;

namespace {
i64 heard = 0;
void hear_step(const trainer::StepEvent&) { ++heard; }
void print_line(std::string_view line) { std::cout << line << "\n"; }

// Declares the hidden layer of the model in docs/library.md, which the copied code uses.
class Hidden final : public nn::Module {
 public:
  explicit Hidden(DType dtype) : layer_("hidden", 2, 8, dtype, {.std = 1}) {}
  nn::Variable forward(const nn::Variable&, const nn::Context& context) const override {
    return ops::tanh(layer_(context.batch->inputs[0], context));
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(layer_); }

 private:
  nn::Linear layer_;
};
class Answer final : public nn::Module {
 public:
  explicit Answer(DType dtype) : layer_("answer", 8, 1, dtype, {.std = 1}) {}
  nn::Variable forward(const nn::Variable& x, const nn::Context& context) const override {
    const nn::Variable error = ops::sub(layer_(x, context), context.batch->inputs[1]);
    return context.loss(ops::mul(error, error));
  }
  std::vector<nn::ParameterUse> parameters() const override { return nn::listed(layer_); }

 private:
  nn::Linear layer_;
};
class MySource final : public data::TensorSource {
 public:
  i64 samples() const override { return 4; }
  void read(i64 index, std::span<const Tensor> out) const override {
    out[0].span<float>()[0] = static_cast<float>(index & 1);
    out[0].span<float>()[1] = static_cast<float>(index / 2);
    out[1].span<float>()[0] = static_cast<float>((index & 1) != index / 2);
  }
};
}  // namespace

int main() {
#include "blocks.inc"
  std::cout << heard << " steps heard\n";
  return heard == 30 ? 0 : 1;
}
