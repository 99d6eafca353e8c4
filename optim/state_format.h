// The storage format of a tile of kTileElems parameters: the weight, the gradient and the optimizer's state, each in a separate tile. A
// state tile consists of the master, the average and the rule's arrays (for AdamW m and v), in this order. Scales follow if the moments are
// int8, factors if the rule is adafactor_factored. Every part begins at a multiple of 4096 bytes:
//   master  f32 for bf16 and f16 weights; or for bf16 u16, the lower half of the fp32 master whose upper half is the weight; or
//   nothing
//           (f32 and f64 weights are their own master)
//   average f32 (f64 with f64 weights), if the format keeps one (average_tile.h)
//   arrays  f32 (f64 with f64 weights), bf16, or 8 bits
//   scales  f32 for m's 64 blocks of 256 elements, then for v's; the rest zero
//   factors behind the arrays: Adafactor's factors of a parameter, distributed over its tiles in order (rules/adafactor.h)
// With a rule without arrays, an f32 or f64 weight has no state: 0 bytes per tile. bf16 and 8-bit moments are approximations; every master
// is exact, and the split master gives bitwise the results of the plain one. StateFormat is a value type and thread-safe.
#pragma once
#include "base/types.h"
#include "optim/norm.h"
#include "optim/rule.h"
#include "tensor/dtype.h"

namespace spillway::optim {

/// Selects how bf16 weights store their master weight; f16 weights always have an fp32 master.
enum class Master : u8 { fp32, split };
/// The type of all state arrays of a rule; with f64 weights, fp32 stands for f64. Only AdamW has int8.
enum class Moments : u8 { fp32, bf16, int8 };

/// The number of elements that share a scale in 8-bit moments.
constexpr i64 kMomentBlockElems = 256;
constexpr i64 kMomentBlocks = kTileElems / kMomentBlockElems;
/// The bytes that the scales of m take; the scales of v take as many.
constexpr i64 kScalesBytes = kMomentBlocks * 4;

struct StateFormat {
  DType weight = DType::f32;  // the weight's type: f32, f64, bf16 or f16
  Master master = Master::fp32;
  Moments moments = Moments::fp32;
  DType gradient = DType::f32;  // the gradient's type: f32 or bf16; f64 with f64 weights
  Rule rule = Rule::adamw;
  bool average = false;  // the state keeps an average of the weights
  i64 factors = 0;       // the number of factors per tile with Rule::adafactor_factored, f32 (f64 with f64 weights)

  /// Throws Error(usage) if this combination of types, moments and rule is not supported.
  void check() const;
  /// Returns true if an update reads the weight tile: the weight is its own master, or half of it. With a whole master in the state the
  /// weight is only written.
  bool update_reads_weight() const { return !is_half(weight) || master == Master::split; }
  i64 weight_tile_bytes() const { return kTileElems * size_of(weight); }
  i64 gradient_tile_bytes() const { return kTileElems * size_of(gradient); }
  /// Returns the size of a state tile in bytes, a multiple of 4096. The offsets that the functions below return are multiples of 4096 too.
  i64 state_tile_bytes() const;
  /// Returns the offset of the average, which is also where the master ends.
  i64 average_begin_bytes() const;
  /// Returns the offset of the rule's array k, counted from 0. If the rule has no array k, returns the end of its last array.
  i64 array_begin_bytes(int k) const;
  i64 m_begin_bytes() const { return array_begin_bytes(0); }
  i64 v_begin_bytes() const { return array_begin_bytes(1); }
  /// Returns the offset of the scales. The format must have int8 moments.
  i64 scales_begin_bytes() const;
  /// Returns this format for a rule without arrays and without an average; the state then holds a master at most.
  StateFormat without_arrays() const;
  i64 factors_begin_bytes() const { return array_begin_bytes(state_arrays(rule)); }
  /// Returns this format for a parameter of two or more dimensions under Rule::adafactor, with room for at least `least` factors per tile.
  StateFormat factored(i64 least) const;
  /// Returns the format of parameters that Muon does not update (those that are no
  /// matrices): this format with AdamW. For any other rule, returns this format.
  StateFormat beside_matrices() const;
  bool operator==(const StateFormat&) const = default;
};

/// Returns AdamW's format in which nothing is rounded but the weight: f32 and f64 throughout, bf16 and f16 with an fp32 master.
StateFormat plain_format(DType weight);

}  // namespace spillway::optim
