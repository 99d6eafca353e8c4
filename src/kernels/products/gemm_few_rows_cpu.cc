#include "kernels/products/gemm_few_rows.h"

#include "kernels/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/products/gemm_few_rows_cpu.cc"
#include <hwy/foreach_target.h>
// hwy/highway.h must follow hwy/foreach_target.h, which compiles this file once for each instruction set.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/products/gemm_few_rows_inl.h"
#include "kernels/products/gemm_few_rows_tiles_inl.h"
#include "kernels/storage_inl.h"

HWY_BEFORE_NAMESPACE();
namespace spillway::kernels::gemm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::load;
using kernels::HWY_NAMESPACE::store;

HWY_INLINE V broadcast(const u32* word) { return hn::BitCast(Floats(), hn::Set(Words(), *word)); }
HWY_INLINE V even_of(V pairs) { return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::BitCast(Words(), pairs))); }
HWY_INLINE V odd_of(V pairs) { return hn::BitCast(Floats(), hn::And(hn::BitCast(Words(), pairs), hn::Set(Words(), 0xffff0000u))); }

// The structs below are ways to multiply words of A with words of B. P is the type of A's words. row() loads the
// word of one row of A; some ways also need that row's next word, which lies kRows further. add() multiplies the
// loaded word with a vector of B's words and adds the products to the sums. Whole multiplies f32 words.
struct Whole {
  using P = float;
  using Row = V;
  template <int kRows>
  static HWY_INLINE Row row(const u32* a) {
    return broadcast(a);
  }
  static HWY_INLINE V add(Row row, V column, V sum) { return hn::MulAdd(row, column, sum); }
};
struct TwoRows {
  V even, odd;
};
// Multiplies bf16 pairs of B with f32 words of A, two for each pair.
struct Apart {
  using P = float;
  using Row = TwoRows;
  template <int kRows>
  static HWY_INLINE Row row(const u32* a) {
    return {broadcast(a), broadcast(a + kRows)};
  }
  static HWY_INLINE V add(const Row& row, V column, V sum) {
    return hn::MulAdd(row.odd, odd_of(column), hn::MulAdd(row.even, even_of(column), sum));
  }
};
// Multiplies bf16 pairs of B with bf16 pairs of A. Both are widened to f32.
struct Widened {
  using P = BFloat16;
  using Row = TwoRows;
  template <int kRows>
  static HWY_INLINE Row row(const u32* a) {
    return {even_of(broadcast(a)), odd_of(broadcast(a))};
  }
  static HWY_INLINE V add(const Row& row, V column, V sum) { return Apart::add(row, column, sum); }
};
#if HWY_TARGET == HWY_AVX3
// Multiplies bf16 pairs with VDPBF16PS, an instruction that this Highway target lacks. The instruction is written
// as inline assembly, because a function that is compiled for another instruction set would not be inlined.
struct Dots {
  using P = BFloat16;
  using Row = V;
  template <int kRows>
  static HWY_INLINE Row row(const u32* a) {
    return broadcast(a);
  }
  static HWY_INLINE V add(Row row, V column, V sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(row.raw), "v"(column.raw));
    return sum;
  }
};
#endif

template <int kRows, int kVectors>
HWY_INLINE void clear(V (&sum)[kRows][kVectors]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(Floats());
  }
}

// Multiplies one word of each row of A with kVectors vectors of B's words, and adds the products to the sums.
template <class By, int kRows, int kVectors>
HWY_INLINE void add_words(const u32* a, const V (&column)[kVectors], V (&sum)[kRows][kVectors]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const typename By::Row row = By::template row<kRows>(a + r);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = By::add(row, column[v], sum[r][v]);
  }
}

// Loads sixteen bytes of one column of B: four words.
HWY_INLINE hn::Vec<hn::Full128<float>> block(const float* from) { return hn::LoadU(hn::Full128<float>(), from); }
HWY_INLINE hn::Vec<hn::Full128<float>> block(const BFloat16* from) {
  return hn::BitCast(hn::Full128<float>(), hn::LoadU(hn::Full128<u16>(), reinterpret_cast<const u16*>(from)));
}
// Loads sixteen bytes of each of several columns, which are `stride` elements apart, into the 128-bit blocks of one vector.
template <class D, class T>
HWY_INLINE hn::Vec<D> blocks(D d, const T* from, i64 stride) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return block(from);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, blocks(half, from + static_cast<i64>(hn::MaxLanes(half)) / 4 * stride, stride), blocks(half, from, stride));
  }
}

