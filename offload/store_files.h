// A StoreFiles hides the files of a store. Other parts of the store see one linear range of data bytes, the pages of file 0, and calls that
// flush the files. Made by open_files or create_files. Thread-safe once constructed; the caller orders overlapping accesses to the data.
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
  /// Makes each file as long as the data requires; the files may have been created for more or fewer bytes of temporary blobs. Errors: as
  /// ScratchFile::resize; the persistent data is then unchanged.
  void fit();

  /// Starts a copy from `buffer` to the data bytes [begin, begin + buffer.size()) if `write`, and from
  /// these bytes into `buffer` otherwise. The buffer must stay valid until the event is set.
  Event submit(bool write, i64 begin, std::span<std::byte> buffer, Priority priority);
  /// Returns the place of a data byte for messages: "offset 81920 of /scratch/tiles".
  std::string place(i64 begin) const;

  /// read() and write() transfer bytes at `offset` of file 0 and return when the transfer is
  /// done. Offset, size and buffer must be aligned for direct I/O. Errors: Error(io).
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

/// Throws Error(usage) if a path is given twice, Error(bug) if a number or the length of an id in the description is out of range.
void check(const StoreDescription& description);

/// Opens the files of a dead run if all of them exist, are undamaged, and were made for this description; otherwise returns nothing and
/// sets `why` to one line. Errors: Error(data) for a newer format, Error(io).
std::optional<StoreFiles> open_files(IoEngine& engine, const StoreDescription& description, std::string& why);

/// Makes the folder's entries survive a power loss, for which it is not enough to flush the files in the folder. Errors: Error(io).
void flush_folder(const std::filesystem::path& folder);

u64 random_store_id();

/// Creates the files of a store. Whatever lay at the paths and may hold a commit must have been set aside before (store_aside.h). The store
/// cannot be opened until the last file's header is written. Errors: as ScratchFile::create; then nothing stays behind.
StoreFiles create_files(IoEngine& engine, const StoreDescription& description);

}  // namespace spillway::offload
