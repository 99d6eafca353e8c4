#include "nn/eager.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "device/memory_pool.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/nn/support_blocks.h"

namespace spillway::nn::eager_test {
namespace {

using test::block;
using test::weight;

template <class T>
std::vector<T> values(const Tensor& t) {
  const auto span = t.span<T>();
  return {span.begin(), span.end()};
}

void set(const Parameter& p, std::initializer_list<float> numbers) { std::ranges::copy(numbers, p.value().span<float>().begin()); }

// y = 3 a; z = sum(y * b * a): a is used by both blocks.
struct Shared {
  std::shared_ptr<Parameter> a = weight("a"), b = weight("b");
  Sequential model;
  Shared() {
    model.push(block({{a, 0}}, [this](const Variable&, const Context& c) { return ops::scale(c.use(*a), 3); }));
    model.push(block({{b, 0}, {a, 1}},
                     [this](const Variable& y, const Context& c) { return ops::sum(ops::mul(ops::mul(y, c.use(*b)), c.use(*a, 1))); }));
  }
  double backward(EagerParameters& weights) {
    autograd::Tape tape(&weights);
    Context context;
    context.tape = &tape;
    const Variable loss = run(model, context);
    loss.backward();
    return loss.value.item();
  }
};

TEST(EagerParameters, GivesZeroedMemoryFromTheStreamAndTakesItBack) {
  MemoryPool pool("test", kMiB);
  const Stream stream{Device::cpu(), nullptr, &pool};
  const StreamScope scope(stream);
  Shared shared;
  {
    const EagerParameters weights(shared.model);
    EXPECT_GT(pool.used_bytes(), 0);
    EXPECT_EQ(values<float>(shared.a->value()), (std::vector<float>{0, 0}));
    EXPECT_THROW(EagerParameters(shared.model), Error) << "two owners of one storage";
    EXPECT_TRUE(shared.a->storage->resident());
  }
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_FALSE(shared.a->storage->resident());
}

TEST(EagerParameters, KeepsUsesApartAndSumsThemInBlockOrder) {
  Shared shared;
  EagerParameters weights(shared.model);
  set(*shared.a, {2, -1});
  set(*shared.b, {5, 7});
  EXPECT_FALSE(weights.gradient(0).defined());
  EXPECT_EQ(shared.backward(weights), 3 * 2 * 5 * 2 + 3 * 1 * 7 * 1);
  EXPECT_EQ(values<float>(weights.gradient(0, 0)), (std::vector<float>{3 * 5 * 2, -3 * 7}));
  EXPECT_EQ(values<float>(weights.gradient(0, 1)), (std::vector<float>{3 * 2 * 5, -3 * 7}));
  EXPECT_EQ(values<float>(weights.gradient(0)), (std::vector<float>{60, -42}));
  EXPECT_EQ(values<float>(weights.gradient(0, 0)), (std::vector<float>{30, -21})) << "the sum must not overwrite a part";
  EXPECT_EQ(values<float>(weights.gradient(1)), (std::vector<float>{12, 3}));
}

TEST(EagerParameters, AddsUpBackwardPassesUntilForgotten) {
  Shared shared;
  EagerParameters weights(shared.model);
  set(*shared.a, {1, 2});
  set(*shared.b, {1, 1});
  shared.backward(weights);
  const auto once = values<float>(weights.gradient(0));
  shared.backward(weights);
  EXPECT_EQ(values<float>(weights.gradient(0)), (std::vector<float>{2 * once[0], 2 * once[1]}));
  weights.forget();
  EXPECT_FALSE(weights.gradient(0).defined());
  shared.backward(weights);
  EXPECT_EQ(values<float>(weights.gradient(0)), once);
}

TEST(EagerParameters, RefusesAGradientNeverAskedFor) {
  Shared shared;
  EagerParameters weights(shared.model);
  EXPECT_THROW(weights.done(0, 0), Error);
  weights.target(0, 0, {2}, DType::f32);
  EXPECT_THROW(weights.target(0, 0, {2}, DType::f32), Error);
}

}  // namespace
}  // namespace spillway::nn::eager_test
