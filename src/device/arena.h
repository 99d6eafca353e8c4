// Defines Arena, a deterministic first-fit allocator that divides up one contiguous region, the slab. Equal sequences of requests
// give equal offsets, whether the slab has memory or not (base == nullptr: the meta device). A dry run of a model block on the meta
// device therefore tells exactly how many bytes the real run needs, fragmentation included. An arena is used by one thread at a time.
#pragma once
#include <map>

#include "device/allocator.h"

namespace spillway {

class Arena final : public Allocator {
 public:
  /// Creates an arena without memory that grows as requested. After the requests, peak_bytes() is the size that a real slab needs.
  Arena() = default;
  /// Creates an arena over the memory [base, base + bytes).
  Arena(std::byte* base, i64 bytes) : base_(base), capacity_(bytes) {}

  /// Throws Error(bug) when the slab is too small. That is a bug, since the plan computed the slab's size beforehand.
  Allocation allocate(i64 bytes, const char* what) override;

  i64 used_bytes() const { return used_bytes_; }
  /// Returns the highest end offset of any piece allocated since construction.
  i64 peak_bytes() const { return peak_bytes_; }

 private:
  void release(std::byte* data, i64 offset, i64 bytes) noexcept override;

  std::byte* base_ = nullptr;
  i64 capacity_ = -1;        // the size of the slab in bytes; -1 if it is unbounded
  std::map<i64, i64> gaps_;  // the free pieces: offset -> size in bytes; all lie below end_
  i64 end_ = 0;              // the end offset of the last piece in use
  i64 used_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace spillway
