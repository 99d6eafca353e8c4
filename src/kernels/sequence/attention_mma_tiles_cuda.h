// Matrix products on tensor cores, for attention. A tile consists of rows of kWidth elements of the 16-bit type H (bf16 or f16) in shared
// memory, in words of 16 bytes. A warp keeps its operands in registers as the fragments of mma.m16n8k16. A result [kM * 16, kN * 8] is a
// float[kM][kN][4] in each lane; rounded to H it can directly be the left operand of the next product. Included only by
// kernels/*/*_cuda.cu.
#pragma once
#include <limits>

#include "device/launch_cuda.h"
#include "kernels/mma_cuda.h"
#include "kernels/sums_cuda.h"

namespace spillway::kernels::attention_mma {

constexpr float kLog2e = 1.4426950408889634f;

using mma::clear;
using mma::fragment_column;
using mma::fragment_row;
using mma::lane;
using mma::warp;

/// The variants that a kernel is compiled in, because code for a case costs registers even where the case does not occur. `plain` has no
/// dropout, windows, documents, soft cap or sinks; `drops` has dropout; `masked` has the others of these. They require rows that are
/// aligned to 16 bytes. `general` takes rows of any alignment, any combination of the above, and split keys. A variant gives bitwise the
/// results of any other that takes the case.
enum class Kind { plain, drops, masked, general };
constexpr bool is_aligned(Kind kind) { return kind != Kind::general; }
constexpr bool has_drops(Kind kind) { return kind == Kind::drops || kind == Kind::general; }
constexpr bool has_masks(Kind kind) { return kind == Kind::masked || kind == Kind::general; }

/// The layout of a tile in shared memory. Word w of row r is stored at index w ^ (r % 8) of the row. This puts word w of eight
/// successive rows into different banks, and the words of one row too. Adding 8 n to the row adds 8 n kPitch to the address.
template <int kWidth>
struct Layout {
  static constexpr int kWords = kWidth <= 64 ? 8 : kWidth <= 128 ? 16 : 32, kPitch = kWords * 16;
  static_assert(kWidth % 16 == 0 && kWidth <= 256);
  __device__ static u32 at(int row, int word) { return static_cast<u32>(row * kPitch + ((word ^ (row & 7)) << 4)); }
  /// Returns the address of the word that comes `words` (an even number) words after the one at
  /// address `at`. `at` must be word 0 or 1 of a row. Tiles must begin at multiples of 128.
  __device__ static u32 words_on(u32 at, int words) { return (at ^ (words % 8 * 16)) + words / 8 * 128; }
};

/// Copies rows of a head to tiles, using all kThreads threads of a thread block. Rows beyond the end of the head and columns beyond its
/// width become zero. If kAligned is true, all rows must begin at multiples of 16 bytes.
template <class H, int kWidth, int kThreads, bool kAligned>
class Copier {
 public:
  __device__ Copier(const attention_problem::View<const H>& view, i64 b, i64 h, int begin)
      : from_(view.at(b, h, begin + row()) + word() * 8) {}

  /// Begins to copy the next kRows rows of the view, of which only `rows` exist if `rows` is smaller.
  /// Elements of rows that are not aligned to 16 bytes are copied one by one.
  template <int kRows>
  __device__ void copy(const attention_problem::View<const H>& view, int rows, i64 width, u32 tile) {
    static_assert(kRows % kAtOnce == 0);
    if (word() * 8 >= kWidth) return;
    const auto is_there = [&](int part) { return word() * 8 + part * kPart < static_cast<int>(width); };
    u32 to = tile + L::at(row(), word());
    if (kAligned && kRows <= rows) {
      SPILLWAY_UNROLL
      for (int i = 0; i < kRows; i += kAtOnce, from_ += kAtOnce * view.row) {
        for_parts([&](int part) { mma::copy_word(to + i * L::kPitch + part * kPartBytes, from_ + part * kPart, is_there(part)); });
      }
      return;
    }
    SPILLWAY_NO_UNROLL
    for (int r = row(); r < kRows; r += kAtOnce, from_ += kAtOnce * view.row, to += kAtOnce * L::kPitch) {
      for_parts([&](int part) {
        const bool there = is_there(part) && r < rows;
        if (kAligned || view.in_words) {
          mma::copy_word(to + part * kPartBytes, from_ + part * kPart, there);
        } else {
          mma::store_shared(to + part * kPartBytes, there ? one_by_one(from_ + part * kPart) : uint4{});
        }
      });
    }
  }

