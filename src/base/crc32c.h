// CRC32C (the Castagnoli polynomial, as in iSCSI, RFC 3720 B.4): the checksum of everything the store writes. Catches what drives, cables
// and memory spoil; no defence against an attacker. Thread-safe: no state. Fast where the processor has pclmulqdq.
#pragma once
#include <span>

#include "base/types.h"

namespace spillway::offload {

u32 crc32c(std::span<const std::byte> bytes);

}  // namespace spillway::offload
