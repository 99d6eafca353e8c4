// The files of a store as its other parts see them: a linear range of data, the pages of file 0, and flushes. Made by open_files or
// create_files. Thread-safe but for construction; the data's ordering is the caller's.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "offload/io_engine.h"
#include "offload/nvme_store.h"
#include "offload/scratch_file.h"
#include "offload/stripes.h"

namespace spillway::offload {

class StoreFiles {
 public:
  StoreFiles(IoEngine& engine, std::vector<ScratchFile> files, Stripes stripes, u64 store_id, i64 persistent_tiles);

  u64 store_id() const { return store_id_; }
  i64 persistent_tiles() const { return persistent_tiles_; }
  i64 bytes() const;
  /// Opened, they may have been made for more or fewer passing bytes: makes each as long as the data wants. Errors: as
  /// ScratchFile::resize; then what persists is as it was.
  void fit();

  /// `buffer` to or from [begin, begin + size) of the data; a write only reads it.
  Event submit(bool write, i64 begin, std::span<std::byte> buffer, Priority priority);
  /// Where a byte of the data lies: "offset 81920 of /scratch/tiles".
  std::string place(i64 begin) const;

  /// Of file 0, aligned for direct I/O; done on return. Errors: Error(io).
  void read(i64 offset, std::span<std::byte> into);
  void write(i64 offset, std::span<const std::byte> from);
  void flush_first() { engine_.flush(files_.front()); }
  void flush();

 private:
  i64 offset_of(const Stripes::Extent& extent) const { return data_offset(persistent_tiles_, extent.file) + extent.offset; }

  IoEngine& engine_;
  std::vector<ScratchFile> files_;
  Stripes stripes_;
  u64 store_id_;
  i64 persistent_tiles_;
};

/// Error(usage) for a path given twice, Error(bug) for a description that makes no sense.
void check(const StoreDescription& description);

/// The files of a dead run, when all of them are there, whole, and made for this description; else nothing with a line on `why`. Errors:
/// Error(data) for a newer format, Error(io).
std::optional<StoreFiles> open_files(IoEngine& engine, const StoreDescription& description, std::string& why);

/// A folder's entries survive a power loss only when the folder itself is flushed. Errors: Error(io).
void flush_folder(const std::filesystem::path& folder);

u64 random_store_id();

/// Where nothing lies that may hold a commit (store_aside.h). Until the last file's header nothing opens. Errors: as ScratchFile::create;
/// then nothing stays.
StoreFiles create_files(IoEngine& engine, const StoreDescription& description);

}  // namespace spillway::offload
