// Defines Allocator, the interface of memory allocators for tensors. A MemoryPool allocates
// real memory under a budget. An Arena divides up one region of planned size, called slab.
#pragma once
#include <cstddef>
#include <utility>

#include "base/types.h"

namespace spillway {

class Allocator;

/// The alignment in bytes of every piece of memory, as SIMD loads, sub-ranges of registered I/O buffers and CUDA copies require it.
constexpr i64 kAllocationAlignment = 256;

/// Owns one piece of memory and returns it to its allocator on destruction. `data` is null for zero bytes and on the meta device.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Allocator* owner, std::byte* data, i64 offset, i64 bytes) : owner_(owner), data_(data), offset_(offset), bytes_(bytes) {}
  Allocation(Allocation&& other) noexcept { *this = std::move(other); }
  Allocation& operator=(Allocation&& other) noexcept;
  ~Allocation() { reset(); }
  void reset();

  std::byte* data() const { return data_; }
  i64 offset() const { return offset_; }  // returns the offset within the owner's slab; 0 if the owner is a pool
  i64 bytes() const { return bytes_; }

 private:
  Allocator* owner_ = nullptr;
  std::byte* data_ = nullptr;
  i64 offset_ = 0;
  i64 bytes_ = 0;
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Allocates `bytes`; `what` names the purpose in the out-of-memory message. Throws Error(refused) if the budget is exceeded and
  /// Error(io) if the system has no more memory.
  virtual Allocation allocate(i64 bytes, const char* what) = 0;

 private:
  friend class Allocation;
  virtual void release(std::byte* data, i64 offset, i64 bytes) noexcept = 0;
};

inline void Allocation::reset() {
  if (owner_) std::exchange(owner_, nullptr)->release(data_, offset_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

inline Allocation& Allocation::operator=(Allocation&& other) noexcept {
  reset();
  owner_ = std::exchange(other.owner_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  offset_ = other.offset_;
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

}  // namespace spillway
