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
  Kind stands_for = Kind::cpu;  // of meta: whose workspaces and allocations it has

  static Device cpu() { return {}; }
  static Device cuda(int index) { return {Kind::cuda, index, Kind::cuda}; }
  static Device meta(Kind stands_for = Kind::cpu) { return {Kind::meta, 0, stands_for}; }
  bool is_meta() const { return kind == Kind::meta; }
  bool is_cuda() const { return kind == Kind::cuda; }
  /// It, or what it stands for.
  bool works_as_cuda() const { return (is_meta() ? stands_for : kind) == Kind::cuda; }
  bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:1", "meta".
std::string to_string(Device device);

}  // namespace spillway
