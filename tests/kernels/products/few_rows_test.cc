// Tests matrix products with few rows, which have a separate algorithm. Each element is bitwise equal to that of a product with many rows.
#include <hwy/targets.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/products/gemm_few_rows.h"
#include "tests/kernels/products/support_matmul.h"

namespace spillway::few_rows_test {
namespace {

using kernels::Store;
using kernels::gemm::Operand;
using test::element;
using test::Extents;
using test::Types;
constexpr Types kTypes[] = {{DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}};

// Products of kMany rows take the general algorithm. kFirst is the first of the rows that are compared.
constexpr i64 kMany = 64, kFirst = 7;

void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, Store store) {
  const i64 bytes = kernels::matmul_workspace_bytes(out.size(0), out.size(1), a.size(1), a.dtype(), out.dtype());
  kernels::matmul(a, b, bias, out, empty({bytes}, DType::uint8), store);
}

bool is_taken(i64 m, const Tensor& b) {
  const auto taken = [&]<class T>(const T* data) {
    return kernels::gemm::takes_few_rows(m, b.size(1), Operand<T>{data, b.stride(1), b.stride(0)});
  };
  return b.dtype() == DType::f32 ? taken(b.data<float>()) : taken(b.data<BFloat16>());
}

Tensor view(i64 rows, i64 columns, bool transposed, bool padded, DType dtype, u64 seed) {
  return test::view_in(test::whole_of(rows, columns, transposed, padded, dtype, seed), rows, columns, transposed);
}

i64 different(const Tensor& few, const Tensor& many) {
  i64 count = 0;
  for (i64 i = 0; i < few.size(0); ++i) {
    for (i64 j = 0; j < few.size(1); ++j) {
      count += std::bit_cast<u64>(element(few, i, j)) != std::bit_cast<u64>(element(many, kFirst + i, j));
    }
  }
  return count;
}

struct Options {
  bool a_transposed, b_transposed, padded, bias, add;
};

void expect_the_bits_of_many(const Extents& e, const Types& types, const Options& options) {
  SCOPED_TRACE(test::to_string(e, types) + (options.b_transposed ? " transposed" : "") + (options.padded ? " padded" : ""));
  const Tensor a = view(kMany, e.k, options.a_transposed, options.padded, types.in, 1);
  const Tensor b = view(e.k, e.n, options.b_transposed, options.padded, types.in, 2);
  const Tensor bias = options.bias ? test::random({e.n}, types.in, 3) : Tensor();
  const Tensor many = view(kMany, e.n, false, options.padded, types.out, 4);
  const Tensor few = view(kMany, e.n, false, options.padded, types.out, 4).slice(0, kFirst, kFirst + e.m);
  const Store store = options.add && !is_half(types.out) ? Store::add : Store::replace;
  multiply(a, b, bias, many, store);
  multiply(a.slice(0, kFirst, kFirst + e.m), b, bias, few, store);
  EXPECT_EQ(different(few, many), 0);
}

void expect_the_bits_of_many(const Types& types) {
  // Columns 32 to 65 are near the size of a strip. 300 and 515 need several strips, none of them whole. K = 257, 1025, 2053 spans chunks.
  const Extents all[] = {{1, 32, 1},  {2, 33, 2},   {3, 47, 3},   {4, 49, 5},    {1, 64, 8},    {2, 65, 17},
                         {1, 515, 9}, {4, 100, 31}, {3, 300, 64}, {1, 131, 257}, {4, 96, 1025}, {2, 300, 2053}};
  for (const Extents& e : all) {
    for (int layout = 0; layout < 8; ++layout) {
      const bool odd = (e.k + layout) % 2 != 0;
      expect_the_bits_of_many(e, types, {(layout & 1) != 0, (layout & 2) != 0, (layout & 4) != 0, odd, !odd});
    }
  }
}

TEST(FewRows, HaveTheBitsOfManyByEveryInstructionSet) {
  for (i64 targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const i64 target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const Types& types : kTypes) expect_the_bits_of_many(types);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(FewRows, HaveTheBitsOfManyByEveryWayToMultiplyPairs) {
  for (const kernels::gemm::Pairs pairs : kernels::gemm::available_pairs()) {
    kernels::gemm::pin_pairs_for_test(pairs);
    SCOPED_TRACE(static_cast<int>(pairs));
    for (const Types& types : {kTypes[1], kTypes[2]}) expect_the_bits_of_many(types);
  }
  kernels::gemm::pin_pairs_for_test(kernels::gemm::Pairs::best);
}

TEST(FewRows, HaveTheBitsOfManyOnSeveralThreads) {
  test::with_threads(3, [] {
    for (const Types& types : kTypes) {
      for (const bool transposed : {false, true}) expect_the_bits_of_many({1, 5001, 300}, types, {false, transposed, false, true, true});
    }
  });
}

// Products of denormals, infinities and zeros of both signs would reveal an addition too many or too few.
TEST(FewRows, HaveTheBitsOfManyOfSpecialNumbers) {
  const float special[] = {0.0F, -0.0F, 0x1p-149F, -0x1p-149F, 0x1p-126F, -0x1p-100F, 1.0F, -1.0F, INFINITY};
  for (const Types& types : kTypes) {
    for (i64 k = 1; k <= 9; ++k) {
      const Tensor wide_a = empty({kMany, k}, DType::f32), wide_b = empty({k, 50}, DType::f32);
      for (i64 i = 0; i < wide_a.elems(); ++i) wide_a.data<float>()[i] = special[i * 7 % 8];
      for (i64 i = 0; i < wide_b.elems(); ++i) wide_b.data<float>()[i] = special[i * 5 % 9];
      const Tensor a = test::as(types.in, wide_a), rows = test::as(types.in, wide_b), columns = empty({50, k}, types.in);
      const i64 bytes = size_of(types.in);
      for (i64 i = 0; i < 50 * k; ++i)
        std::memcpy(columns.raw() + i * bytes, rows.raw() + (i % k * 50 + i / k) * bytes, static_cast<size_t>(bytes));
      const Tensor many = empty({kMany, 50}, types.out), few = empty({4, 50}, types.out);
      multiply(a, rows, {}, many, Store::replace);
      for (const Tensor& b : {rows, columns.transpose(0, 1)}) {
        multiply(a.slice(0, kFirst, kFirst + 4), b, {}, few, Store::replace);
        EXPECT_EQ(different(few, many), 0) << k;
      }
    }
  }
}

// Shows that the comparison would notice another order of additions, and that few and many rows really take different algorithms.
TEST(FewRows, AnotherOrderWouldBeSeen) {
  for (const Types& types : {kTypes[0], kTypes[1]}) {
    const Tensor a = test::random({kMany, 700}, types.in, 1), b = test::random({700, 64}, types.in, 2);
    const Tensor first_a = a.slice(1, 0, 699), first_b = b.slice(0, 0, 699), last_a = a.slice(1, 1, 700), last_b = b.slice(0, 1, 700);
    const Tensor many = zeros({kMany, 64}, types.out), few = zeros({1, 64}, types.out);
    // `many` adds a single product last, and `few` adds a single product first.
    multiply(first_a, first_b, {}, many, Store::add);
    multiply(a.slice(1, 699, 700), b.slice(0, 699, 700), {}, many, Store::add);
    multiply(a.slice(0, kFirst, kFirst + 1).slice(1, 0, 1), b.slice(0, 0, 1), {}, few, Store::add);
    multiply(last_a.slice(0, kFirst, kFirst + 1), last_b, {}, few, Store::add);
    EXPECT_GT(different(few, many), 0);
  }
  for (const bool transposed : {false, true}) {
    const Tensor b = view(9, 40, transposed, true, DType::f32, 1), pairs = view(9, 40, transposed, true, DType::bf16, 1);
    EXPECT_TRUE(is_taken(1, b) && is_taken(4, b));
    EXPECT_TRUE(is_taken(4, pairs));
    EXPECT_FALSE(is_taken(kMany, b) || is_taken(5, b)) << "many";
    EXPECT_FALSE(is_taken(1, b.slice(1, 0, 31))) << "too few columns for whole vectors";
  }
}

// Allocates memory that ends right before a page that may not be read.
class BeforeAWall {
 public:
  explicit BeforeAWall(i64 bytes) : bytes_(bytes), readable_(round_up(bytes, ::sysconf(_SC_PAGESIZE))) {
    const auto whole = static_cast<size_t>(readable_ + ::sysconf(_SC_PAGESIZE));
    begin_ = static_cast<u8*>(::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(::mprotect(begin_ + readable_, whole - static_cast<size_t>(readable_), PROT_NONE), 0);
  }
  ~BeforeAWall() { ::munmap(begin_, static_cast<size_t>(readable_ + ::sysconf(_SC_PAGESIZE))); }
  BeforeAWall(const BeforeAWall&) = delete;
  BeforeAWall& operator=(const BeforeAWall&) = delete;
  void* data() const { return begin_ + readable_ - bytes_; }

 private:
  i64 bytes_, readable_;
  u8* begin_;
};

template <class T>
void expect_nothing_read_beyond(i64 m, i64 n, i64 k, bool transposed) {
  const BeforeAWall wall(n * k * static_cast<i64>(sizeof(T)));
  T* b = static_cast<T*>(wall.data());
  std::fill_n(b, n * k, narrow<T>(1.0F));
  const std::vector<T> a(static_cast<size_t>(m * k), narrow<T>(1.0F));
  std::vector<u32> words(static_cast<size_t>(kernels::gemm::few_rows_words<T>(m, k)));
  kernels::gemm::pack_words<T, T>({a.data(), k, 1}, m, k, words.data());
  std::vector<float> c(static_cast<size_t>(m * n));
  const Operand<T> columns{b, transposed ? k : 1, transposed ? 1 : n};
  const kernels::gemm::FewRows<T, T, float> product{m, n, k, kernels::gemm::kDepth<T>, words.data(), columns, {c.data(), n}};
  kernels::gemm::multiply_few_rows(product, 0, n);
  EXPECT_EQ(std::count(c.begin(), c.end(), static_cast<float>(k)), m * n) << m << " x " << n << " x " << k;
}

TEST(FewRows, ReadNothingBeyondTheLastRow) {
  for (i64 m = 1; m <= 4; ++m) {
    for (const i64 n : {32, 33, 63, 300}) {
      for (const i64 k : {1, 2, 3, 7, 8, 9, 15, 300}) {
        for (const bool transposed : {false, true}) {
          expect_nothing_read_beyond<float>(m, n, k, transposed);
          expect_nothing_read_beyond<BFloat16>(m, n, k, transposed);
        }
      }
    }
  }
}

}  // namespace
}  // namespace spillway::few_rows_test
