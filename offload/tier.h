// Names the memory tiers in which tensors are stored, and counts the bytes moved between them. A Tier is not a Device (device/device.h): on
// the CPU backend the device tier is host memory with a separate budget.
#pragma once
#include <array>
#include <atomic>
#include <string_view>

#include "base/types.h"

namespace spillway::offload {

enum class Tier : u8 { device, host, nvme };
constexpr int kTiers = 3;

constexpr std::string_view to_string(Tier tier) {
  constexpr std::string_view names[] = {"device", "host", "nvme"};
  return names[static_cast<size_t>(tier)];
}

/// Counts the bytes read from and written to stored blobs, per tier, since the counters were made. Reads that a checkpoint save makes
/// beside the training steps are counted in read_for_saves_bytes. Copies within the device are not counted.
struct Traffic {
  using Bytes = std::array<std::atomic<i64>, kTiers>;
  Bytes read_bytes{}, written_bytes{}, read_for_saves_bytes{};
  Bytes& reads(bool for_save) { return for_save ? read_for_saves_bytes : read_bytes; }
};

}  // namespace spillway::offload
