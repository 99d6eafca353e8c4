// Reads and writes the superblocks and checksum tables of a store (the files of one rank on nvme), so that the last commit can be found
// after any crash. Used by NvmeStore alone, by one thread at a time. Invariant: as long as a commit is the last good one, its pages are
// never written.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "offload/store_files.h"
#include "offload/store_format.h"

namespace spillway::offload {

/// Returns true if these bytes are a superblock whose checksum holds, so that nothing has changed since the superblock was written.
bool is_whole(const Superblock& superblock);
/// Returns true if the superblock's page is all zeros: either no commit was ever written there, or the commit was discarded.
bool is_blank(const Superblock& superblock);
/// Returns true if the superblock was written since the system booted last, that is, if the superblock holds
/// the same `boot_id`. Returns false if `boot_id` is empty, because the system has none.
bool written_in(const Superblock& superblock, std::string_view boot_id);

class CommitLog {
 public:
  /// `durability` and `boot_id` come from the store's description; `files` must outlive the log.
  CommitLog(StoreFiles& files, Durability durability, std::string boot_id);

  /// Reads the newest good commit whose generation (number of the version of the data) is at most `newest_generation`, and its checksum
  /// table. If there is none, returns nothing and sets `why` to one line that says why. Erases commits of later generations. Errors:
  /// Error(io).
  std::optional<Commit> recover(u64 newest_generation, std::string& why);
  /// Does the work of NvmeStore::commit. Write the new checksums into table() before the call. Pass `same_table` = true if only the record
  /// changed; the checksum table is then not written to the file again.
  void commit(u64 generation, std::string_view record, bool same_table);
  /// Overwrites both superblocks with zeros, the older first. Errors: Error(io).
  void clear();

  /// Returns the checksums of all persistent tiles. After recover() they are those of the recovered commit; the caller overwrites them
  /// before the next commit().
  std::span<u32> table();

 private:
  struct alignas(kPageBytes) Page {
    std::byte bytes[kPageBytes];
  };
  std::span<std::byte> pages() { return std::as_writable_bytes(std::span(table_)); }
  void read_superblock(u64 page, Superblock& into);
  void spoil(u64 page);
  std::string objection(const Superblock& superblock, u64 page);

  StoreFiles& files_;
  const Durability durability_;
  const std::string boot_id_;
  u64 number_ = 0;  // number of the last commit, which counts from 1
  std::vector<Page> table_;
};

}  // namespace spillway::offload
