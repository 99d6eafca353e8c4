// The superblocks and checksum tables of a store: what was committed last, told after any crash. Used by NvmeStore alone, by one thread at
// a time. Invariant: the pages of the last good commit are never written while it is the last.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "offload/store_files.h"
#include "offload/store_format.h"

namespace spillway::offload {

/// It is one, and nothing of it has changed since it was written.
bool is_whole(const Superblock& superblock);
/// No commit was ever written there, or it was given up.
bool is_blank(const Superblock& superblock);
/// In this boot of the machine; false where there is no such id.
bool written_in(const Superblock& superblock, std::string_view boot_id);

class CommitLog {
 public:
  /// Both are the description's; `files` outlives the log.
  CommitLog(StoreFiles& files, Durability durability, std::string boot_id);

  /// Reads the newest good commit up to this generation, and its table; nothing with a line on `why`. A later one is spoiled. Errors:
  /// Error(io).
  std::optional<Commit> recover(u64 newest_generation, std::string& why);
  /// As NvmeStore::commit, with the table set before; `same_table` when only the record changed.
  void commit(u64 generation, std::string_view record, bool same_table);
  /// Spoils both superblocks, the older first. Errors: Error(io).
  void clear();

  /// Checksums of the persistent tiles: of the recovered commit, or for the next.
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
  u64 number_ = 0;  // of the last commit
  std::vector<Page> table_;
};

}  // namespace spillway::offload