// Loads four words of each of kLanes columns and transposes them: word[i] gets word i of every column.
template <class T>
HWY_INLINE void load_transposed(const T* from, i64 stride, V (&word)[4]) {
  const Floats d;
  const hn::Repartition<double, Floats> dd;
  const V c0 = blocks(d, from, 4 * stride), c1 = blocks(d, from + stride, 4 * stride);
  const V c2 = blocks(d, from + 2 * stride, 4 * stride), c3 = blocks(d, from + 3 * stride, 4 * stride);
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, c0, c1)), high01 = hn::BitCast(dd, hn::InterleaveUpper(d, c0, c1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, c2, c3)), high23 = hn::BitCast(dd, hn::InterleaveUpper(d, c2, c3));
  word[0] = hn::BitCast(d, hn::InterleaveLower(dd, low01, low23));
  word[1] = hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23));
  word[2] = hn::BitCast(d, hn::InterleaveLower(dd, high01, high23));
  word[3] = hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23));
}

// Adds the products of four words of k, for kVectors vectors of columns
// whose k are contiguous. Only the first `words` of the four words exist.
template <class By, int kRows, int kVectors, class T>
HWY_INLINE void add_block(int words, const u32* a, const T* from, i64 stride, V (&sum)[kRows][kVectors]) {
  V word[kVectors][4];
#pragma GCC unroll 3
  for (int v = 0; v < kVectors; ++v) load_transposed(from + v * kLanes * stride, stride, word[v]);
#pragma GCC unroll 4
  for (int w = 0; w < 4; ++w) {
    if (w >= words) break;
    V column[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) column[v] = word[v][w];
    add_words<By>(a + w * kRows * kInWord<T> / kInWord<typename By::P>, column, sum);
  }
}

// Computes one chunk of the sums for kLanes columns of B whose k are contiguous, and writes it to to[kRows][kLanes].
template <class By, int kRows, class T>
HWY_ATTR void chunk_transposed(const u32* a, const Operand<T>& b, i64 k, float* to) {
  constexpr i64 kStep = 4 * kInWord<T>;
  V sum[kRows][1];
  clear(sum);
  const i64 whole = k / kStep * kStep, stride = b.outer_stride;
  for (i64 p = 0; p < whole; p += kStep) {
    add_block<By>(4, a, b.data + p, stride, sum);
    a += kStep / kInWord<typename By::P> * kRows;
  }
  if (whole < k) {
    T rest[kLanes * kStep] = {};
    for (i64 j = 0; j < kLanes; ++j) {
      std::memcpy(static_cast<void*>(rest + j * kStep), b.data + j * stride + whole, static_cast<size_t>(k - whole) * sizeof(T));
    }
    add_block<By>(static_cast<int>(ceil_div(k - whole, kInWord<T>)), a, rest, kStep, sum);
  }
  for (int r = 0; r < kRows; ++r) hn::StoreU(sum[r][0], Floats(), to + r * kLanes);
}

// Adds the products of kWords words of k to the sums to[kRows][columns], for
// columns that are contiguous in memory, one cache line of columns at a time.
template <class By, int kRows, int kWords, class T>
HWY_INLINE void add_words_of_rows(const u32* a, const T* from, i64 k_stride, bool both, i64 columns, float* to) {
  using P = typename By::P;
  constexpr i64 kInOne = kInWord<P>;
  typename By::Row row[kWords][kRows];
#pragma GCC unroll 8
  for (int w = 0; w < kWords; ++w) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) row[w][r] = By::template row<kRows>(a + w * kRows + r);
  }
  for (i64 line = 0; line < columns; line += kLine<T>) {
#pragma GCC unroll 8
    for (i64 p = 0; p < kWords * kInOne; ++p) __builtin_prefetch(from + (kWords * kInOne + p) * k_stride + line, 0, 2);
#pragma GCC unroll 8
    for (i64 j = line; j < line + kLine<T>; j += kInOne * kLanes) {
      V sum[kRows][kInOne];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kInOne; ++v) sum[r][v] = hn::Load(Floats(), to + r * columns + j + v * kLanes);
      }
