// Defines MemoryPool, from which all memory of tensors and buffers comes. A pool has a name, a hard budget and a table of what
// is allocated; there is one per rank and memory tier (device, host). On the CPU backend the "device" is a pool of host memory
// with its own budget. Thread-safe. Memory is page-aligned; fresh memory from the system is zero. Released memory goes back to
// the source. Sizes are rounded up to pages, without other overhead. Invariant: used_bytes() <= peak_bytes() <= budget_bytes().
#pragma once
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "device/allocator.h"
#include "device/memory_source.h"

namespace spillway {

constexpr i64 kUnlimited = std::numeric_limits<i64>::max();

class MemoryPool final : public Allocator {
 public:
  /// Creates a pool. `help` is the sentence that ends an out-of-memory message, for example "raise --device-memory".
  MemoryPool(std::string name, i64 budget_bytes, std::string help = "", std::unique_ptr<MemorySource> source = system_memory());
  ~MemoryPool() override;

  Allocation allocate(i64 bytes, const char* what) override;

  const std::string& name() const { return name_; }
  i64 budget_bytes() const { return budget_bytes_; }
  i64 used_bytes() const;
  i64 peak_bytes() const;
  /// Returns one line "purpose: bytes" for each purpose of allocated memory, largest first.
  std::string table() const;

  /// Returns a pool without a budget that lives as long as the process. Code that was given no pool uses it (tests, examples).
  static MemoryPool& heap();

 private:
  void release(std::byte* data, i64 offset, i64 bytes) noexcept override;
  std::string table_locked() const;

  const std::string name_, help_;
  const i64 budget_bytes_;
  const std::unique_ptr<MemorySource> source_;
  mutable std::mutex mutex_;
  i64 used_bytes_ = 0, peak_bytes_ = 0;
  std::map<std::byte*, std::pair<std::string, i64>> held_;
};

}  // namespace spillway
