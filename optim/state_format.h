// How a tile of kTileElems parameters rests: the weight, the gradient and the optimizer's state, each a tile of its own.
// A state tile is master | average | the rule's arrays (of AdamW m and v), with int8 moments then the scales, every part at a multiple of
// 4096 bytes:
//   master  f32 of bf16 and f16; or of bf16 u16, the lower half of the fp32 master whose upper half is the weight; or nothing (f32 and f64
//   are their own master)
//   average f32 (f64 with f64 weights), where one is kept (average_tile.h)
//   arrays  f32 (f64 with f64 weights), bf16, or 8 bits
//   scales  f32 of m's 64 blocks of 256 elements, then of v's; the rest zero
//   factors behind the arrays: those of a parameter one after the other in its tiles (rules/adafactor.h)
// A rule without arrays leaves an f32 or f64 weight without a state: 0 bytes a tile. bf16 and 8-bit moments are approximations; every
// master is exact, and the split master gives the bits of the plain one.
// A value; thread-safe.
#pragma once
#include "base/types.h"
#include "optim/norm.h"
#include "optim/rule.h"
#include "tensor/dtype.h"

namespace spillway::optim {

/// Of bf16 weights; that of f16 ones is fp32.
enum class Master : u8 { fp32, split };
/// Of all of a rule's arrays; fp32 is f64 with f64 weights. int8 is AdamW's alone.
enum class Moments : u8 { fp32, bf16, int8 };

/// Elements that share a scale in 8-bit moments.
constexpr i64 kMomentBlockElems = 256;
constexpr i64 kMomentBlocks = kTileElems / kMomentBlockElems;
/// Of m's scales, and of v's.
constexpr i64 kScalesBytes = kMomentBlocks * 4;

struct StateFormat {
  DType weight = DType::f32;  // f32, f64, bf16 or f16
  Master master = Master::fp32;
  Moments moments = Moments::fp32;
  DType gradient = DType::f32;  // or bf16; f64 with f64 weights
  Rule rule = Rule::adamw;
  bool average = false;  // of the weights, beside them
  i64 factors = 0;       // of Rule::adafactor_factored: how many a tile holds, f32 (f64 with f64 weights)

  /// Throws Error(usage) on a combination that does not exist.
  void check() const;
  /// A weight that is its own master, or half of it; one with a whole master beside it is written only.
  bool update_reads_weight() const { return !is_half(weight) || master == Master::split; }
  i64 weight_tile_bytes() const { return kTileElems * size_of(weight); }
  i64 gradient_tile_bytes() const { return kTileElems * size_of(gradient); }
  /// A multiple of 4096, as are the starts below.
  i64 state_tile_bytes() const;
  /// Where there is one.
  i64 average_begin_bytes() const;
  /// Of the rule's array k, counted from 0: where the last one ends if it has no more.
  i64 array_begin_bytes(int k) const;
  i64 m_begin_bytes() const { return array_begin_bytes(0); }
  i64 v_begin_bytes() const { return array_begin_bytes(1); }
  /// With int8 moments only.
  i64 scales_begin_bytes() const;
  /// The same of a rule without arrays and without an average: a master at most.
  StateFormat without_arrays() const;
  i64 factors_begin_bytes() const { return array_begin_bytes(state_arrays(rule)); }
  /// The same of a parameter of two or more dimensions under Rule::adafactor, of whose factors each tile must hold so many.
  StateFormat factored(i64 least) const;
  /// The same of what a rule of matrices leaves to AdamW; itself of any other rule.
  StateFormat beside_matrices() const;
  bool operator==(const StateFormat&) const = default;
};

/// Nothing rounded but the weight: f32 and f64 all through, bf16 and f16 with an fp32 master. AdamW's.
StateFormat plain_format(DType weight);

}  // namespace spillway::optim
