// Counts the memory that a block of a model takes from another library, such as PyTorch, which has its own allocator. A dry run on the meta
// device sets a ForeignMemory; a block that runs in it requests there what the other library will take, and releases it when the other
// library will. Outside of a dry run nothing is counted.
#pragma once
#include "device/allocator.h"

namespace spillway {

/// For the lifetime of the object, current() returns `memory` on the thread that created the object.
class ForeignMemory {
 public:
  explicit ForeignMemory(Allocator& memory);
  ~ForeignMemory();
  ForeignMemory(const ForeignMemory&) = delete;
  ForeignMemory& operator=(const ForeignMemory&) = delete;

  /// Returns the allocator that counts, or null if nothing counts.
  static Allocator* current();

 private:
  Allocator* const outer_;
};

}  // namespace spillway
