// Where a folder stores the weights of one expert if it stacks those of all experts of a layer, as transformers 5 does: the tensors
// NAME.gate_up_proj [E, 2 F, C], of each expert the gate and then up, and NAME.down_proj [E, C, F]. Shape letters: E = experts, F = width
// of an expert, C = width.
#pragma once
#include <string>

#include "nn/stored_part.h"

namespace spillway::models {

struct StackedExpert {
  std::string name;
  i64 experts, width_F, width_C, expert;

  nn::StoredPart gate() const { return {name + ".gate_up_proj", {experts, 2 * width_F, width_C}, 2 * expert * elems(), {{elems(), 1}}}; }
  nn::StoredPart up() const {
    return {name + ".gate_up_proj", {experts, 2 * width_F, width_C}, (2 * expert + 1) * elems(), {{elems(), 1}}};
  }
  nn::StoredPart down() const { return {name + ".down_proj", {experts, width_C, width_F}, expert * elems(), {{elems(), 1}}}; }
  i64 elems() const { return width_F * width_C; }
};

}  // namespace spillway::models
