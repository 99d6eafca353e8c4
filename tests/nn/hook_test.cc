// Tests hooks behind a block: what they see and may change, forward and backward, and what they must not do.
#include "nn/hook.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "nn/eager.h"
#include "ops/elementwise/operators.h"
#include "ops/rows/reduce.h"
#include "tensor/create.h"

namespace spillway::nn::hook_test {
namespace {

using Numbers = std::vector<double>;

// Computes y = w x.
class Scaled final : public Module {
 public:
  explicit Scaled(std::shared_ptr<Parameter> w) : w_(std::move(w)) {}
  Variable forward(const Variable& x, const Context& context) const override { return x * context.use(*w_); }
  std::vector<ParameterUse> parameters() const override { return {{w_, 0}}; }
  bool backward_reads_parameters() const override { return false; }
  i64 logits_again_bytes(i64 rows) const override { return 8 * rows; }

 private:
  std::shared_ptr<Parameter> w_;
};

std::unique_ptr<Module> scaled() {
  const auto w = make_parameter("w", {2}, DType::f64, {});
  return std::make_unique<Scaled>(w);
}

TEST(ForwardHook, SeesAndChangesWhatABlockHandsOn) {
  std::unique_ptr<Module> block = scaled();
  const auto w = block->parameters()[0].parameter;
  std::vector<Numbers> seen;
  block = with_hook(std::move(block), [&](const Variable& x, const Variable& y, const Context&) {
    seen.push_back(values_of(x.value));
    seen.push_back(values_of(y.value));
    return y * 10.0;
  });
  block = with_hook(std::move(block), [&](const Variable&, const Variable& y, const Context&) {
    seen.push_back(values_of(y.value));
    return y;
  });
  EXPECT_EQ(block->parameters()[0].parameter, w);
  EXPECT_FALSE(block->backward_reads_parameters());
  EXPECT_FALSE(block->weight_gradients_read_parameters());
  EXPECT_EQ(block->logits_again_bytes(3), 24);
  EagerParameters weights({w});
  w->value().data<double>()[0] = 2, w->value().data<double>()[1] = 3;
  autograd::Tape tape(&weights);
  Context context;
  context.tape = &tape;
  const Variable y = block->forward(tape.input(tensor_of<double>(Numbers{5, 7}, {2})), context);
  EXPECT_EQ(values_of(y.value), (Numbers{100, 210}));
  EXPECT_EQ(seen, (std::vector<Numbers>{{5, 7}, {10, 21}, {100, 210}}));
  ops::sum(y).backward();
  EXPECT_EQ(values_of(weights.gradient(0)), (Numbers{50, 70})) << "through the hook";
}

TEST(ForwardHook, AnotherShapeOrTypeIsRefused) {
  const auto refusal = [](const ForwardHook& hook) {
    const std::unique_ptr<Module> block = with_hook(scaled(), hook);
    EagerParameters weights({block->parameters()[0].parameter});
    try {
      block->forward(Variable{tensor_of<double>(Numbers{5, 7}, {2})}, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bug);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal([](const auto&, const Variable& y, const auto&) { return y; }), "accepted");
  EXPECT_THAT(refusal([](const auto&, const Variable& y, const auto&) {
                return Variable{y.value.reshape({1, 2})};
              }),
              testing::HasSubstr("the output or another f64 [2], got f64 [1, 2]"));
  EXPECT_THAT(refusal([](const auto&, const auto&, const auto&) { return Variable{zeros({2}, DType::f32)}; }),
              testing::HasSubstr("got f32 [2]"));
  EXPECT_THAT(refusal([](const auto&, const auto&, const auto&) { return Variable(); }), testing::HasSubstr("got nothing"));
}

}  // namespace
}  // namespace spillway::nn::hook_test
