// Tests the eager optimizer with Muon: a matrix follows PyTorch's trajectory, and AdamW updates parameters that are no matrices.
#include <gtest/gtest.h>

#include <cstring>

#include "autograd/tape.h"
#include "eager/optimizer.h"
#include "ops/elementwise/operators.h"
#include "ops/rows/reduce.h"
#include "tensor/create.h"
#include "tests/optim/support_reference.h"

namespace spillway::eager::muon_test {
namespace {

using Numbers = std::vector<double>;

// A parameter of the test: a matrix, or a vector of as many numbers. Values and gradients are those of matrix 1 in the reference file.
struct Weight {
  explicit Weight(const Shape& shape) : parameter(nn::make_parameter("w", shape, DType::f64, {})) {
    held = std::make_unique<nn::EagerParameters>(std::vector{parameter});
    const Numbers init = reference.get<double>("p1/init");
    std::ranges::copy(init, parameter->value().data<double>());
  }
  void step(Optimizer& optimizer, size_t t) {
    const Numbers all = reference.get<double>("p1/grads");
    const size_t n = static_cast<size_t>(parameter->elems());
    optimizer.zero_grad();
    autograd::Tape tape(held.get());
    const Tensor gradient = tensor_of<double>(std::span(all).subspan(t * n, n), parameter->shape);
    ops::sum(tape.parameter(parameter->value(), 0) * gradient).backward();
    optimizer.step();
  }

  const test::Reference reference{"muon_match_rms.safetensors"};
  std::shared_ptr<nn::Parameter> parameter;
  std::unique_ptr<nn::EagerParameters> held;
};

constexpr optim::MuonSettings kSettings{.lr = 0.003};

TEST(EagerMuon, AMatrixFollowsPyTorch) {
  Weight weight({6, 4});
  Optimizer optimizer(*weight.held, kSettings);
  const Numbers after = weight.reference.get<double>("p1/f64/after");
  for (size_t t = 0; t < 20; ++t) {
    weight.step(optimizer, t);
    const Numbers got = values_of(weight.parameter->value());
    for (size_t i = 0; i < 24; ++i) ASSERT_NEAR(got[i], after[24 * t + i], 1e-12) << "step " << t;
  }
}

TEST(EagerMuon, WhatIsNoMatrixIsAdamWs) {
  const auto stepped = [](const Shape& shape, bool of_ids, const optim::RuleSettings& settings) {
    Weight weight(shape);
    weight.parameter->of_ids = of_ids;
    Optimizer optimizer(*weight.held, settings);
    for (size_t t = 0; t < 3; ++t) weight.step(optimizer, t);
    return values_of(weight.parameter->value());
  };
  const optim::AdamSettings adamw{.lr = 0.003, .beta2 = 0.95, .weight_decay = 0.1, .decoupled_weight_decay = true};
  EXPECT_EQ(stepped({24}, false, kSettings), stepped({24}, false, adamw));
  EXPECT_EQ(stepped({6, 4}, true, kSettings), stepped({6, 4}, true, adamw));
  EXPECT_NE(stepped({6, 4}, false, kSettings), stepped({6, 4}, false, adamw));
}

}  // namespace
}  // namespace spillway::eager::muon_test