#pragma GCC unroll 8
      for (int w = 0; w < kWords; ++w) {
        V word[kInOne];
        load_words<P>(from + w * kInOne * k_stride + j, k_stride, both, word);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
          for (int v = 0; v < kInOne; ++v) sum[r][v] = By::add(row[w][r], word[v], sum[r][v]);
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kInOne; ++v) hn::Store(sum[r][v], Floats(), to + r * columns + j + v * kLanes);
      }
    }
  }
}

// Computes one chunk of the sums for columns of B that are contiguous in memory, and writes it to
// to[kRows][columns]. The columns must fill whole cache lines. B is read in its memory order, a few
// rows at a time over all columns: strips of few columns would touch another memory page for each row.
template <class By, int kRows, class T>
HWY_ATTR void chunk_wide(const u32* a, const Operand<T>& b, i64 columns, i64 k, float* to) {
  constexpr i64 kInOne = kInWord<typename By::P>;
  constexpr int kWords = std::max(1, static_cast<int>(8 / kInOne) / (kRows == 3 ? 4 : kRows));
  std::fill_n(to, kRows * columns, 0.0F);
  i64 p = 0;
  for (; p + kWords * kInOne <= k; p += kWords * kInOne) {
    add_words_of_rows<By, kRows, kWords>(a + p / kInOne * kRows, b.data + p * b.k_stride, b.k_stride, true, columns, to);
  }
  for (; p < k; p += kInOne) {
    add_words_of_rows<By, kRows, 1>(a + p / kInOne * kRows, b.data + p * b.k_stride, b.k_stride, p + kInOne <= k, columns, to);
  }
  put_in_order<typename By::P>(kRows * columns, to);
}

// Adds the sums of one more chunk to `sums`; the sums of the first chunk are copied. `columns` is a multiple of kLanes.
HWY_ATTR void add_chunk(bool first, const float* chunk, i64 columns, float* sums) {
  const Floats d;
  for (i64 j = 0; j < columns; j += kLanes) {
    const V sum = hn::LoadU(d, chunk + j);
    hn::StoreU(first ? sum : hn::Add(hn::LoadU(d, sums + j), sum), d, sums + j);
  }
}

template <class P, class Out>
HWY_ATTR void store_row(const float* sums, i64 columns, const P* bias, Out* to) {
  const Floats d;
  const i64 whole = columns / kLanes * kLanes;
  for (i64 j = 0; j < whole; j += kLanes) {
    const V sum = hn::LoadU(d, sums + j);
    store(d, bias ? hn::Add(sum, load(d, bias + j)) : sum, to + j);
  }
  for (i64 j = whole; j < columns; ++j) to[j] = narrow<Out>(bias ? sums[j] + widen(bias[j]) : sums[j]);
}

// The way to compute the chunks of a product with vector instructions.
template <class TransposedBy, class WideBy>
struct ByVectors {
  static constexpr i64 kStrip = kLanes;
  template <int kRows, class T>
  static void transposed(const u32* a, const Operand<T>& b, i64 k, float* to) {
    chunk_transposed<TransposedBy, kRows>(a, b, k, to);
  }
  template <int kRows, class T>
  static void wide(const u32* a, const Operand<T>& b, i64 columns, i64 k, float* to) {
    chunk_wide<WideBy, kRows>(a, b, columns, k, to);
  }
  struct Scope {
    Scope(bool, i64) {}
  };
};

// A set of `count` columns of B: the first is `first`, and each is `apart` after the previous one. Only those in [begin, end) are wanted.
struct Columns {
  i64 first, apart, count, begin, end;
};

