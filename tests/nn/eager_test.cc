#include "nn/eager.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "device/memory_pool.h"
#include "ops/elementwise/elementwise.h"
#include "ops/rows/reduce.h"
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

// Computes y = 3 a in the first block and z = sum(y * b * a) in the second. Both blocks use the parameter a.
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

TEST(EagerParameters, ScalesOneParametersGradient) {
  Shared shared;
  EagerParameters weights(shared.model);
  set(*shared.a, {1, 2});
  set(*shared.b, {1, 1});
  shared.backward(weights);
  const auto a = values<float>(weights.gradient(0)), b = values<float>(weights.gradient(1));
  weights.scale(0, 0.5);
  EXPECT_EQ(values<float>(weights.gradient(0)), (std::vector<float>{a[0] / 2, a[1] / 2}));
  EXPECT_EQ(values<float>(weights.gradient(1)), b);
}

TEST(EagerParameters, ForgetsOneParametersGradient) {
  Shared shared;
  EagerParameters weights(shared.model);
  shared.backward(weights);
  weights.forget(0);
  EXPECT_FALSE(weights.gradient(0).defined());
  EXPECT_TRUE(weights.gradient(1).defined());
}

// A backward may throw, for instance because it is refused memory. Once its
// gradients are forgotten, the parameters are as they were before the pass.
TEST(EagerParameters, AreAsBeforeAfterABackwardThatThrew) {
  Shared shared;
  EagerParameters weights(shared.model);
  set(*shared.a, {1, 2}), set(*shared.b, {4, 5});
  const auto fails = [&] {
    autograd::Tape tape(&weights);
    const Variable a = tape.parameter(shared.a->value(), shared.a->id);
    autograd::Recorder recorder({a});
    const Variable y = recorder.output(ops::scale(a, 1).value, [](autograd::Backward& b) {
      static_cast<void>(b.target(0));
      throw Error(ErrorCode::refused, "no memory");
    });
    ops::sum(y).backward();
  };
  for (int all = 0; all < 2; ++all) {
    EXPECT_THROW(fails(), Error);
    all ? weights.forget() : weights.forget(shared.a->id);
    shared.backward(weights);
    EXPECT_EQ(values<float>(weights.gradient(shared.b->id)), (std::vector<float>{3, 12}));
    weights.forget();
  }
}

TEST(EagerParameters, HookSeesAndChangesEachFinishedGradient) {
  Shared shared;
  EagerParameters weights(shared.model);
  set(*shared.a, {2, -1});
  set(*shared.b, {5, 7});
  std::vector<std::string> seen;
  weights.on_gradient([&](const Parameter& parameter, const Tensor& gradient) {
    seen.push_back(parameter.name);
    if (&parameter == shared.b.get()) std::ranges::fill(gradient.span<float>(), 9.f);
  });
  shared.backward(weights);
  EXPECT_EQ(std::ranges::count(seen, "a"), 2) << "once for each use";
  EXPECT_EQ(std::ranges::count(seen, "b"), 1);
  EXPECT_EQ(values<float>(weights.gradient(1)), (std::vector<float>{9, 9}));
  weights.on_gradient({});
  shared.backward(weights);
  EXPECT_EQ(seen.size(), 3u);
}

TEST(EagerParameters, OfAListThatIsInNoModel) {
  const auto a = weight("a"), b = weight("b");
  EagerParameters weights({a, b});
  EXPECT_EQ(b->id, 1u);
  EXPECT_EQ(weights.parameter("b"), b);
  EXPECT_THROW(weights.parameter("c"), Error);
  set(*b, {2, 3});
  autograd::Tape tape(&weights);
  const Variable w = tape.parameter(b->value(), b->id);
  ops::sum(ops::mul(w, w)).backward();
  EXPECT_EQ(values<float>(weights.gradient(b->id)), (std::vector<float>{4, 6}));
  EXPECT_THROW(EagerParameters({b}), Error) << "it has memory, and the id of another list";
}

TEST(EagerParameters, AdoptsMemoryThatIsAnothersAndOutlivesThem) {
  Shared shared;
  const Tensor mine = tensor_of(std::span<const float>(std::vector<float>{5, 6}), {2});
  {
    EagerParameters weights(shared.model);
    set(*shared.b, {1, 1});
    weights.adopt(0, mine);
    EXPECT_EQ(shared.a->value().raw(), mine.raw());
    EXPECT_EQ(weights.memory(0).raw(), mine.raw());
    EXPECT_EQ(shared.backward(weights), 3 * (5 * 5 + 6 * 6));
    EXPECT_EQ(values<float>(weights.gradient(0)), (std::vector<float>{30, 36}));
    for (const Tensor& wrong : {zeros({3}, DType::f32), zeros({2}, DType::f64), zeros({2, 2}, DType::f32).slice(1, 0, 1)})
      EXPECT_THROW(weights.adopt(0, wrong), Error);
    EXPECT_EQ(shared.a->value().raw(), mine.raw());
  }
  EXPECT_EQ(values<float>(mine), (std::vector<float>{5, 6}));
  EXPECT_FALSE(shared.a->storage->resident());
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
