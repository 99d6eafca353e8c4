#include "offload/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace spillway::offload {

u32 crc32c(std::span<const std::byte> bytes) {
  constexpr size_t kMostAtOnce = size_t{1} << 30;  // the library counts in int
  u32 crc = ~u32{0};
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), kMostAtOnce);
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));  // its signature forgot the const
    crc = crc32_iscsi(data, static_cast<int>(count), crc);
    bytes = bytes.subspan(count);
  }
  return ~crc;
}

}  // namespace spillway::offload