// Computes sums[kRows][count] of the given columns over all of k. chunk(a, b, k, to) computes the sums to[kRows][count] of one chunk. count
// is at most kMost. The sums of unwanted columns are meaningless.
template <i64 kMost, int kRows, class P, class T, class Out, class Chunk>
void sum_columns(const FewRows<P, T, Out>& product, const Columns& columns, const Chunk& chunk, float* sums) {
  alignas(64) float part[kRows * kMost];
  const auto& [first, apart, count, begin, end] = columns;
  const Output<P, Out>& c = product.c;
  if (c.added) {
    for (i64 r = 0; r < kRows; ++r) {
      for (i64 i = 0; i < count; ++i) {
        const i64 column = first + i * apart;
        sums[r * count + i] = column >= begin && column < end ? c.added[r * c.added_stride + column] : 0.0F;
      }
    }
  }
  for (i64 p = 0; p < product.k; p += product.depth) {
    Operand<T> b = product.b.from(first, p);
    b.outer_stride *= apart;
    chunk(product.a + p / kInWord<P> * kRows, b, std::min(product.depth, product.k - p), part);
    add_chunk(p == 0 && !c.added, part, kRows * count, sums);
  }
}

// Stores columns [begin, end) of C. The rows of `sums` have `row` elements, which begin at column `first`.
template <int kRows, class P, class T, class Out>
void store_columns(const FewRows<P, T, Out>& product, const float* sums, i64 row, i64 first, i64 begin, i64 end) {
  const Output<P, Out>& c = product.c;
  for (i64 r = 0; r < kRows; ++r) {
    store_row(sums + r * row + begin - first, end - begin, c.bias ? c.bias + begin : nullptr, c.data + r * c.row_stride + begin);
  }
}

// Computes the columns of C where columns of B are contiguous in memory. If they do
// not fill a cache line, columns before them are computed as well and not stored.
template <class How, int kRows, class P, class T, class Out>
void multiply_wide(const FewRows<P, T, Out>& product, i64 begin, i64 end) {
  constexpr i64 kMost = kPieceColumns<kRows>;
  while (begin < end) {
    const i64 count = std::clamp((end - begin) / kLine<T> * kLine<T>, kLine<T>, kMost);
    const i64 first = std::min(begin, product.n - count), to = std::min(begin + count, end);
    alignas(64) float sums[kRows * kMost];
    sum_columns<kMost, kRows>(
        product, {first, 1, count, begin, to},
        [&](const u32* a, const Operand<T>& b, i64 k, float* part) { How::template wide<kRows>(a, b, count, k, part); }, sums);
    store_columns<kRows>(product, sums, count, first, begin, to);
    begin = to;
  }
}

// Computes the columns of C where the k of B's columns are contiguous. If the
// last strip has too few columns, columns before it are computed as well.
template <class How, int kRows, class P, class T, class Out>
void multiply_transposed(const FewRows<P, T, Out>& product, i64 begin, i64 end) {
  constexpr i64 kStrip = How::kStrip;
  while (begin < end) {
    const i64 to = std::min(begin + kTogether, end), strips = (to - begin) / kStrip;
    const i64 first = strips > 0 ? begin : std::min(begin, product.n - kStrip);
    alignas(64) float sums[kRows * kTogether], strip[kRows * kStrip];
    const auto add_strip = [&](i64 from, i64 apart) {
      sum_columns<kStrip, kRows>(product, {from, apart, kStrip, begin, to}, How::template transposed<kRows, T>, strip);
      for (i64 r = 0; r < kRows; ++r) {
        for (i64 i = 0; i < kStrip; ++i) sums[r * kTogether + from - first + i * apart] = strip[r * kStrip + i];
      }
    };
    for (i64 s = 0; s < strips; ++s) add_strip(begin + s, strips);
    if (begin + strips * kStrip < to) add_strip(strips > 0 ? to - kStrip : first, 1);
    store_columns<kRows>(product, sums, kTogether, first, begin, to);
    begin = to;
  }
}

template <class How, int kRows, class P, class T, class Out>
void multiply_rows(const FewRows<P, T, Out>& product, i64 begin, i64 end) {
  const bool transposed = product.b.k_stride == 1;
  const typename How::Scope scope(transposed, kRows);
  if (transposed) return multiply_transposed<How, kRows>(product, begin, end);
  multiply_wide<How, kRows>(product, begin, end);
}

