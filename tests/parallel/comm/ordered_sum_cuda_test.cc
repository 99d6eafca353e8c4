// Tests that the sum over ranks on a GPU equals the CPU's to the bit, for every number of ranks and every place of the result among them.
#include "parallel/comm/ordered_sum_gpu.h"

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "device/transfer.h"
#include "tests/support/gpu.h"

namespace spillway::test::ordered_sum_cuda_test {
namespace {

class OrderedSumOnGpu : public GpuTest, public testing::WithParamInterface<int> {};

// Returns numbers whose magnitudes differ widely, so that another order of additions would give a different sum.
template <class T>
std::vector<std::vector<T>> numbers(int ranks, i64 elems) {
  std::vector<std::vector<T>> all(static_cast<size_t>(ranks), std::vector<T>(static_cast<size_t>(elems)));
  for (size_t r = 0; r < all.size(); ++r) {
    for (size_t i = 0; i < all[r].size(); ++i) {
      const double u = uniform(RandomKey{5}, r, i), size = uniform(RandomKey{6}, r, i);
      all[r][i] = static_cast<T>(std::ldexp(u - 0.5, static_cast<int>(40 * size) - 20));
    }
  }
  return all;
}

template <class T>
void expect_sum(Gpu& gpu, int ranks, int me) {
  constexpr i64 kElems = 1000, kStride = 1024;
  constexpr i64 kBytes = kElems * static_cast<i64>(sizeof(T)), kStrideBytes = kStride * static_cast<i64>(sizeof(T));
  const auto all = numbers<T>(ranks, kElems);
  std::vector<const T*> at;
  for (const auto& one : all) at.push_back(one.data());
  std::vector<T> want(kElems), got(kElems);
  parallel::ordered_sum(std::span<const T* const>(at), want.data(), 0, kElems);
  const Allocation others = gpu.pool().allocate(ranks * kStrideBytes, "test"), own = gpu.pool().allocate(kBytes, "test");
  const auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(const_cast<T*>(values.data())); };
  gpu.run([&] {
    for (int r = 0; r < ranks; ++r)
      transfer(r == me ? own.data() : others.data() + r * kStrideBytes, bytes(all[static_cast<size_t>(r)]), kBytes);
    const DType dtype = sizeof(T) == 4 ? DType::f32 : DType::f64;
    parallel::ordered_sum_on_gpu(own.data(), others.data(), kStrideBytes, me, ranks, dtype, kBytes);
    transfer(bytes(got), own.data(), kBytes);
  });
  EXPECT_EQ(std::memcmp(got.data(), want.data(), kBytes), 0) << ranks << " ranks, of rank " << me;
}

TEST_P(OrderedSumOnGpu, IsTheCpusToTheBit) {
  const int ranks = GetParam();
  for (const int me : {0, ranks / 2, ranks - 1}) {
    expect_sum<float>(gpu(), ranks, me);
    expect_sum<double>(gpu(), ranks, me);
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, OrderedSumOnGpu, testing::Values(1, 2, 3, 8, 9, 17, 24));

}  // namespace
}  // namespace spillway::test::ordered_sum_cuda_test