 private:
  using L = Layout<kWidth>;
  // A row consists of parts of up to 16 words. Each thread copies one word of each part.
  static constexpr int kWords = L::kWords < 16 ? L::kWords : 16, kPart = kWords * 8, kPartBytes = kWords * 16;
  static constexpr int kAtOnce = kThreads / kWords;
  static_assert(kAtOnce % 8 == 0);
  __device__ static int word() { return static_cast<int>(threadIdx.x) % kWords; }
  __device__ static int row() { return static_cast<int>(threadIdx.x) / kWords; }
  template <class F>
  __device__ static void for_parts(F f) {
    SPILLWAY_UNROLL
    for (int part = 0; part < L::kWords / kWords; ++part) f(part);
  }
  __device__ static uint4 one_by_one(const H* from) {
    Pack<H, 8> pack;
    for (int j = 0; j < 8; ++j) pack.at[j] = from[j];
    return std::bit_cast<uint4>(pack);
  }

  const H* from_;  // the next word (16 bytes) that this thread copies
};

/// The number of fragments of 16 rows that a warp owns. The sums of wider heads have room in the registers for one fragment only.
template <int kWidth>
constexpr int kRowTilesOf = kWidth <= 128 ? 2 : 1;

/// Calls f(m, n, i, row, column) for each element of a warp's tile that this lane holds: element i of fragment (m, n), which lies at
/// (row, column) of the tile.
template <int kM, int kN, class F>
__device__ void for_elements(F f) {
  SPILLWAY_UNROLL
  for (int m = 0; m < kM; ++m) {
    SPILLWAY_UNROLL
    for (int n = 0; n < kN; ++n) {
      SPILLWAY_UNROLL
      for (int i = 0; i < 4; ++i) f(m, n, i, m * 16 + i / 2 * 8 + fragment_row(), n * 8 + fragment_column() + i % 2);
    }
  }
}

/// The dropout decisions for a warp's tile of probabilities. Nothing is dropped until draw() is called.
template <int kM, int kN>
class Drops {
 public:
  __device__ explicit Drops(float kept) : kept_(kept) {
    SPILLWAY_UNROLL
    for (int m = 0; m < kM; ++m) bits_[m] = 0;
  }
  /// Decides for each element whether it is dropped, by calling drops(row, column). Call it before the values of the tile occupy registers.
  template <class F>
  __device__ void draw(F drops) {
    static_assert(kN <= 8);
    SPILLWAY_NO_UNROLL
    for (int n = 0; n < kN; ++n) {
      SPILLWAY_UNROLL
      for (int m = 0; m < kM; ++m) {
        u32 four = 0;
        SPILLWAY_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (drops(m * 16 + i / 2 * 8 + fragment_row(), n * 8 + fragment_column() + i % 2)) four |= 1u << i;
        }
        bits_[m] |= four << (n * 4);
      }
    }
  }
  /// Returns x, which is element i of fragment (m, n), after dropout: 0 or scaled.
  __device__ float operator()(float x, int m, int n, int i) const { return dropped(m, n, i) ? 0 : x * kept_; }
  /// Marks a dropped element by its sign: returns -x if the element is dropped, and x otherwise. x must be at least 0.
  __device__ float marked(float x, int m, int n, int i) const { return dropped(m, n, i) ? -x : x; }
  /// Returns x after dropout: 0 or scaled. `mark` is what marked() returned for this element.
  __device__ float by_mark(float mark, float x) const { return std::bit_cast<u32>(mark) >> 31 ? 0 : x * kept_; }

