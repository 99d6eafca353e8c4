// The threaded driver: the same bits for any thread count, parts and gaps.
#include "optim/update.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "optim/norm.h"
#include "tests/optim/support_values.h"

namespace spillway::optim {
namespace {

using test::draw;
using test::same;
using test::Values;

template <class T>
struct Arrays {
  explicit Arrays(i64 n, u64 seed = 41) {
    std::mt19937_64 random(seed);
    const auto count = static_cast<size_t>(n);
    weight = draw<T>(count, Values::ordinary, random), m = draw<T>(count, Values::ordinary, random);
    v = draw<T>(count, Values::ordinary, random), gradient = draw<T>(count, Values::ordinary, random);
    for (T& x : v) x *= x;
  }
  AdamWRun<T> run() { return {weight, m, v, gradient}; }
  bool operator==(const Arrays& other) const { return same(weight, other.weight) && same(m, other.m) && same(v, other.v); }
  std::vector<T> weight, m, v, gradient;
};

template <class T>
AdamWScalars<T> scalars(double weight_decay = 0.1) {
  return make_adamw_scalars<T>({}, 1e-2, weight_decay, 4, 0.5);
}

template <class T>
void same_for_any_thread_count() {
  for (i64 n : {i64{0}, i64{1}, kTileElems - 1, 2 * kTileElems, 2 * kTileElems + 1, 9 * kTileElems + 77}) {
    Arrays<T> expected(n);
    adamw_update(std::span(expected.weight), std::span(expected.m), std::span(expected.v), std::span<const T>(expected.gradient),
                 scalars<T>(), Isa::scalar);
    for (int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      const Stream stream{Device::cpu(), &pool, &MemoryPool::heap()};
      const StreamScope scope(stream);
      Arrays<T> arrays(n);
      adamw_update_tiles(arrays.run(), scalars<T>());
      EXPECT_TRUE(arrays == expected) << n << " on " << threads;
    }
  }
}

TEST(AdamWTiles, SameBitsForAnyThreadCountF32) { same_for_any_thread_count<float>(); }
TEST(AdamWTiles, SameBitsForAnyThreadCountF64) { same_for_any_thread_count<double>(); }

TEST(AdamWTiles, PartsHaveTheirOwnScalarsAndGapsStay) {
  const i64 n = 5 * kTileElems + 100;
  // A part within a task, one over a task's limit, one over several, an empty one; gaps between, before and after.
  const std::vector<AdamWPart<float>> parts{{64, 128, scalars<float>(0.0)},
                                            {1000, 2 * kTileElems + 64, scalars<float>(0.1)},
                                            {2 * kTileElems + 64, 2 * kTileElems + 64, scalars<float>(9)},
                                            {2 * kTileElems + 128, n - 50, scalars<float>(0.3)}};
  Arrays<float> expected(n);
  for (const auto& part : parts) {
    for (i64 i = part.begin; i < part.end; ++i) {
      const auto at = static_cast<size_t>(i);
      adamw_update(std::span(expected.weight).subspan(at, 1), std::span(expected.m).subspan(at, 1), std::span(expected.v).subspan(at, 1),
                   std::span<const float>(expected.gradient).subspan(at, 1), part.scalars, Isa::scalar);
    }
  }
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    const Stream stream{Device::cpu(), &pool, &MemoryPool::heap()};
    const StreamScope scope(stream);
    Arrays<float> arrays(n);
    adamw_update_tiles(arrays.run(), std::span<const AdamWPart<float>>(parts));
    EXPECT_TRUE(arrays == expected) << threads;
  }
}

TEST(AdamWTiles, RefusesWhatDoesNotFit) {
  Arrays<float> arrays(100);
  const auto refused = [&](std::vector<AdamWPart<float>> parts) {
    EXPECT_THROW(adamw_update_tiles(arrays.run(), std::span<const AdamWPart<float>>(parts)), Error);
  };
  refused({{0, 101, scalars<float>()}});
  refused({{-1, 10, scalars<float>()}});
  refused({{0, 10, scalars<float>()}, {9, 20, scalars<float>()}});
  refused({{10, 5, scalars<float>()}});
  arrays.gradient.resize(99);
  refused({{0, 10, scalars<float>()}});
}

}  // namespace
}  // namespace spillway::optim
