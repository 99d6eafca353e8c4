// The parts of products over the rows of experts on tensor cores. A thread block of four warps computes a tile of the result, kRows x
// kColumns elements, of which each warp sums a quarter in registers. It goes over the terms kDepth at a time in ascending order. The terms
// lie in shared memory, in a ring of kStages stages, of which the later ones are still being copied. Included only by
// kernels/experts/*_cuda.*.
#pragma once
#include "kernels/elements_cuda.h"
#include "kernels/experts/expert_mma_cuda.h"
#include "kernels/experts/warp_sums_cuda.h"
#include "kernels/mma_cuda.h"
#include "kernels/products/quantized_cuda.h"

namespace spillway::kernels::expert_mma {

constexpr int kThreads = 128, kColumns = ExpertTile::kColumns, kDepth = ExpertTile::kDepth, kStages = 3;
constexpr int kWordElems = 8;  // elements of a word of 16 bytes, the unit of copies

/// The tile of rows that a thread block computes: `rows` rows from `first` on, all of one expert. expert is -1 if there is no such tile.
struct RowTile {
  int expert = -1, first = 0, rows = 0;
};
/// Returns the tile with index `slot`, counted over the experts in order, each of which has as many tiles of kRows as its rows need. All
/// lanes of the warp must call it.
template <int kRows>
__device__ RowTile row_tile(const i32* begin, int experts, int slot) {
  int before = 0;  // the number of tiles of the experts before `first`
  for (int first = 0; first < experts; first += kWarpThreads) {
    const int e = first + WarpRows::rank(), from = begin[min(e, experts)], to = begin[min(e + 1, experts)];
    const int mine = ceil_div(to - from, kRows), sum = sum_up_to_lane(mine);
    const u32 reached = __ballot_sync(~0u, before + sum > slot);
    if (reached != 0) {
      const int owner = __ffs(reached) - 1, row = from + (slot - before - (sum - mine)) * kRows;
      const int at = __shfl_sync(~0u, row, owner), end = __shfl_sync(~0u, to, owner);
      return {first + owner, at, min(kRows, end - at)};
    }
    before += __shfl_sync(~0u, sum, kWarpThreads - 1);
  }
  return {};
}
/// Returns a number of tiles that suffices however M rows are distributed over the experts.
template <int kRows>
i64 most_row_tiles(i64 rows, i64 experts) {
  return rows / kRows + std::min(experts, rows);
}

/// A tile whose rows hold the terms of one row or column of the result: kExtent rows of kDepth elements. Word w of row r is stored at index
/// w ^ (r / 2 % 4) of the row, which puts a word of eight successive rows into different banks.
///
/// A warp loads operands of 16 terms by two functions: lane_of_left(tile, first) returns an address, and left(address, m, term, to) loads
/// rows first + 16 m to first + 16 m + 15 of the result. lane_of_right() and right() do so for columns first + 8 n to first + 8 n + 15, of
/// which the first eight come in to[0] and to[1]. `term` is 0 or 16, and `first` a multiple of 64, or of 32 in TermRows.
template <int kExtent>
struct TermRows {
  static constexpr bool kTermsInRow = true;
  static constexpr int kPitch = kDepth * 2, kBytes = kExtent * kPitch, kWords = kDepth / kWordElems, kRows = kExtent;
  __device__ static u32 at(int row, int word) { return static_cast<u32>(row * kPitch + ((word ^ (row / 2 % kWords)) << 4)); }
  __device__ static u32 lane_of_left(u32 tile, int first) {
    const int l = mma::lane();
    return tile + first * kPitch + at(l % 16, l / 16);
  }
  __device__ static void left(u32 lane, int m, int term, u32 (&to)[4]) { mma::load_matrices((lane ^ term * 2) + m * 16 * kPitch, to); }
  __device__ static u32 lane_of_right(u32 tile, int first) {
    const int l = mma::lane();
    return tile + first * kPitch + at(l / 16 * 8 + l % 8, l / 8 % 2);
  }
  __device__ static void right(u32 lane, int n, int term, u32 (&to)[4]) { mma::load_matrices((lane ^ term * 2) + n * 8 * kPitch, to); }
};

/// A tile whose rows hold one term each, for kExtent rows or columns of the result. Word w of row r is stored at index w ^ (r % 8). The
/// functions are those of TermRows.
template <int kExtent>
struct TermColumns {
  static constexpr bool kTermsInRow = false;
  static constexpr int kPitch = kExtent * 2, kBytes = kDepth * kPitch, kWords = kExtent / kWordElems, kRows = kDepth;
  __device__ static u32 at(int row, int word) { return static_cast<u32>(row * kPitch + ((word ^ (row % 8)) << 4)); }
  __device__ static u32 lane_of_left(u32 tile, int first) {
    const int l = mma::lane();
    return tile + first * 2 + at(l / 16 * 8 + l % 8, l / 8 % 2);
  }
  __device__ static void left(u32 lane, int m, int term, u32 (&to)[4]) { mma::load_matrices<true>((lane ^ m * 32) + term * kPitch, to); }
  __device__ static u32 lane_of_right(u32 tile, int first) {
    const int l = mma::lane();
    return tile + first * 2 + at(l % 16, l / 16);
  }
  __device__ static void right(u32 lane, int n, int term, u32 (&to)[4]) { mma::load_matrices<true>((lane ^ n * 16) + term * kPitch, to); }
};

/// Names the words of each tile that a thread copies: those in column word(), of the rows row(), row() + kAtOnce and so on.
template <class Tile>
struct Share {
  static constexpr int kAtOnce = kThreads / Tile::kWords, kCopies = Tile::kRows / kAtOnce;
  static constexpr u32 kStep = kAtOnce * Tile::kPitch;  // added to the address, it leads kAtOnce rows on
  static_assert(kAtOnce % 8 == 0);                      // after eight rows the order of words in a row repeats
  __device__ static int word() { return static_cast<int>(threadIdx.x) % Tile::kWords; }
  __device__ static int row() { return static_cast<int>(threadIdx.x) / Tile::kWords; }
  __device__ static u32 first(u32 tile) { return tile + Tile::at(row(), word()); }
};

/// Copies the tiles of a row-major matrix one after the other, along its rows for TermRows and down its columns for TermColumns. Words
/// outside of the `rows` x `columns` elements at `from` become zero.
template <class H, class Tile>
class Copier {
 public:
  __device__ Copier(const H* from, i64 pitch, int rows, int columns)
      : from_(from + S::row() * pitch + S::word() * kWordElems),
        pitch_(pitch),
        rows_(rows - S::row()),
        columns_(columns - S::word() * kWordElems) {}

