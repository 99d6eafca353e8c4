// Says where a folder stores the weights of one expert if it stacks those of all experts of a layer, as transformers 5 does: one tensor
// [E, 2 F, C] with the gate and then up of each expert, and one [E, C, F] with down. Shape letters: E = experts, F = width of an expert,
// C = width.
#pragma once
#include <string>

#include "nn/stored_part.h"

namespace spillway::models {

struct StackedExpert {
  std::string gate_up_name, down_name;
  i64 experts, width_F, width_C, expert;

  nn::StoredPart gate() const { return {gate_up_name, {experts, 2 * width_F, width_C}, 2 * expert * elems(), {{elems(), 1}}}; }
  nn::StoredPart up() const { return {gate_up_name, {experts, 2 * width_F, width_C}, (2 * expert + 1) * elems(), {{elems(), 1}}}; }
  nn::StoredPart down() const { return {down_name, {experts, width_C, width_F}, expert * elems(), {{elems(), 1}}}; }
  i64 elems() const { return width_F * width_C; }
};

/// Says where a folder of gpt-oss stores an expert: NAME.gate_up_proj [E, C, 2 F] and gate_up_proj_bias [E, 2 F] with gate and up in turn
/// along the last axis, NAME.down_proj [E, F, C] and down_proj_bias [E, C].
struct InterleavedExpert {
  std::string name;
  i64 experts, width_F, width_C, expert;

  nn::StoredPart gate() const { return half(0); }
  nn::StoredPart up() const { return half(1); }
  nn::StoredPart down() const {
    return {name + ".down_proj", {experts, width_F, width_C}, expert * width_F * width_C, {{width_C, 1}, {width_F, width_C}}};
  }
  /// The same parts where a folder stores the weights in MXFP4, which it does with the inputs last: NAME.gate_up_proj_blocks and _scales
  /// of [E, 2 F, C], NAME.down_proj_blocks and _scales of [E, C, F]. C and F must be multiples of 32.
  nn::StoredPart gate_mxfp4() const { return half_mxfp4(0); }
  nn::StoredPart up_mxfp4() const { return half_mxfp4(1); }
  nn::StoredPart down_mxfp4() const {
    const i64 elems = width_F * width_C;
    return {name + ".down_proj_blocks", {experts, width_C, width_F}, expert * elems, {{elems, 1}}, name + ".down_proj_scales"};
  }
  nn::StoredPart gate_bias() const { return half_bias(0); }
  nn::StoredPart up_bias() const { return half_bias(1); }
  nn::StoredPart down_bias() const { return {name + ".down_proj_bias", {experts, width_C}, expert * width_C, {{width_C, 1}}}; }

 private:
  nn::StoredPart half(i64 second) const {
    const i64 row = 2 * width_F;
    return {name + ".gate_up_proj", {experts, width_C, row}, expert * width_C * row + second, {{width_F, 2}, {width_C, row}}};
  }
  nn::StoredPart half_mxfp4(i64 second) const {
    return {name + ".gate_up_proj_blocks",
            {experts, 2 * width_F, width_C},
            (expert * 2 * width_F + second) * width_C,
            {{width_F, 2 * width_C}, {width_C, 1}},
            name + ".gate_up_proj_scales"};
  }
  nn::StoredPart half_bias(i64 second) const {
    return {name + ".gate_up_proj_bias", {experts, 2 * width_F}, expert * 2 * width_F + second, {{width_F, 2}}};
  }
};

}  // namespace spillway::models