 private:
  __device__ bool dropped(int m, int n, int i) const { return bits_[m] >> (n * 4 + i) & 1; }
  float kept_;
  u32 bits_[kM];
};
class NoDrops {
 public:
  __device__ explicit NoDrops(float) {}
  template <class F>
  __device__ void draw(F) {}
  __device__ float operator()(float x, int, int, int) const { return x; }
  __device__ float marked(float x, int, int, int) const { return x; }
  __device__ float by_mark(float, float x) const { return x; }
};
template <Kind kKind, int kM, int kN>
using DropsOf = std::conditional_t<has_drops(kKind), Drops<kM, kN>, NoDrops>;

/// The first keys that the kRows queries of a thread block see. They are 0 unless windows or documents limit what a query sees; then they
/// are in shared memory, one i32 per query. They never decrease from one query to the next.
template <Kind kKind, int kRows>
class FirstKeys {
 public:
  static constexpr int kBytes = has_masks(kKind) ? kRows * 4 : 0;
  /// The queries of sequence b begin at `begin`. Queries beyond the last one count as seeing what the last one sees. The thread block, of
  /// at least kRows threads, must be synchronised before of() is called.
  template <class P>
  __device__ FirstKeys(const P& f, int b, int begin, u32 to) : at_(to) {
    if constexpr (has_masks(kKind)) {
      of_block_ = static_cast<int>(f.extents.first(b, begin));
      const int row = static_cast<int>(threadIdx.x);
      if (row < kRows) mma::store_shared(to + row * 4, static_cast<int>(f.extents.first(b, begin + row)));
    }
  }
  /// Returns the first key that any query of the thread block sees, rounded down to a multiple of kKeys.
  template <int kKeys>
  __device__ int first_tile() const {
    return of_block_ / kKeys * kKeys;
  }
  __device__ int of(int row) const { return has_masks(kKind) ? mma::load_shared<int>(at_ + row * 4) : 0; }

 private:
  u32 at_;
  int of_block_ = 0;
};

/// Sets the scores of the keys to -infinity that a query does not see because of windows or documents. The rows of the tile are queries,
/// the columns are keys; first(row) is the first column that a row sees.
template <int kM, int kN, class F>
__device__ void hide_first_columns(float (&x)[kM][kN][4], F first) {
  SPILLWAY_UNROLL
  for (int mi = 0; mi < 2 * kM; ++mi) {
    const int m = mi / 2, second = mi % 2, hidden = first(m * 16 + second * 8 + fragment_row()) - fragment_column();
    SPILLWAY_UNROLL
    for (int n = 0; n < kN; ++n) {
      SPILLWAY_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (n * 8 + i < hidden) x[m][n][2 * second + i] = -std::numeric_limits<float>::infinity();
      }
    }
  }
}
/// Does the same in a transposed tile, whose rows are keys and whose columns are queries; first(column) is the first row that a column
/// sees.
template <int kM, int kN, class F>
__device__ void hide_first_rows(float (&x)[kM][kN][4], F first) {
  SPILLWAY_UNROLL
  for (int ni = 0; ni < 2 * kN; ++ni) {
    const int n = ni / 2, hidden = first(n * 8 + fragment_column() + ni % 2) - fragment_row();
    SPILLWAY_UNROLL
    for (int mi = 0; mi < 2 * kM; ++mi) {
      if (mi * 8 < hidden) x[mi / 2][n][mi % 2 * 2 + ni % 2] = -std::numeric_limits<float>::infinity();
    }
  }
}

/// The soft cap of scores, for kernels that have masks. Let y be an unscaled score over the cap. tanh(y) is 1 - 2 / (e^2y + 1), of which
/// each step has an error of at most 2 ulp; the error of a capped score is then at most 2^-21 of the cap. P is a Problem.
template <Kind kKind, class P>
class Cap {
 public:
  __device__ explicit Cap(const P& f) : f_(f) {}
  template <int kM, int kN>
  __device__ void apply(float (&x)[kM][kN][4]) const {
    if (!is_used()) return;
    for_elements<kM, kN>([&](int m, int n, int i, int, int) {
      const float share = mma::reciprocal_fast(mma::exp2_fast(x[m][n][i] * f_.cap_rate) + 1);
      x[m][n][i] = fmaf(share, -2 * f_.cap, f_.cap);
    });
  }
  /// Calls f(slope), where slope(x) is the derivative of the soft cap, from 0 to 1, given the score after it. It is 0 for a score of
  /// -infinity. Without a soft cap, slope(x) is 1.
  template <class F>
  __device__ void with_slope(F f) const {
    if (!is_used()) return f([](float) { return 1.0f; });
    f([&](float capped) {
      const float y = capped * f_.cap_inverse;
      return __saturatef(fmaf(-y, y, 1.0f));
    });
  }

