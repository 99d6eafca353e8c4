#include "optim/rules/tile.h"

#include <algorithm>

#include "base/error.h"
#include "optim/adamw_element.h"
#include "optim/element.h"
#include "optim/rules/adafactor.h"
#include "optim/rules/muon.h"
#include "optim/rules/rules_paths.h"

namespace spillway::optim {
namespace {

constexpr i64 kScratchElems = 512;  // the number of elements of a scratch array; all scratch arrays together fit the L1 cache

template <class T>
struct Scratch {
  alignas(64) T gradient[kScratchElems];
  alignas(64) T array[1 + kMaxStateArrays][kScratchElems];
};

struct Job {
  const StateFormat& format;
  const TileOperands& tile;
  const RoundingNoise& noise;
  Isa isa;
};

// A run of elements of a tile that share their scalars and are updated together.
struct Row {
  i64 begin, elems;
};

template <class T>
const T* at(const std::byte* column, i64 i) {
  return reinterpret_cast<const T*>(column) + i;
}
template <class T>
T* at(std::byte* column, i64 i) {
  return reinterpret_cast<T*>(column) + i;
}

void widen_row(const std::byte* column, const Row& row, float* out) {
  for (i64 i = 0; i < row.elems; ++i) out[i] = widen_bf16(load_element<u16>(column, row.begin + i));
}

// Computes the random word of each element of a row.
void noise_words(const RoundingNoise& noise, const Row& row, u64 first_counter, u32 (&words)[kScratchElems]) {
  const u64 begin = noise.first_element + static_cast<u64>(row.begin), end = begin + static_cast<u64>(row.elems);
  for (u64 line = begin / kRowElems * kRowElems; line < end; line += kRowElems) {
    for (u64 lane = 0; lane < 16; ++lane) {
      const auto four = philox(noise.key, noise.t, first_counter + noise_counter(line + lane));
      for (u64 k = 0; k < 4; ++k) {
        const u64 e = line + lane + 16 * k;
        if (e >= begin && e < end) words[e - begin] = four[k];
      }
    }
  }
}

void round_row(const Job& job, const Row& row, int array, const float* values, std::byte* column) {
  u32 words[kScratchElems];
  noise_words(job.noise, row, array == 2 ? u64{1} << 63 : 0, words);
  for (i64 i = 0; i < row.elems; ++i) {
    const ElementNoise noise = element_noise(words[i]);
    store_element(column, row.begin + i, round_moment_bf16(values[i], array == 1 ? noise.v : noise.m));
  }
}

// Sets where the rule reads and writes the master: directly in its column, or in scratch memory, into which the old master is copied.
void take_master(const Job& job, const Row& row, float* scratch, Arrays<float>& arrays) {
  const StateFormat& f = job.format;
  if (!is_half(f.weight)) {
    arrays.old[0] = at<float>(job.tile.weight, row.begin);
    arrays.next[0] = at<float>(job.tile.new_weight, row.begin);
    return;
  }
  arrays.old[0] = arrays.next[0] = scratch;
  for (i64 i = 0; i < row.elems; ++i) {
    const i64 e = row.begin + i;
    scratch[i] = f.master == Master::split ? join_master(load_element<u16>(job.tile.weight, e), load_element<u16>(job.tile.state, e))
                                           : load_element<float>(job.tile.state, e);
  }
}

void put_master(const Job& job, const Row& row, const float* scratch) {
  const StateFormat& f = job.format;
  if (!is_half(f.weight)) return;
  for (i64 i = 0; i < row.elems; ++i) {
    const i64 e = row.begin + i;
    const float master = canonical(scratch[i]);
    store_element(job.tile.new_weight, e, f.weight == DType::f16 ? round_f16(master) : weight_of_master(master));
    if (f.master == Master::split)
      store_element(job.tile.new_state, e, remainder_of_master(master));
    else
      store_element(job.tile.new_state, e, master);
  }
}

template <class T>
void update_by_rule(const Job& job, const Row& row, const Arrays<T>& arrays, const Scalars<double>& scalars) {
  if (is_of_parameters(job.format.rule)) return adafactor_update(arrays, at<T>(job.tile.direction, row.begin), row.elems, scalars);
  if (job.format.rule == Rule::muon) return muon_update(arrays, at<T>(job.tile.direction, row.begin), row.elems, scalars);
  update_arrays(job.format.rule, arrays, row.elems, scalars, job.isa);
}

void update_row(const Job& job, const Row& row, const Scalars<double>& scalars, Scratch<float>& scratch) {
  const StateFormat& f = job.format;
  const bool rounds = f.moments == Moments::bf16, bf16_gradient = f.gradient == DType::bf16;
  const int states = state_arrays(f.rule);
  Arrays<float> arrays{.old = {}, .next = {}, .gradient = bf16_gradient ? scratch.gradient : at<float>(job.tile.gradient, row.begin)};
  if (bf16_gradient) widen_row(job.tile.gradient, row, scratch.gradient);
  take_master(job, row, scratch.array[0], arrays);
  for (int k = 0; k < states; ++k) {
    const i64 begin = f.array_begin_bytes(k);
    arrays.old[1 + k] = rounds ? scratch.array[1 + k] : at<float>(job.tile.state + begin, row.begin);
    arrays.next[1 + k] = rounds ? scratch.array[1 + k] : at<float>(job.tile.new_state + begin, row.begin);
    if (rounds) widen_row(job.tile.state + begin, row, scratch.array[1 + k]);
  }
  update_by_rule(job, row, arrays, scalars);
  put_master(job, row, scratch.array[0]);
  for (int k = 0; rounds && k < states; ++k) round_row(job, row, k, scratch.array[1 + k], job.tile.new_state + f.array_begin_bytes(k));
}

// Updates a row in f64: nothing is rounded, so no scratch memory is needed.
void update_row(const Job& job, const Row& row, const Scalars<double>& scalars, Scratch<double>&) {
  Arrays<double> arrays{.old = {at<double>(job.tile.weight, row.begin)},
                        .next = {at<double>(job.tile.new_weight, row.begin)},
                        .gradient = at<double>(job.tile.gradient, row.begin)};
  for (int k = 0; k < state_arrays(job.format.rule); ++k) {
    const i64 begin = job.format.array_begin_bytes(k);
    arrays.old[1 + k] = at<double>(job.tile.state + begin, row.begin);
    arrays.next[1 + k] = at<double>(job.tile.new_state + begin, row.begin);
  }
  update_by_rule(job, row, arrays, scalars);
}

template <class T>
void update_parts(const Job& job, std::span<const TilePart> parts) {
  Scratch<T> scratch;
  i64 begin = 0;
  for (const TilePart& part : parts) {
    for (; begin < part.end; begin = std::min(part.end, begin + kScratchElems)) {
      const Row row{begin, std::min(kScratchElems, part.end - begin)};
      update_row(job, row, part.scalars ? *part.scalars : kGapScalars<double>, scratch);
    }
  }
}

}  // namespace

void update_tile(const StateFormat& format, const TileOperands& tile, std::span<const TilePart> parts, const RoundingNoise& noise, Isa isa,
                 bool streaming) {
  if (format.rule == Rule::adamw) return adamw_update_tile(format, tile, parts, noise, isa, streaming);
  format.check();
  check_parts(parts, kTileElems, noise);
  require(!steps_wholes(format.rule) || tile.direction,
          "[optimizer] expected a step direction for an optimizer that works on whole parameters");
  const Job job{format, tile, noise, resolve(isa)};
  format.weight == DType::f64 ? update_parts<double>(job, parts) : update_parts<float>(job, parts);
}

}  // namespace spillway::optim