template <class How, class P, class T, class Out>
void multiply_by(const FewRows<P, T, Out>& product, i64 begin, i64 end) {
  constexpr decltype(&multiply_by<How, P, T, Out>) kByRows[] = {multiply_rows<How, 1>, multiply_rows<How, 2>, multiply_rows<How, 3>,
                                                                multiply_rows<How, 4>};
  kByRows[product.m - 1](product, begin, end);
}

template <class Out>
void multiply_pairs(const FewRows<BFloat16, BFloat16, Out>& product, i64 begin, i64 end) {
#if HWY_TARGET == HWY_AVX3
  const Pairs by = pairs_by();
  if (by == Pairs::tiles) return multiply_by<ByTiles>(product, begin, end);
  if (by == Pairs::vectors) return multiply_by<ByVectors<Dots, Dots>>(product, begin, end);
#endif
  multiply_by<ByVectors<Widened, Widened>>(product, begin, end);
}

void f32(const FewRows<float, float, float>& product, i64 begin, i64 end) { multiply_by<ByVectors<Whole, Whole>>(product, begin, end); }
void widened(const FewRows<float, BFloat16, float>& product, i64 begin, i64 end) {
  multiply_by<ByVectors<Apart, Whole>>(product, begin, end);
}
void widened_to_bf16(const FewRows<float, BFloat16, BFloat16>& product, i64 begin, i64 end) {
  multiply_by<ByVectors<Apart, Whole>>(product, begin, end);
}
void pairs(const FewRows<BFloat16, BFloat16, float>& product, i64 begin, i64 end) { multiply_pairs(product, begin, end); }
void pairs_to_bf16(const FewRows<BFloat16, BFloat16, BFloat16>& product, i64 begin, i64 end) { multiply_pairs(product, begin, end); }

}  // namespace HWY_NAMESPACE
}  // namespace spillway::kernels::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::kernels::gemm {

HWY_EXPORT(f32);
HWY_EXPORT(widened);
HWY_EXPORT(widened_to_bf16);
HWY_EXPORT(pairs);
HWY_EXPORT(pairs_to_bf16);

template <>
void multiply_few_rows(const FewRows<float, float, float>& product, i64 begin, i64 end) {
  HWY_DYNAMIC_DISPATCH(f32)(product, begin, end);
}
template <>
void multiply_few_rows(const FewRows<float, BFloat16, float>& product, i64 begin, i64 end) {
  HWY_DYNAMIC_DISPATCH(widened)(product, begin, end);
}
template <>
void multiply_few_rows(const FewRows<float, BFloat16, BFloat16>& product, i64 begin, i64 end) {
  HWY_DYNAMIC_DISPATCH(widened_to_bf16)(product, begin, end);
}
template <>
void multiply_few_rows(const FewRows<BFloat16, BFloat16, float>& product, i64 begin, i64 end) {
  HWY_DYNAMIC_DISPATCH(pairs)(product, begin, end);
}
template <>
void multiply_few_rows(const FewRows<BFloat16, BFloat16, BFloat16>& product, i64 begin, i64 end) {
  HWY_DYNAMIC_DISPATCH(pairs_to_bf16)(product, begin, end);
}

namespace {

template <class T>
void pack_f32(const Operand<T>& a, i64 m, i64 k, u32* to) {
  for (i64 p = 0; p < k; ++p) {
    for (i64 r = 0; r < m; ++r) *to++ = std::bit_cast<u32>(widen(*a.from(r, p).data));
  }
  if (k % 2 != 0) std::fill_n(to, m, 0u);
}

}  // namespace

template <>
void pack_words<float, float>(Operand<float> a, i64 m, i64 k, u32* to) {
  pack_f32(a, m, k, to);
}
template <>
void pack_words<BFloat16, float>(Operand<BFloat16> a, i64 m, i64 k, u32* to) {
  pack_f32(a, m, k, to);
}
template <>
void pack_words<BFloat16, BFloat16>(Operand<BFloat16> a, i64 m, i64 k, u32* to) {
  for (i64 p = 0; p < k; p += 2) {
    for (i64 r = 0; r < m; ++r) {
      const u32 odd = p + 1 < k ? a.from(r, p + 1).data->bits : 0;
      *to++ = a.from(r, p).data->bits | odd << 16;
    }
  }
}

}  // namespace spillway::kernels::gemm
#endif
