// Checks that the cache of generation keeps the states of recurrent layers in both places where it can lie.
#include "nn/key_value_cache.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "device/memory_pool.h"
#include "tests/support/numbers.h"

namespace spillway::key_value_cache_test {
namespace {

using nn::KeyValueCache;

TEST(KeyValueCache, KeepsStatesFromPassToPass) {
  for (const auto lies : {KeyValueCache::Lies::here, KeyValueCache::Lies::elsewhere}) {
    KeyValueCache cache(Stream{.memory = &MemoryPool::heap()}, 2, 10, lies);
    const Shape shape{2, 3, 4};
    const Tensor one = test::random(shape, DType::f32, 1), other = test::random(shape, DType::f32, 2);
    EXPECT_FALSE(cache.state(5, 0, shape, DType::f32).defined()) << "at position 0";
    EXPECT_FALSE(cache.state(5, 1, shape, DType::f32).defined()) << "at position 0";
    cache.keep_state(5, 0, one, 4);
    cache.keep_state(5, 1, other, 4);
    cache.seek(4);
    EXPECT_TRUE(test::same_bits(cache.state(5, 0, shape, DType::f32), one));
    EXPECT_TRUE(test::same_bits(cache.state(5, 1, shape, DType::f32), other));
    cache.keep_state(5, 0, other, 1);
    cache.seek(5);
    EXPECT_TRUE(test::same_bits(cache.state(5, 0, shape, DType::f32), other));
    EXPECT_THROW(cache.state(5, 1, shape, DType::f32), Error) << "this state is that of position 4";
    cache.seek(0);
    EXPECT_FALSE(cache.state(5, 0, shape, DType::f32).defined());
  }
}

}  // namespace
}  // namespace spillway::key_value_cache_test