 private:
  __device__ bool is_used() const { return has_masks(kKind) && f_.cap > 0; }
  const P& f_;
};

/// A warp's rows of a tile, kept in registers as the left operand of products whose inner dimension is the width of a head.
template <int kWidth, int kM>
struct Fragments {
  u32 at[kWidth / 16][kM][4];
  __device__ explicit Fragments(u32 tile) {
    tile += Layout<kWidth>::at(lane() % 16, lane() / 16);
    SPILLWAY_UNROLL
    for (int k = 0; k < kWidth / 16; ++k) {
      SPILLWAY_UNROLL
      for (int m = 0; m < kM; ++m) mma::load_matrices(Layout<kWidth>::words_on(tile, 2 * k) + m * 16 * Layout<kWidth>::kPitch, at[k][m]);
    }
  }
};

/// Computes x[i][j], the scalar product of row i of `a` and row j of tile b over the width of a head.
template <class H, int kWidth, int kM, int kN>
__device__ void multiply_rows(const Fragments<kWidth, kM>& a, u32 b, float (&x)[kM][kN][4]) {
  using L = Layout<kWidth>;
  b += L::at(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2);
  clear(x);
  SPILLWAY_UNROLL
  for (int k = 0; k < kWidth / 16; ++k) {
    SPILLWAY_UNROLL
    for (int n = 0; n < kN; n += 2) {
      u32 right[4];
      mma::load_matrices(L::words_on(b, 2 * k) + n * 8 * L::kPitch, right);
      SPILLWAY_UNROLL
      for (int m = 0; m < kM; ++m) {
        mma::multiply_add<H>(x[m][n], a.at[k][m], right[0], right[1]);
        mma::multiply_add<H>(x[m][n + 1], a.at[k][m], right[2], right[3]);
      }
    }
  }
}

