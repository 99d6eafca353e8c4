#include <cstring>

#include "device/transfer.h"

namespace spillway {

void transfer(std::byte* to, Device, const std::byte* from, Device, i64 bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void fill_zeros(std::byte* at, Device, i64 bytes) {
  if (bytes > 0) std::memset(at, 0, static_cast<size_t>(bytes));
}

}  // namespace spillway
