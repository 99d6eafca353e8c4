#include "optim/lanes_scalar.h"

#include "base/error.h"
#include "device/launch_cuda.h"
#include "optim/adamw_element.h"
#include "optim/rules/gpu.h"
#include "optim/rules/rules_inl.h"
#include "optim/rules/rules_paths.h"
#include "optim/tile_parts_cuda.h"

namespace spillway::optim {
namespace {

// The arguments of one launch. `first` points to the first tile, from whose begin the part table counts
// elements. The kernel reads the format at run time, so that one kernel per rule suffices for all formats.
template <class T>
struct RuleLaunch {
  TileOperands first;
  i64 gradient_tile_bytes, weight_tile_bytes, state_tile_bytes, array_begin[kMaxStateArrays];
  Weights weights;
  bool bf16_gradient, bf16_moments;
  i64 begin;
  RoundingNoise noise;
  PartTable<T> parts;
};
static_assert(sizeof(RuleLaunch<double>) <= 4096, "expected arguments that fit into a kernel launch");

template <class T>
__device__ T at(const std::byte* column, i64 i) {
  return reinterpret_cast<const T*>(column)[i];
}
template <class T>
__device__ void put(std::byte* column, i64 i, T x) {
  reinterpret_cast<T*>(column)[i] = x;
}

template <class T>
__device__ T widened(const std::byte* column, i64 i, bool bf16) {
  return bf16 ? static_cast<T>(widen_bf16(at<u16>(column, i))) : at<T>(column, i);
}

template <class T>
__device__ T master_of(const RuleLaunch<T>& l, const TileOperands& tile, i64 i) {
  if (l.weights == Weights::own_master) return at<T>(tile.weight, i);
  if (l.weights == Weights::split_master) return join_master(at<u16>(tile.weight, i), at<u16>(tile.state, i));
  return at<float>(tile.state, i);
}

template <class T>
__device__ void put_master(const RuleLaunch<T>& l, const TileOperands& tile, i64 i, T x) {
  if (l.weights == Weights::own_master) return put(tile.new_weight, i, x);
  const float master = canonical(static_cast<float>(x));
  put(tile.new_weight, i, l.weights == Weights::fp32_master_of_f16 ? round_f16(master) : weight_of_master(master));
  if (l.weights == Weights::split_master) return put(tile.new_state, i, remainder_of_master(master));
  put(tile.new_state, i, master);
}

template <class L>
__device__ Scalars<scalar::Number<L>> numbers(const Scalars<typename L::Element>& s) {
  return {{s.gradient_scale},  {s.weight_decay},     {s.decay}, {s.beta1},    {s.one_minus_beta1},     {s.beta2},
          {s.one_minus_beta2}, {s.root_correction2}, {s.eps},   {s.momentum}, {s.one_minus_dampening}, {s.step_size}};
}

template <Rule kRule, class T>
__global__ void __launch_bounds__(kTileThreads) update_tiles(RuleLaunch<T> l) {
  using L = scalar::Lane<T>;
  constexpr int kStates = state_arrays(kRule);
  const i64 block_begin = l.begin + i64{blockIdx.x} * kBlockElems, tile = block_begin / kTileElems;
  // the index of the element in the tile
  const i64 begin = block_begin % kTileElems + i64{threadIdx.x / 16} * kRowElems + threadIdx.x % 16;
  TileOperands o = l.first;
  o.gradient += tile * l.gradient_tile_bytes;
  o.weight += tile * l.weight_tile_bytes, o.new_weight += tile * l.weight_tile_bytes;
  o.state += tile * l.state_tile_bytes, o.new_state += tile * l.state_tile_bytes;
  std::array<u32, 4> words{}, more_words{};
  if (l.bf16_moments) {
    const u64 counter = noise_counter(l.noise.first_element + static_cast<u64>(tile * kTileElems + begin));
    words = philox(l.noise.key, l.noise.t, counter);
    if (kStates == 3) more_words = philox(l.noise.key, l.noise.t, counter + (u64{1} << 63));
  }
  for (int k = 0; k < kEach; ++k) {
    const i64 i = begin + 16 * k;
    scalar::Number<L> x[1 + kStates];
    x[0] = {master_of(l, o, i)};
    for (int s = 0; s < kStates; ++s) x[1 + s] = {widened<T>(o.state + l.array_begin[s], i, l.bf16_moments)};
    const scalar::Number<L> gradient{widened<T>(o.gradient, i, l.bf16_gradient)};
    scalar::step<kRule>(x, gradient, numbers<L>(l.parts.of(tile * kTileElems + i)));
    put_master(l, o, i, x[0].lanes);
    for (int s = 0; s < kStates; ++s) {
      std::byte* column = o.new_state + l.array_begin[s];
      const ElementNoise noise = element_noise(s == 2 ? more_words[static_cast<size_t>(k)] : words[static_cast<size_t>(k)]);
      if (l.bf16_moments)
        put(column, i, round_moment_bf16(static_cast<float>(x[1 + s].lanes), s == 1 ? noise.v : noise.m));
      else
        put(column, i, x[1 + s].lanes);
    }
  }
}

Weights weights_of(const StateFormat& f) {
  if (f.weight == DType::f16) return Weights::fp32_master_of_f16;
  if (f.weight != DType::bf16) return Weights::own_master;
  return f.master == Master::split ? Weights::split_master : Weights::fp32_master;
}

template <class T>
void update_tiles(const StateFormat& f, const TileOperands& first, i64 elems, std::span<const TilePart> parts, const RoundingNoise& noise) {
  RuleLaunch<T> l{.first = first,
                  .gradient_tile_bytes = f.gradient_tile_bytes(),
                  .weight_tile_bytes = f.weight_tile_bytes(),
                  .state_tile_bytes = f.state_tile_bytes(),
                  .array_begin = {f.array_begin_bytes(0), f.array_begin_bytes(1), f.array_begin_bytes(2)},
                  .weights = weights_of(f),
                  .bf16_gradient = f.gradient == DType::bf16,
                  .bf16_moments = f.moments == Moments::bf16,
                  .begin = 0,
                  .noise = noise,
                  .parts = {}};
  for_part_tables<T>(elems, parts, [&](i64 begin, i64 blocks, const PartTable<T>& table) {
    l.begin = begin, l.parts = table;
    for_rule(f.rule, [&]<Rule kRule>() {
      launch(to_string(f.rule), update_tiles<kRule, T>, dim3(static_cast<unsigned>(blocks)), dim3(kTileThreads), l);
    });
  });
}

}  // namespace

void update_tiles_on_gpu(const StateFormat& format, const TileOperands& first, i64 tiles, std::span<const TilePart> parts,
                         const RoundingNoise& noise) {
  require(!steps_wholes(format.rule), "[rules] expected an elementwise optimizer on a GPU");
  if (format.rule == Rule::adamw) return adamw_update_tiles_on_gpu(format, first, tiles, parts, noise);
  format.check();
  check_parts(parts, tiles * kTileElems, noise);
  format.weight == DType::f64 ? update_tiles<double>(format, first, tiles * kTileElems, parts, noise)
                              : update_tiles<float>(format, first, tiles * kTileElems, parts, noise);
}

}  // namespace spillway::optim
