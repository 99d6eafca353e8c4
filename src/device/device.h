// Where code runs. A Device is where a Tensor lives; where bytes merely rest is a Tier (offload/), and the two are never one enum.
// `meta` computes shapes and sizes only: its storages hold no memory and kernels skip it, which is how a plan learns its bytes before
// step 1.
#pragma once
#include <string>

#include "base/types.h"

namespace spillway {

struct Device {
  enum class Kind { cpu, cuda, meta };
  Kind kind = Kind::cpu;
  int index = 0;

  static Device cpu() { return {}; }
  static Device cuda(int index) { return {Kind::cuda, index}; }
  static Device meta() { return {Kind::meta, 0}; }
  bool is_meta() const { return kind == Kind::meta; }
  bool is_cuda() const { return kind == Kind::cuda; }
  bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:1", "meta".
std::string to_string(Device device);

}  // namespace spillway
