#include "device/arena.h"

#include <algorithm>

#include "base/error.h"

namespace spillway {

Allocation Arena::allocate(i64 bytes, const char* what) {
  const i64 size = std::max(round_up(bytes, kAllocationAlignment), kAllocationAlignment);
  i64 at = 0;
  for (auto& [offset, taken] : taken_) {
    if (offset - at >= size) break;
    at = offset + taken;
  }
  if (capacity_ >= 0 && at + size > capacity_) {
    throw Error(ErrorCode::bug, std::string("[arena] the slab of ") + std::to_string(capacity_) + " bytes has no room for " +
                                    std::to_string(bytes) + " bytes for " + what + ": the plan was made for less");
  }
  taken_.emplace(at, size);
  used_bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, at + size);
  return Allocation(this, base_ ? base_ + at : nullptr, at, bytes);
}

void Arena::release(std::byte*, i64 offset, i64) noexcept {
  const auto piece = taken_.find(offset);
  if (piece == taken_.end()) return;
  used_bytes_ -= piece->second;
  taken_.erase(piece);
}

}  // namespace spillway
