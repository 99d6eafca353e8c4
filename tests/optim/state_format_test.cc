#include "optim/state_format.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/optim/support_tile.h"

namespace spillway::optim::state_format_test {
namespace {

TEST(StateFormat, BytesAParameter) {
  const auto bytes = [](const StateFormat& f) { return f.weight_tile_bytes() + f.state_tile_bytes(); };
  EXPECT_EQ(bytes(plain_format(DType::f32)), 12 * kTileElems);
  EXPECT_EQ(bytes(plain_format(DType::f64)), 24 * kTileElems);
  EXPECT_EQ(bytes(plain_format(DType::bf16)), 14 * kTileElems);
  EXPECT_EQ(bytes(plain_format(DType::f16)), 14 * kTileElems);
  EXPECT_EQ(bytes({DType::bf16, Master::split}), 12 * kTileElems);
  EXPECT_EQ(bytes({DType::bf16, Master::split, Moments::bf16}), 8 * kTileElems);
  EXPECT_EQ(bytes({DType::bf16, Master::split, Moments::int8}), 6 * kTileElems + 4096);
  EXPECT_EQ(plain_format(DType::bf16).gradient_tile_bytes(), 4 * kTileElems);
}

TEST(StateFormat, ColumnsLieAtPages) {
  for (const StateFormat& f : test::all_formats()) {
    f.check();
    const i64 limits[] = {0, f.m_begin_bytes(), f.v_begin_bytes(), f.scales_begin_bytes(), f.state_tile_bytes()};
    for (size_t i = 0; i < 4; ++i) EXPECT_LE(limits[i], limits[i + 1]) << test::name(f);
    for (i64 limit : limits) EXPECT_EQ(limit % 4096, 0) << test::name(f);
    EXPECT_EQ(f.state_tile_bytes() > f.scales_begin_bytes(), f.moments == Moments::int8);
  }
}

TEST(StateFormat, RefusesWhatDoesNotExist) {
  const auto refused = [](const StateFormat& f) {
    try {
      f.check();
      ADD_FAILURE() << test::name(f);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
    }
  };
  refused({DType::int32});
  refused({DType::f16, Master::split});
  refused({DType::f32, Master::split});
  refused({DType::f64, Master::fp32, Moments::fp32, DType::f32});
  refused({DType::f64, Master::fp32, Moments::bf16, DType::f64});
  refused({DType::f32, Master::fp32, Moments::fp32, DType::f64});
  refused({DType::bf16, Master::fp32, Moments::fp32, DType::f16});
}

}  // namespace
}  // namespace spillway::optim::state_format_test
