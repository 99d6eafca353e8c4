// A slab with a deterministic first-fit allocator: the same sequence of requests gives the same offsets, with memory under it or without
// (base == nullptr: the meta device). So a dry run of a block on the meta device tells the exact bytes the real run needs, fragmentation
// included. Used by one thread at a time.
#pragma once
#include <map>

#include "device/allocator.h"

namespace spillway {

class Arena final : public Allocator {
 public:
  /// Without memory; grows as asked. peak_bytes() afterwards is the size the slab must have.
  Arena() = default;
  /// Over [base, base + bytes).
  Arena(std::byte* base, i64 bytes) : base_(base), capacity_(bytes) {}

  /// Throws Error(bug) when the slab is too small: the plan promised that it is not.
  Allocation allocate(i64 bytes, const char* what) override;

  i64 used_bytes() const { return used_bytes_; }
  /// Highest end of any piece handed out since construction.
  i64 peak_bytes() const { return peak_bytes_; }

 private:
  void release(std::byte* data, i64 offset, i64 bytes) noexcept override;

  std::byte* base_ = nullptr;
  i64 capacity_ = -1;        // -1: unbounded
  std::map<i64, i64> gaps_;  // offset -> bytes; none reaches end_
  i64 end_ = 0;              // of the last piece
  i64 used_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace spillway
