#include "tensor/create.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "device/arena.h"

namespace spillway::create_test {
namespace {

using Numbers = std::vector<double>;

const std::vector<DType> kTypes{DType::f32, DType::f64, DType::bf16, DType::f16, DType::int32, DType::int64, DType::uint8, DType::boolean};

TEST(CreateTensor, HoldsTheValuesInEveryType) {
  for (const DType dtype : kTypes) {
    EXPECT_EQ(values_of(ones({2, 2}, dtype)), (Numbers{1, 1, 1, 1})) << to_string(dtype);
    EXPECT_EQ(values_of(tensor_of({1, 0, 0, 1}, {2, 2}, dtype)), (Numbers{1, 0, 0, 1})) << to_string(dtype);
    EXPECT_EQ(values_of(full({}, 0, dtype)), Numbers{0}) << to_string(dtype);
    EXPECT_EQ(values_of(full({3, 0}, 1, dtype)), Numbers{}) << to_string(dtype);
  }
  EXPECT_EQ(values_of(full({1}, -3, DType::int64)), Numbers{-3});
  EXPECT_EQ(values_of(full({1}, 0.1)), Numbers{0.1f}) << "rounded once";
  EXPECT_EQ(values_of(full({1}, 1 + 0x1p-8 + 0x1p-30, DType::bf16)), Numbers{1}) << "of its f32, which is a tie";
}

TEST(CreateTensor, CountsAsPythonDoes) {
  EXPECT_EQ(values_of(arange(0, 4)), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(values_of(arange(1, 2, 0.25, DType::f64)), (Numbers{1, 1.25, 1.5, 1.75}));
  EXPECT_EQ(values_of(arange(3, 0, -2, DType::int32)), (Numbers{3, 1}));
  EXPECT_EQ(values_of(arange(3, 0)), Numbers{});
}

TEST(CreateTensor, DrawsByKeyAndPlaceAlone) {
  const RandomKey key{7};
  const Tensor x = randn({3, 4}, key, DType::f64), u = uniform({3, 4}, key, -1, 3, DType::f64);
  for (u64 i = 0; i < 12; ++i) {
    EXPECT_EQ(values_of(x)[i], normal(key, 0, i));
    EXPECT_EQ(values_of(u)[i], -1 + 4 * uniform(key, 0, i));
  }
  EXPECT_EQ(values_of(randn({12}, key, DType::f64)), values_of(x));
  EXPECT_NE(values_of(randn({3, 4}, key.derive("other"), DType::f64)), values_of(x));
}

TEST(CreateTensor, RefusesWhatATypeCannotHold) {
  EXPECT_THROW(full({1}, 0.5, DType::int32), Error);
  EXPECT_THROW(full({1}, 2, DType::boolean), Error);
  EXPECT_THROW(full({1}, 256, DType::uint8), Error);
  EXPECT_THROW(full({1}, 0x1p63, DType::int64), Error);
  EXPECT_THROW(full({1}, NAN, DType::int64), Error);
  EXPECT_THROW(arange(0, 1, 0), Error);
  try {
    tensor_of({1, 2, 3}, {2, 2});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[tensor_of] expected 4 values for the shape [2, 2], got 3");
  }
}

TEST(CreateTensor, TakesNoMemoryOnTheMetaDevice) {
  Arena arena;
  const Stream stream{Device::meta(), nullptr, &arena};
  const StreamScope scope(stream);
  const Tensor t = randn({100, 100}, {1});
  EXPECT_EQ(t.raw(), nullptr);
  EXPECT_EQ(t.shape(), Shape({100, 100}));
  EXPECT_EQ(values_of(t), Numbers{});
}

TEST(CreateTensor, ReadsViewsInTheirOwnOrder) {
  const Tensor t = arange(0, 24).reshape({4, 6});
  EXPECT_EQ(values_of(t.slice(0, 1, 3).slice(1, 2, 4)), (Numbers{8, 9, 14, 15}));
  EXPECT_EQ(values_of(t.transpose(0, 1).slice(0, 5, 6)), (Numbers{5, 11, 17, 23}));
}

}  // namespace
}  // namespace spillway::create_test
