// Compares the bytes and multiplications that the meta device measures for a model with those of a real run and with arithmetic.
#include "nn/measure.h"

#include <gtest/gtest.h>

#include "device/memory_pool.h"
#include "nn/eager.h"
#include "nn/image_layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/losses/class_loss.h"
#include "ops/rows/reduce.h"
#include "tensor/create.h"
#include "tensor/flop_count.h"

namespace spillway::nn::measure_test {
namespace {

// Computes a convolution without padding, a linear layer and a sum.
class Net final : public Module {
 public:
  Net() : conv_("conv", 2, 3, 3, DType::f32, {}), linear_("linear", 3 * 36, 5, DType::f32, {}) {}
  Variable forward(const Variable&, const Context& context) const override {
    const Variable y = linear_(flatten(ops::relu(conv_(context.batch->images_NCHW, context))), context);
    return ops::sum(ops::mul(y, y));
  }
  std::vector<ParameterUse> parameters() const override { return listed(conv_, linear_); }

 private:
  Conv2d conv_;
  Linear linear_;
};

Sequential net(bool frozen) {
  Sequential model;
  model.push(std::make_unique<Net>());
  model.image_CHW = {2, 8, 8};
  if (frozen) model.parameters[0]->frozen = true;
  return model;
}

TEST(Measure, CountsWhatArithmeticDoes) {
  const ModelSize size = measure([] { return net(false); }, 4, 1);
  EXPECT_EQ(size.parameters, 3 * 2 * 9 + 3 + 108 * 5 + 5);
  EXPECT_EQ(size.trained_parameters, size.parameters);
  EXPECT_EQ(size.parameter_bytes, 4 * size.parameters);
  EXPECT_EQ(size.gradient_bytes, 4 * size.parameters);
  const double conv = 2.0 * 4 * 3 * 36 * (2 * 9), linear = 2.0 * 4 * 108 * 5;
  EXPECT_EQ(size.forward_flops, conv + linear);
  // The gradient of the convolution's input, the images, is not computed.
  EXPECT_EQ(size.backward_flops, conv + 2 * linear);
}

TEST(Measure, FrozenParametersAreNotTrained) {
  const ModelSize all = measure([] { return net(false); }, 4, 1), some = measure([] { return net(true); }, 4, 1);
  EXPECT_EQ(some.parameters, all.parameters);
  EXPECT_EQ(some.trained_parameters, all.parameters - 54);
  EXPECT_LT(some.backward_flops, all.backward_flops);
}

// A real run saves the same bytes and makes as many multiplications. Its memory pool allocates whole pages, so its peak is no smaller.
TEST(Measure, IsWhatARealRunNeeds) {
  const ModelSize size = measure([] { return net(false); }, 4, 1);
  MemoryPool pool("activations", kGiB);
  const Sequential model = net(false);
  EagerParameters weights(model);
  const MicroBatch batch{.images_NCHW = randn({4, 2, 8, 8}, {1})};
  const Stream stream{Device::cpu(), nullptr, &pool};
  const StreamScope scope(stream);
  autograd::Tape tape(&weights);
  const FlopCount count;
  const Variable loss = run(model, {.batch = &batch, .tape = &tape});
  EXPECT_EQ(count.flops(), size.forward_flops);
  EXPECT_EQ(tape.saved_bytes(), size.kept_bytes);
  loss.backward();
  EXPECT_EQ(count.flops(), size.forward_flops + size.backward_flops);
  EXPECT_GE(pool.peak_bytes(), size.kept_bytes);
  EXPECT_GE(size.peak_bytes, size.kept_bytes);
}

TEST(FlopCount, CountsWithinItsScopeAlone) {
  const FlopCount outer;
  {
    const FlopCount inner;
    count_flops(3);
    EXPECT_EQ(inner.flops(), 3);
  }
  count_flops(2);
  EXPECT_EQ(outer.flops(), 5);
}

}  // namespace
}  // namespace spillway::nn::measure_test