  /// Begins to copy the next tile.
  __device__ void copy(u32 tile) {
    SPILLWAY_UNROLL
    for (int i = 0; i < S::kCopies; ++i)
      mma::copy_word(S::first(tile) + i * S::kStep, from_ + i * S::kAtOnce * pitch_, columns_ > 0 && i * S::kAtOnce < rows_);
    if constexpr (Tile::kTermsInRow) {
      from_ += kDepth, columns_ -= kDepth;
    } else {
      from_ += kDepth * pitch_, rows_ -= kDepth;
    }
  }

 private:
  using S = Share<Tile>;
  const H* from_;  // this thread's first word of the next tile
  i64 pitch_;
  int rows_, columns_;  // how many rows and columns are left from that word on
};

/// Dequantizes the tiles of a quantized matrix as Copier copies them. The codes of a tile are loaded while an earlier tile is multiplied.
/// The matrix has less than 2^31 elements, of which `first` come before the first tile. Level c of nf4 lies in shared memory for each lane
/// apart, at table + 128 c + 4 lane, so that no two lanes meet in a bank.
template <class H, class Tile, WeightFormat kFormat>
class Dequantizer {
 public:
  __device__ Dequantizer(const std::byte* units, int first, int pitch, int rows, int columns, u32 table)
      : units_(units),
        at_(first + S::row() * pitch + S::word() * kWordElems),
        pitch_(pitch),
        rows_(rows - S::row()),
        columns_(columns - S::word() * kWordElems),
        table_(table + mma::lane() * sizeof(float)) {
    load();
  }

  /// Stores the next tile, and begins to load the codes of the one after it.
  __device__ void copy(u32 tile) {
    SPILLWAY_UNROLL
    for (int i = 0; i < S::kCopies; ++i) {
      u32 words[kCodes / 2];
      SPILLWAY_UNROLL
      for (int j = 0; j < kCodes; j += 2) words[j / 2] = mma::pack_halves<H>(value(codes_[i], j), value(codes_[i], j + 1));
      mma::store_shared(S::first(tile) + i * S::kStep, uint4{words[0], words[1], words[2], words[3]});
    }
    if constexpr (Tile::kTermsInRow) {
      at_ += kDepth, columns_ -= kDepth;
    } else {
      at_ += kDepth * pitch_, rows_ -= kDepth;
    }
    load();
  }

