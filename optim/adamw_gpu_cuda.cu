#include "base/error.h"
#include "device/launch_cuda.h"
#include "optim/adamw_element.h"
#include "optim/adamw_gpu.h"
#include "optim/moments8.h"
#include "optim/tile_parts_cuda.h"

namespace spillway::optim {
namespace {

constexpr int kThreads = kTileThreads;

// The arguments of one launch of the update kernel. Elements count from the begin of the first tile.
template <class T>
struct Launch {
  Columns first;  // the columns, which point to the arrays of the first tile
  i64 gradient_tile_bytes, weight_tile_bytes, state_tile_bytes, m_scales_begin, used_state_bytes;
  const std::byte* state;
  std::byte* new_state;
  bool bf16_gradient;
  i64 begin;
  RoundingNoise noise;
  PartTable<T> parts;
};
static_assert(sizeof(Launch<double>) <= 4096, "expected arguments that fit into a kernel launch");

template <class T>
__device__ T load(const std::byte* column, i64 i) {
  return reinterpret_cast<const T*>(column)[i];
}
template <class T>
__device__ void store(std::byte* column, i64 i, T x) {
  reinterpret_cast<T*>(column)[i] = x;
}

template <class T, Weights W>
__device__ T load_master(const Columns& c, i64 i) {
  if constexpr (W == Weights::own_master) return load<T>(c.weight, i);
  if constexpr (has_whole_master(W)) return load<float>(c.master, i);
  if constexpr (W == Weights::split_master) return join_master(load<u16>(c.weight, i), load<u16>(c.master, i));
}

template <class T, Weights W>
__device__ void store_master(const Columns& c, i64 i, T x) {
  if constexpr (W == Weights::own_master) {
    store(c.new_weight, i, x);
  } else {
    const float master = canonical(x);
    store(c.new_weight, i, rounded_weight<W>(master));
    if constexpr (has_whole_master(W)) store(c.new_master, i, master);
    if constexpr (W == Weights::split_master) store(c.new_master, i, remainder_of_master(master));
  }
}

// Returns block_scale() of the 256 moments that 64 threads hold, four each. `largest` is the largest magnitude of the calling thread.
__device__ float shared_scale(u32 largest, u32 (&of_warp)[kThreads / 32]) {
  for (int step = 16; step > 0; step /= 2) {
    const u32 other = __shfl_xor_sync(0xffffffffu, largest, step);
    largest = largest < other ? other : largest;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
  const u32 other = of_warp[threadIdx.x / 32 ^ 1];
  largest = largest < other ? other : largest;
  if (largest >= 0x7f800000) return std::bit_cast<float>(kNanBits);
  const auto scale = std::bit_cast<float>(largest);
  return scale < 0x1p-100f ? 0 : scale;
}

__device__ u32 magnitude(float x) { return std::bit_cast<u32>(x) & 0x7fffffff; }

template <class T, Weights W, Moments M>
__global__ void __launch_bounds__(kThreads) update_tiles(Launch<T> l) {
  const i64 block_begin = l.begin + i64{blockIdx.x} * kBlockElems, tile = block_begin / kTileElems;
  // the index of the element in the tile
  const i64 begin = block_begin % kTileElems + i64{threadIdx.x / 16} * kRowElems + threadIdx.x % 16;
  Columns c = l.first;
  c.gradient += tile * l.gradient_tile_bytes;
  c.weight += tile * l.weight_tile_bytes, c.new_weight += tile * l.weight_tile_bytes;
  c.m += tile * l.state_tile_bytes, c.v += tile * l.state_tile_bytes;
  c.new_m += tile * l.state_tile_bytes, c.new_v += tile * l.state_tile_bytes;
  if constexpr (W != Weights::own_master) c.master += tile * l.state_tile_bytes, c.new_master += tile * l.state_tile_bytes;

  std::array<u32, 4> words{};
  const u64 element = l.noise.first_element + static_cast<u64>(tile * kTileElems + begin);
  if constexpr (M != Moments::fp32) words = philox(l.noise.key, l.noise.t, noise_counter(element));
  const i64 moment_block = begin / kMomentBlockElems;
  float m_scale = 0, v_scale = 0;
  if constexpr (M == Moments::int8) {
    const std::byte* scales = l.state + tile * l.state_tile_bytes + l.m_scales_begin;
    m_scale = load<float>(scales, moment_block), v_scale = load<float>(scales + kScalesBytes, moment_block);
  }

  Moved<T> now[kEach];
  for (int k = 0; k < kEach; ++k) {
    const i64 i = begin + 16 * k;
    Moved<T> old{load_master<T, W>(c, i), T(0), T(0)};
    if constexpr (M == Moments::fp32) old.m = load<T>(c.m, i), old.v = load<T>(c.v, i);
    if constexpr (M == Moments::bf16) old.m = widen_bf16(load<u16>(c.m, i)), old.v = widen_bf16(load<u16>(c.v, i));
    if constexpr (M == Moments::int8) old.m = decode_m(load<u8>(c.m, i), m_scale), old.v = decode_v(load<u8>(c.v, i), v_scale);
    const T gradient = l.bf16_gradient ? static_cast<T>(widen_bf16(load<u16>(c.gradient, i))) : load<T>(c.gradient, i);
    now[k] = moved(old, gradient, l.parts.of(tile * kTileElems + i));
    store_master<T, W>(c, i, now[k].master);
  }

  if constexpr (M == Moments::int8) {
    __shared__ u32 of_warp[kThreads / 32];
    u32 largest_m = 0, largest_v = 0;
    for (int k = 0; k < kEach; ++k) {
      const u32 m = magnitude(now[k].m), v = magnitude(now[k].v);
      largest_m = largest_m < m ? m : largest_m, largest_v = largest_v < v ? v : largest_v;
    }
    m_scale = shared_scale(largest_m, of_warp), v_scale = shared_scale(largest_v, of_warp);
    std::byte* state = l.new_state + tile * l.state_tile_bytes;
    if (threadIdx.x % 64 == 0) {
      store(state + l.m_scales_begin, moment_block, m_scale);
      store(state + l.m_scales_begin + kScalesBytes, moment_block, v_scale);
    }
    // Each thread block zeroes its share of the unused bytes behind the scales.
    const i64 spread = l.state_tile_bytes / (kTileElems / kBlockElems);
    const i64 from = block_begin % kTileElems / kBlockElems * spread;
    for (i64 at = from + threadIdx.x; at < from + spread; at += kThreads) {
      if (at >= l.used_state_bytes) state[at] = std::byte{0};
    }
  }
  for (int k = 0; k < kEach; ++k) {
    const i64 i = begin + 16 * k;
    const ElementNoise noise = element_noise(words[static_cast<size_t>(k)]);
    if constexpr (M == Moments::fp32) store(c.new_m, i, now[k].m), store(c.new_v, i, now[k].v);
    if constexpr (M == Moments::bf16) {
      store(c.new_m, i, round_moment_bf16(now[k].m, noise.m));
      store(c.new_v, i, round_moment_bf16(now[k].v, noise.v));
    }
    if constexpr (M == Moments::int8) {
      store(c.new_m, i, encode_m(now[k].m, m_scale, noise.m));
      store(c.new_v, i, encode_v(now[k].v, v_scale, noise.v));
    }
  }
}

// A kernel that sums the squares of one tile per thread block; thread i computes partial sum (lane) i.
template <class T>
__global__ void __launch_bounds__(kNormLanes) square_sums(const T* gradient, double* sums) {
  const T* tile = gradient + i64{blockIdx.x} * kTileElems;
  double sum = 0;
  for (i64 i = threadIdx.x; i < kTileElems; i += kNormLanes) {
    const double x = widen(tile[i]);
    sum += x * x;
  }
  __shared__ double lanes[kNormLanes];
  lanes[threadIdx.x] = sum;
  for (unsigned width = kNormLanes / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) lanes[threadIdx.x] += lanes[threadIdx.x + width];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = lanes[0];
}

Columns columns_of(const StateFormat& f, const TileOperands& tile) {
  // the average begins where the master ends, so an offset above 0 means that the state has a master
  const bool has_master = f.average_begin_bytes() > 0;
  return {tile.gradient,
          tile.weight,
          has_master ? tile.state : nullptr,
          tile.state + f.m_begin_bytes(),
          tile.state + f.v_begin_bytes(),
          tile.new_weight,
          has_master ? tile.new_state : nullptr,
          tile.new_state + f.m_begin_bytes(),
          tile.new_state + f.v_begin_bytes()};
}

template <class T, Weights W, Moments M>
void launch_all(Launch<T> l, i64 elems, std::span<const TilePart> parts) {
  for_part_tables<T>(elems, parts, [&](i64 begin, i64 blocks, const PartTable<T>& table) {
    l.begin = begin, l.parts = table;
    launch("adamw", update_tiles<T, W, M>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), l);
  });
}

template <class T>
Launch<T> launch_of(const StateFormat& f, const TileOperands& first, const RoundingNoise& noise) {
  Launch<T> l{};
  l.first = columns_of(f, first);
  l.gradient_tile_bytes = f.gradient_tile_bytes(), l.weight_tile_bytes = f.weight_tile_bytes(), l.state_tile_bytes = f.state_tile_bytes();
  if (f.moments == Moments::int8) {
    l.m_scales_begin = f.scales_begin_bytes();
    l.used_state_bytes = l.m_scales_begin + 2 * kScalesBytes;
  }
  l.state = first.state, l.new_state = first.new_state;
  l.bf16_gradient = f.gradient == DType::bf16;
  l.noise = noise;
  return l;
}

}  // namespace

void adamw_update_tiles_on_gpu(const StateFormat& format, const TileOperands& first, i64 tiles, std::span<const TilePart> parts,
                               const RoundingNoise& noise) {
  format.check();
  const i64 elems = tiles * kTileElems;
  require(format.rule == Rule::adamw, "[adamw] expected a state format of AdamW");
  check_parts(parts, elems, noise);
  if (format.weight == DType::f64)
    return launch_all<double, Weights::own_master, Moments::fp32>(launch_of<double>(format, first, noise), elems, parts);
  for_fp32_format(format, [&]<Weights W, Moments M>() { launch_all<float, W, M>(launch_of<float>(format, first, noise), elems, parts); });
}

void tile_square_sums_on_gpu(const std::byte* gradient, DType dtype, i64 tiles, double* sums) {
  if (tiles == 0) return;
  const auto run = [&]<class T>(T) {
    launch("square_sums", square_sums<T>, dim3(static_cast<unsigned>(tiles)), dim3(kNormLanes), reinterpret_cast<const T*>(gradient), sums);
  };
  if (dtype == DType::f64) return run(double{});
  dtype == DType::bf16 ? run(BFloat16{}) : run(float{});
}

}  // namespace spillway::optim
