#include "device/memory_source.h"

#include <sys/mman.h>

#include <limits>

#include "base/units.h"

namespace spillway {
namespace {

constexpr i64 kHugePage = 2 * kMiB;

std::byte* map_pages(i64 bytes) {
  void* p = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
}

void unmap(std::byte* at, i64 bytes) {
  if (bytes > 0) ::munmap(at, static_cast<size_t>(bytes));
}

// Returns 2 MiB-aligned memory and advises the kernel to back it with huge
// pages. The function maps more than needed and unmaps the unaligned ends.
std::byte* map_huge(i64 bytes) {
  std::byte* wide = map_pages(bytes + kHugePage);
  if (!wide) return nullptr;
  const i64 front = (kHugePage - static_cast<i64>(reinterpret_cast<std::uintptr_t>(wide)) % kHugePage) % kHugePage;
  unmap(wide, front);
  unmap(wide + front + bytes, kHugePage - front);
  ::madvise(wide + front, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return wide + front;
}

class SystemMemory final : public MemorySource {
 public:
  std::byte* take(i64 bytes) override {
    if (bytes > std::numeric_limits<i64>::max() - kHugePage) return map_pages(bytes);  // the system has no region of this size
    return bytes >= kHugePage ? map_huge(bytes) : map_pages(bytes);
  }
  void give_back(std::byte* at, i64 bytes) noexcept override { unmap(at, bytes); }
};

}  // namespace

std::unique_ptr<MemorySource> system_memory() { return std::make_unique<SystemMemory>(); }

}  // namespace spillway
