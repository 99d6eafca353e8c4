// The store's file format, version 1. A blob is an array in the store, cut into tiles. A persistent blob survives a restart. A blob may
// have two slots, which are written alternately, one generation (version of the content) after the other. All numbers are little-endian,
// all pages have 4096 bytes, a checksum is CRC32C (iSCSI, RFC 3720 B.4).
//
//   every file   page 0               StoreHeader
//   file 0       page 1, page 2       Superblock: commit number n lies in page 1 + n % 2
//                then                 table of slot 0, table of slot 1: a u32 checksum for each tile of the persistent blobs, in the
//                                     order in which the blobs were allocated, padded with zeros to whole pages
//   every file   then                 data
//
// The data of all files is one linear range of bytes, cut into stripe units. Units are assigned to files in rounds. A round has as many
// units as the sum of the weights (after division by their greatest common divisor). Within a round the order is smooth weighted
// round-robin: for each unit every file is credited its weight; the file with the most credit (the first of equals) gets the unit, and the
// sum of the weights is subtracted from its credit. A file's units lie in order without gaps; the last unit is cut where the data ends.
// Blobs are allocated from the range one after the other, slot 0 before slot 1. Persistent blobs come first, because a restart may need
// more or fewer bytes for the temporary blobs behind them: the files then grow or shrink, while the header keeps the sizes with which they
// were created. Generation g of a blob with two slots lies in slot g % 2, and the checksum table of generation g in table slot g % 2.
//
// A commit is good if its superblock's checksum and its table's checksum hold and it names the same store as the headers. The newest good
// commit counts. After a reboot it counts only if the store has Durability::step, which syncs the drive at every step. While generation g +
// 1 is written, nothing of g is touched. Files of other versions keep the magic, the version and the checksum of page 0 at the offsets that
// StoreHeader gives them, so that any version of the program can recognise them.
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
constexpr const char* kStoreFile = "tiles";  // name of the store's file in the folder of each path
constexpr i64 kMaxStripes = 64, kMaxWeight = 65535;
constexpr i64 kMaxRunIdBytes = 255, kMaxBootIdBytes = 47, kMaxRecordBytes = 3072;

constexpr i64 kSuperblockOffset = kPageBytes;
constexpr i64 kSuperblocks = 2;
constexpr i64 kTablesOffset = kSuperblockOffset + kSuperblocks * kPageBytes;
constexpr i64 table_bytes(i64 persistent_tiles) { return round_up(persistent_tiles * i64{sizeof(u32)}, kPageBytes); }
constexpr i64 table_offset(i64 persistent_tiles, u64 slot) {
  return kTablesOffset + static_cast<i64>(slot) * table_bytes(persistent_tiles);
}
/// Returns the offset at which the data begins in the file with number `stripe`.
constexpr i64 data_offset(i64 persistent_tiles, i64 stripe) { return stripe == 0 ? table_offset(persistent_tiles, 2) : kPageBytes; }

/// Says what a commit survives. step: whatever commit() has reported survives a power loss. checkpoint: commits survive only the death of
/// the process; after a reboot none is left.
enum class Durability : u32 { checkpoint, step };

struct alignas(kPageBytes) StoreHeader {
  char magic[8];
  u32 version;
  u32 stripe, stripes;  // number of this file, counted from 0, and number of files
  u32 durability;       // a value of the enum Durability
  u64 store_id;         // random id, the same in all files of the store
  u64 layout_hash;
  i64 data_bytes, persistent_tiles, stripe_unit_bytes;
  i64 file_bytes;
  u32 weights[kMaxStripes];
  char run_id[kMaxRunIdBytes + 1];  // the id of the run, ending with a zero byte
  u8 unused[3508];
  u32 crc;  // checksum of all bytes of the header before this field
};
static_assert(sizeof(StoreHeader) == kPageBytes && std::is_trivially_copyable_v<StoreHeader>);

struct alignas(kPageBytes) Superblock {
  char magic[8];
  u64 store_id;
  u64 number;  // number of the commit, counted from 1
  u64 generation;
  u32 table_crc;  // checksum of the checksum table with number generation % 2, with its padding to whole pages
  u32 record_bytes;
  char boot_id[kMaxBootIdBytes + 1];  // the system's boot id, ending with a zero byte
  char record[kMaxRecordBytes];
  u8 unused[932];
  u32 crc;  // checksum of all bytes of the superblock before this field
};
static_assert(sizeof(Superblock) == kPageBytes && std::is_trivially_copyable_v<Superblock>);

}  // namespace spillway::offload
