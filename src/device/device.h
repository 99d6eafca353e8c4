// Defines Device, on which code runs and on which a Tensor lives. Places where bytes are only stored are Tiers
// (offload/), deliberately another type. The `meta` device computes shapes and sizes only: its storages hold no
// memory and kernels do nothing. A plan learns its memory needs from a run on the meta device before step 1.
#pragma once
#include <string>

#include "base/types.h"

namespace spillway {

struct Device {
  enum class Kind { cpu, cuda, meta };
  Kind kind = Kind::cpu;
  int index = 0;
  Kind stands_for = Kind::cpu;  // for the meta device: the kind whose workspaces and allocations it imitates

  static Device cpu() { return {}; }
  static Device cuda(int index) { return {Kind::cuda, index, Kind::cuda}; }
  static Device meta(Kind stands_for = Kind::cpu) { return {Kind::meta, 0, stands_for}; }
  bool is_meta() const { return kind == Kind::meta; }
  bool is_cuda() const { return kind == Kind::cuda; }
  /// Returns whether this device, or the one that a meta device imitates, is a GPU.
  bool works_as_cuda() const { return (is_meta() ? stands_for : kind) == Kind::cuda; }
  bool operator==(const Device&) const = default;
};

/// Returns the name of the device: "cpu", "cuda:1" or "meta".
std::string to_string(Device device);

}  // namespace spillway
