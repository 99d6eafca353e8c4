// CRC32C (the Castagnoli polynomial, as in iSCSI, RFC 3720 B.4): the checksum of what lies on disks, in the store and in checkpoints.
// Catches what drives, cables and memory spoil; no defence against an attacker. Thread-safe: no state. Fast where the processor has
// pclmulqdq.
#pragma once
#include <span>

#include "base/types.h"

namespace spillway {

u32 crc32c(std::span<const std::byte> bytes);

/// What `piece`, followed by `after` bytes (0 or more) of a block, adds to the block's checksum; the XOR over pieces that together are the
/// block, in any order, with crc32c_of_zeros(its bytes) is crc32c(block). A CRC is linear: https://zlib.net (crc32_combine).
u32 crc32c_share(std::span<const std::byte> piece, i64 after);
u32 crc32c_of_zeros(i64 bytes);

}  // namespace spillway