/// Computes the products of multiply_rows() for the rows of tile a, which are loaded from shared memory when they are needed.
template <class H, int kWidth, int kM, int kN>
__device__ void multiply_rows(u32 a, u32 b, float (&x)[kM][kN][4]) {
  using L = Layout<kWidth>;
  const int l = mma::again(lane());
  a += L::at(l % 16, l / 16), b += L::at(l / 16 * 8 + l % 8, l / 8 % 2);
  clear(x);
  SPILLWAY_UNROLL
  for (int k = 0; k < kWidth / 16; ++k) {
    u32 left[kM][4];
    SPILLWAY_UNROLL
    for (int m = 0; m < kM; ++m) mma::load_matrices(L::words_on(a, 2 * k) + m * 16 * L::kPitch, left[m]);
    SPILLWAY_UNROLL
    for (int n = 0; n < kN; n += 2) {
      u32 right[4];
      mma::load_matrices(L::words_on(b, 2 * k) + n * 8 * L::kPitch, right);
      SPILLWAY_UNROLL
      for (int m = 0; m < kM; ++m) {
        mma::multiply_add<H>(x[m][n], left[m], right[0], right[1]);
        mma::multiply_add<H>(x[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// Computes sum[i][c] += the sum over j of weights[i][j] * b[j][c], where b is a tile. The weights are rounded to H first.
template <class H, int kWidth, int kM, int kN>
__device__ void add_weighted(const float (&weights)[kM][kN][4], u32 b, float (&sum)[kM][kWidth / 8][4]) {
  using L = Layout<kWidth>;
  const int l = mma::again(lane());
  b += L::at(l % 16, l / 16);
  SPILLWAY_UNROLL
  for (int k = 0; k < kN; k += 2) {
    u32 left[kM][4];
    SPILLWAY_UNROLL
    for (int m = 0; m < kM; ++m) {
      SPILLWAY_UNROLL
      for (int i = 0; i < 4; ++i) left[m][i] = mma::pack_halves<H>(weights[m][k + i / 2][i % 2 * 2], weights[m][k + i / 2][i % 2 * 2 + 1]);
    }
    SPILLWAY_UNROLL
    for (int n = 0; n < kWidth / 8; n += 2) {
      u32 right[4];
      mma::load_matrices<true>(L::words_on(b, n) + k * 8 * L::kPitch, right);
      SPILLWAY_UNROLL
      for (int m = 0; m < kM; ++m) {
        mma::multiply_add<H>(sum[m][n], left[m], right[0], right[1]);
        mma::multiply_add<H>(sum[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

/// Multiplies a warp's sums by factor(m, second), rounds them to H and stores them as rows from `to`
/// on. `second` is 1 for the lower of a fragment's two rows and 0 for the upper. Only the first `there`
/// rows exist. The values pass through tile `own` in shared memory, which belongs to this warp alone.
template <int kWidth, class H, int kM, class F>
__device__ void store_rows(const float (&sum)[kM][kWidth / 8][4], F factor, u32 own, H* to, i64 stride, i64 there, i64 width,
                           bool in_words) {
  using L = Layout<kWidth>;
  __syncwarp();
  SPILLWAY_UNROLL
  for (int m = 0; m < kM; ++m) {
    SPILLWAY_UNROLL
    for (int second = 0; second < 2; ++second) {
      const float by = factor(m, second);
      SPILLWAY_UNROLL
      for (int n = 0; n < kWidth / 8; ++n) {
        const u32 pair = mma::pack_halves<H>(sum[m][n][2 * second] * by, sum[m][n][2 * second + 1] * by);
        mma::store_shared(own + L::at(m * 16 + second * 8 + fragment_row(), n) + fragment_column() * 2, pair);
      }
    }
  }
  __syncwarp();
  constexpr int kRowsAtOnce = kWarpThreads / L::kWords;
  const int word = lane() % L::kWords;
  if (word * 8 >= width) return;
  for (int row = lane() / L::kWords; row < kM * 16 && row < there; row += kRowsAtOnce) {
    const auto all = mma::load_shared<uint4>(own + L::at(row, word));
    H* at = to + row * stride + word * 8;
    if (in_words) {
      *reinterpret_cast<uint4*>(at) = all;
    } else {
      const auto pack = std::bit_cast<Pack<H, 8>>(all);
      for (int j = 0; j < 8; ++j) at[j] = pack.at[j];
    }
  }
}

template <class H>
Kind kind_of(const attention_problem::Problem<H>& f, bool in_words, bool sinks = false) {
  const bool drops = f.dropout.limit != 0, masked = f.extents.has_ranges() || f.cap > 0 || sinks;
  if (!in_words || (drops && masked)) return Kind::general;
  return drops ? Kind::drops : masked ? Kind::masked : Kind::plain;
}

/// Calls f(std::integral_constant<int, kWidth>), where kWidth is the smallest compiled width that is at least `width`.
template <class F>
void for_width(i64 width, F f) {
  if (width <= 64) return f(std::integral_constant<int, 64>());
  if (width <= 96) return f(std::integral_constant<int, 96>());
  if (width <= 128) return f(std::integral_constant<int, 128>());
  f(std::integral_constant<int, 256>());
}
/// Calls f(std::integral_constant<int, kWidth>, std::integral_constant<Kind, kKind>), where kWidth is that of
/// for_width(), and kKind is `kind`.
template <class F>
void for_kernel(i64 width, Kind kind, F f) {
  for_width(width, [&](auto padded) {
    switch (kind) {
      case Kind::plain:
        return f(padded, std::integral_constant<Kind, Kind::plain>());
      case Kind::drops:
        return f(padded, std::integral_constant<Kind, Kind::drops>());
      case Kind::masked:
        return f(padded, std::integral_constant<Kind, Kind::masked>());
      case Kind::general:
        return f(padded, std::integral_constant<Kind, Kind::general>());
    }
  });
}

template <class F>
void launch_blocks(void (*kernel)(F), i64 blocks, int threads, int shared_bytes, const F& f, int parts = 1) {
  mma::launch_with_shared("attention", kernel, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(parts)), threads, shared_bytes, f);
}

}  // namespace spillway::kernels::attention_mma