 private:
  using S = Share<Tile>;
  __device__ void load() {
    SPILLWAY_UNROLL
    for (int i = 0; i < S::kCopies; ++i) {
      const bool there = columns_ > 0 && i * S::kAtOnce < rows_;
      codes_[i] = there ? Codes<kFormat>(units_, static_cast<u32>(at_ + i * S::kAtOnce * pitch_)) : Codes<kFormat>();
    }
  }
  __device__ float value(const Codes<kFormat>& codes, int i) const {
    if constexpr (kFormat == WeightFormat::nf4) {
      return mma::load_shared<float>(table_ + codes.code(i) * kWarpThreads * sizeof(float)) * codes.scale;
    } else {
      // 2^23 + 128 + code has the code's bits in its last byte. The subtraction is exact, and cheaper than a conversion.
      const u32 byte = static_cast<u32>(codes.bits >> (8 * i)) & 0xffu;
      return (__uint_as_float(0x4b000000u | (byte ^ 0x80u)) - 8388736.0f) * codes.scale;
    }
  }

  const std::byte* units_;
  int at_, pitch_, rows_, columns_;
  u32 table_;
  Codes<kFormat> codes_[S::kCopies];
};

/// The quarter of a thread block's tile of kRows x kColumns that a warp computes: kM x kN fragments, from (row(), column()) on.
template <int kRows>
struct Quarter {
  static constexpr int kM = kRows / 2 / 16, kN = kColumns / 2 / 8;
  __device__ static int row() { return mma::warp() / 2 * (kRows / 2); }
  __device__ static int column() { return mma::warp() % 2 * (kColumns / 2); }
};

/// Sums the products of `terms` terms. `left` and `right` bring their tiles, for kRows rows and kColumns columns of the result. The stages
/// are kStages times Left::kBytes + Right::kBytes of shared memory from `stages` on, which the caller may use again afterwards.
template <class H, class Left, class Right, int kRows, class LeftCopier, class RightCopier>
__device__ void sum_terms(LeftCopier& left, RightCopier& right, int terms, u32 stages,
                          float (&sum)[Quarter<kRows>::kM][Quarter<kRows>::kN][4]) {
  using Q = Quarter<kRows>;
  constexpr u32 kStage = Left::kBytes + Right::kBytes;
  const auto copy_to = [&](int stage) {
    left.copy(stages + stage * kStage);
    right.copy(stages + stage * kStage + Left::kBytes);
  };
  mma::clear(sum);
  SPILLWAY_UNROLL
  for (int stage = 0; stage < kStages - 1; ++stage) {
    copy_to(stage);
    mma::end_group_of_copies();
  }
  int stage = 0, free = kStages - 1;  // the stage that is multiplied next, and the one that is copied to next
  SPILLWAY_NO_UNROLL
  for (int term = 0; term < terms; term += kDepth) {
    mma::wait_for_groups_before<kStages - 2>();
    __syncthreads();  // waits until the stage has arrived and no thread reads the free one any more
    if (term + (kStages - 1) * kDepth < terms) copy_to(free);
    mma::end_group_of_copies();
    const u32 a = Left::lane_of_left(stages + stage * kStage, Q::row());
    const u32 b = Right::lane_of_right(stages + stage * kStage + Left::kBytes, Q::column());
    SPILLWAY_UNROLL
    for (int of_stage = 0; of_stage < kDepth; of_stage += 16) {
      u32 rows[Q::kM][4];
      SPILLWAY_UNROLL
      for (int m = 0; m < Q::kM; ++m) Left::left(a, m, of_stage, rows[m]);
      SPILLWAY_UNROLL
      for (int n = 0; n < Q::kN; n += 2) {
        u32 columns[4];
        Right::right(b, n, of_stage, columns);
        SPILLWAY_UNROLL
        for (int m = 0; m < Q::kM; ++m) {
          mma::multiply_add<H>(sum[m][n], rows[m], columns[0], columns[1]);
          mma::multiply_add<H>(sum[m][n + 1], rows[m], columns[2], columns[3]);
        }
      }
    }
    free = stage;
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  mma::wait_for_copies();
  __syncthreads();
}

/// Calls f(m, n, second, row, column) for each pair of adjacent elements of a warp's quarter that this lane holds: elements 2 second and 2
/// second + 1 of fragment (m, n), of which the first lies at (row, column) of the thread block's tile.
template <int kRows, class F>
__device__ void for_pairs(F f) {
  using Q = Quarter<kRows>;
  SPILLWAY_UNROLL
  for (int m = 0; m < Q::kM; ++m) {
    SPILLWAY_UNROLL
    for (int n = 0; n < Q::kN; ++n) {
      SPILLWAY_UNROLL
      for (int second = 0; second < 2; ++second)
        f(m, n, second, Q::row() + m * 16 + second * 8 + mma::fragment_row(), Q::column() + n * 8 + mma::fragment_column());
    }
  }
}

}  // namespace spillway::kernels::expert_mma
