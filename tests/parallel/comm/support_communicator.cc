#include "tests/parallel/comm/support_communicator.h"

#include <cstring>
#include <exception>

namespace spillway::parallel::test {
namespace {

u64 mixed(u64 x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Returns a number for element i. Magnitudes differ so much that the order of additions is visible in the sum.
template <class T>
T number(u64 i, int rank, u64 seed) {
  const u64 bits = mixed(mixed(seed * 1000 + static_cast<u64>(rank)) + i);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(bits);  // sums of integers wrap around
  const double unit = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
  return static_cast<T>(unit * (bits % 3 == 0 ? 1e4 : 1.0));
}

template <class F>
void for_type(DType dtype, F f) {
  if (dtype == DType::f32) return f(float{});
  if (dtype == DType::f64) return f(double{});
  f(i64{});
}

template <class T>
T joined(Reduction reduction, T a, T b) {
  if (reduction == Reduction::max) return b > a ? b : a;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b));
  return a + b;
}

template <class T>
T reduced(Reduction reduction, u64 i, int ranks, u64 seed) {
  T total{};
  for (int begin = 0; begin < ranks; begin += 8) {
    T group = number<T>(i, begin, seed);
    for (int r = begin + 1; r < std::min(ranks, begin + 8); ++r) group = joined(reduction, group, number<T>(i, r, seed));
    total = begin == 0 ? group : joined(reduction, total, group);
  }
  return total;
}

template <class F>
std::vector<std::byte> filled(DType dtype, i64 elems, F element) {
  std::vector<std::byte> bytes(static_cast<size_t>(elems * size_of(dtype)));
  for_type(dtype, [&]<class T>(T) {
    for (i64 i = 0; i < elems; ++i) {
      const T value = element(T{}, static_cast<u64>(i));
      std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

}  // namespace

void run_rank(int rank, std::unique_ptr<Communicator> end, const Body& body) {
  SCOPED_TRACE("rank " + std::to_string(rank));
  try {
    body(end);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
  }
}

std::vector<std::byte> numbers(DType dtype, i64 elems, int rank, u64 seed) {
  return filled(dtype, elems, [&]<class T>(T, u64 i) { return number<T>(i, rank, seed); });
}

std::vector<std::byte> reduced_numbers(DType dtype, Reduction reduction, i64 elems, int ranks, u64 seed) {
  return filled(dtype, elems, [&]<class T>(T, u64 i) { return reduced<T>(reduction, i, ranks, seed); });
}

Parts uneven_parts(int ranks, i64 whole) {
  i64 weights = 0;
  const auto weight = [&](int r) -> i64 { return ranks > 1 && r % 4 == 1 ? 0 : 1 + r * 3 % 5; };
  for (int r = 0; r < ranks; ++r) weights += weight(r);
  Parts parts{0};
  i64 before = 0;
  for (int r = 0; r < ranks; ++r) parts.push_back(whole * (before += weight(r)) / weights);
  return parts;
}

}  // namespace spillway::parallel::test
