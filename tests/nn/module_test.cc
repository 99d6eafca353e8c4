#include "nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/nn/support_blocks.h"

namespace spillway::nn::module_test {
namespace {

using test::block;
using test::weight;
using ::testing::HasSubstr;

std::string refusal(Sequential& model, std::vector<ParameterUse> uses) {
  const size_t blocks = model.blocks.size(), parameters = model.parameters.size();
  try {
    model.push(block(std::move(uses)));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bug);
    EXPECT_EQ(model.blocks.size(), blocks) << "a refused block must leave the model unchanged";
    EXPECT_EQ(model.parameters.size(), parameters);
    return error.what();
  }
  return "accepted";
}

TEST(Sequential, NumbersParametersInOrderOfFirstUse) {
  const auto table = weight("table", {3, 2}), a = weight("a"), b = weight("b");
  Sequential model;
  model.push(block({{table, 0}}));
  model.push(block({{b, 0}, {a, 0}}));
  model.push(block({{table, 1}}));
  EXPECT_EQ(table->id, 0u);
  EXPECT_EQ(b->id, 1u);
  EXPECT_EQ(a->id, 2u);
  EXPECT_EQ(model.parameters, (std::vector{table, b, a}));
  EXPECT_EQ(model.uses(0), 2);
  EXPECT_EQ(model.uses(1), 1);
  EXPECT_EQ(model.parameter_elems(), 10) << "a shared parameter counts once";
}

TEST(Sequential, RefusesUsesOutOfOrder) {
  const auto table = weight("table");
  Sequential model;
  EXPECT_THAT(refusal(model, {{table, 1}}), HasSubstr("expected use 0"));
  model.push(block({{table, 0}}));
  EXPECT_THAT(refusal(model, {{table, 0}}), HasSubstr("expected use 1"));
  EXPECT_THAT(refusal(model, {{table, 2}}), HasSubstr("expected use 1"));
  model.push(block({{table, 1}}));
  EXPECT_THAT(refusal(model, {{table, 1}}), HasSubstr("expected use 2"));
}

TEST(Sequential, RefusesOneParameterTwiceInABlockAndNamesTwice) {
  const auto a = weight("a");
  Sequential model;
  EXPECT_THAT(refusal(model, {{a, 0}, {a, 1}}), HasSubstr("got it twice"));
  EXPECT_THAT(refusal(model, {{a, 0}, {weight("a"), 0}}), HasSubstr("parameter a: expected a unique name"));
  model.push(block({{a, 0}}));
  EXPECT_THAT(refusal(model, {{weight("a"), 0}}), HasSubstr("parameter a: expected a unique name"));
  EXPECT_THAT(refusal(model, {{nullptr, 0}}), HasSubstr("null"));
}

TEST(Context, UsesAParameterAsALeafOrAConstant) {
  const auto a = weight("a");
  a->id = 3;
  Context context;
  EXPECT_FALSE(context.use(*a).needs_gradient());
  autograd::Tape tape;
  context.tape = &tape;
  const Variable first = context.use(*a, 0), again = context.use(*a, 0), other = context.use(*a, 1);
  EXPECT_TRUE(first.needs_gradient());
  EXPECT_EQ(first.slot, again.slot);
  EXPECT_NE(first.slot, other.slot);
  EXPECT_EQ(first.value.storage(), a->storage);
}

}  // namespace
}  // namespace spillway::nn::module_test
