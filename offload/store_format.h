// The store's format, version 1. All numbers are little-endian, all pages have 4096 bytes, a checksum is CRC32C (iSCSI, RFC 3720 B.4).
//
//   every file   page 0               StoreHeader
//   file 0       page 1, page 2       Superblock: commit number n lies in page 1 + n % 2
//                then                 table of slot 0, table of slot 1: a u32 checksum for each tile of the persistent blobs in the order
//                of
//                                     their carving, filled up to whole pages with zeros
//   every file   then                 data
//
// The data of all files is one linear range of bytes, cut into stripe units. Units are dealt in rounds of as many units as the weights have
// sum (divided by their greatest common divisor); within a round by smooth weighted round-robin: each time every file is credited its
// weight, the one with most credit (the first of equals) takes the unit and pays the sum. A file's units lie in order without gaps; the
// last unit is cut where the data ends. Blobs are carved from the range one after the other, slot 0 before slot 1; those that persist come
// first, so that a restart may want other bytes behind them: the files grow or shrink, and the header says how they were made. Generation g
// of a blob with two slots lies in slot g % 2, and so does its table.
//
// A commit is good when its superblock's checksum and its table's hold and it names the store of the headers. The newest good one counts,
// if written in this boot or into a store of Durability::step; while generation g + 1 is written, nothing of g is touched. A file of
// another version keeps magic, version and the checksum of page 0 where they are here, so that any program can tell.
#pragma once
#include <bit>
#include <type_traits>

#include "offload/scratch_file.h"

namespace spillway::offload {

static_assert(std::endian::native == std::endian::little, "the structs below are the bytes of the files");

constexpr i64 kPageBytes = 4096;
static_assert(kPageBytes == kDirectAlignment);
constexpr i64 kStripeUnitBytes = kMiB;
constexpr u32 kStoreVersion = 1;
constexpr char kStoreMagic[8] = {'S', 'P', 'I', 'L', 'T', 'I', 'L', 'E'};
constexpr char kSuperblockMagic[8] = {'S', 'P', 'I', 'L', 'C', 'O', 'M', 'T'};
constexpr const char* kStoreFile = "tiles";  // in its folder
constexpr i64 kMaxStripes = 64, kMaxWeight = 65535;
constexpr i64 kMaxRunIdBytes = 255, kMaxBootIdBytes = 47, kMaxRecordBytes = 3072;

constexpr i64 kSuperblockOffset = kPageBytes;
constexpr i64 kSuperblocks = 2;
constexpr i64 kTablesOffset = kSuperblockOffset + kSuperblocks * kPageBytes;
constexpr i64 table_bytes(i64 persistent_tiles) { return round_up(persistent_tiles * i64{sizeof(u32)}, kPageBytes); }
constexpr i64 table_offset(i64 persistent_tiles, u64 slot) {
  return kTablesOffset + static_cast<i64>(slot) * table_bytes(persistent_tiles);
}
/// Where a file's data begins.
constexpr i64 data_offset(i64 persistent_tiles, i64 stripe) { return stripe == 0 ? table_offset(persistent_tiles, 2) : kPageBytes; }

/// step: what commit() reported is there after a power loss. checkpoint: only after the death of the process; after a reboot nothing is.
enum class Durability : u32 { checkpoint, step };

struct alignas(kPageBytes) StoreHeader {
  char magic[8];
  u32 version;
  u32 stripe, stripes;  // this file's number, and how many there are
  u32 durability;       // a Durability
  u64 store_id;         // random, the same in all files
  u64 layout_hash;
  i64 data_bytes, persistent_tiles, stripe_unit_bytes;
  i64 file_bytes;
  u32 weights[kMaxStripes];
  char run_id[kMaxRunIdBytes + 1];  // ends with a zero
  u8 unused[3508];
  u32 crc;  // of all before
};
static_assert(sizeof(StoreHeader) == kPageBytes && std::is_trivially_copyable_v<StoreHeader>);

struct alignas(kPageBytes) Superblock {
  char magic[8];
  u64 store_id;
  u64 number;  // of the commit, from 1
  u64 generation;
  u32 table_crc;  // of the whole pages of the table in slot generation % 2
  u32 record_bytes;
  char boot_id[kMaxBootIdBytes + 1];  // ends with a zero
  char record[kMaxRecordBytes];
  u8 unused[932];
  u32 crc;  // of all before
};
static_assert(sizeof(Superblock) == kPageBytes && std::is_trivially_copyable_v<Superblock>);

}  // namespace spillway::offload
