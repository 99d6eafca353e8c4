#include <cstring>

#include "device/copy.h"
#include "device/transfer.h"

namespace spillway {

void transfer(std::byte* to, const std::byte* from, i64 bytes) { copy_past_caches(to, from, bytes); }
void put_transfer(std::byte* to, const std::byte* from, i64 bytes) { copy_past_caches(to, from, bytes); }

void fill_zeros(std::byte* at, i64 bytes) {
  if (bytes > 0) std::memset(at, 0, static_cast<size_t>(bytes));
}

}  // namespace spillway
