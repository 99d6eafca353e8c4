#include "device/arena.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace spillway {

namespace {

i64 rounded(i64 bytes) { return std::max(round_up(bytes, kAllocationAlignment), kAllocationAlignment); }

}  // namespace

Allocation Arena::allocate(i64 bytes, const char* what) {
  const i64 size = rounded(bytes);
  const auto gap = std::ranges::find_if(gaps_, [&](const auto& g) { return g.second >= size; });
  const i64 at = gap != gaps_.end() ? gap->first : end_;
  if (capacity_ >= 0 && at + size > capacity_) {
    throw Error(ErrorCode::bug, std::string("[arena] the slab of ") + std::to_string(capacity_) + " bytes has no room for " +
                                    std::to_string(bytes) + " bytes for " + what + ": the memory plan reserved less than this needs");
  }
  if (gap == gaps_.end()) {
    end_ += size;
  } else {
    const i64 left = gap->second - size;
    gaps_.erase(gap);
    if (left > 0) gaps_.emplace(at + size, left);
  }
  used_bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, at + size);
  return Allocation(this, base_ ? base_ + at : nullptr, at, bytes);
}

// Returns a piece to the free list and merges it with adjacent free pieces.
void Arena::release(std::byte*, i64 offset, i64 bytes) noexcept {
  i64 size = rounded(bytes);
  used_bytes_ -= size;
  auto next = gaps_.lower_bound(offset);
  if (next != gaps_.end() && next->first == offset + size) {
    size += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      gaps_.erase(before);
    }
  }
  if (offset + size == end_) {
    end_ = offset;
  } else {
    gaps_.emplace(offset, size);
  }
}

}  // namespace spillway
