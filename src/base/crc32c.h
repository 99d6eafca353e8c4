// CRC32C (the Castagnoli polynomial, as in iSCSI, RFC 3720 B.4) is the checksum of everything stored on disk: offloaded tensors and
// checkpoints. It catches corruption by drives, cables and memory; it is no defence against an attacker. The functions have no state and
// are thread-safe. They are fast on processors with pclmulqdq.
#pragma once
#include <span>

#include "base/types.h"

namespace spillway {

/// Returns the CRC32C of `bytes`.
u32 crc32c(std::span<const std::byte> bytes);

/// Returns what `piece`, followed by `after` (0 or more) further bytes of a block of data, contributes to the block's checksum (its share).
/// XOR the shares of all pieces of a block, in any order, with crc32c_of_zeros(size of the block) to obtain crc32c(block). This works
/// because a CRC is linear: https://zlib.net (crc32_combine).
u32 crc32c_share(std::span<const std::byte> piece, i64 after);
/// Returns the CRC32C of `bytes` zero bytes.
u32 crc32c_of_zeros(i64 bytes);

}  // namespace spillway
