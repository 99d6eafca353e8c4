// TorchArchive is the zip archive that torch.save writes, read through libzip. It gives access to the member data.pkl, and by key to
// the members that hold the storages. A storage is the memory that one or more tensors share. The errors are those of torch_file.h.
#pragma once
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

struct zip;  // the archive type of libzip, zip_t

namespace spillway::data {

/// Throws Error(data) "[torch] <path>: <why>".
[[noreturn]] void reject_torch(const std::filesystem::path& path, const std::string& why);

class TorchArchive {
 public:
  /// The range of bytes of a file that holds the archive. Without a Range the archive is the whole file.
  struct Range {
    i64 begin = 0, bytes = 0;
  };
  explicit TorchArchive(std::filesystem::path path, std::optional<Range> range = {});
  ~TorchArchive();
  TorchArchive(const TorchArchive&) = delete;
  TorchArchive& operator=(const TorchArchive&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Returns the size of the archive in bytes: that of the Range, or of the file if there is no Range.
  i64 bytes() const { return bytes_; }
  /// Returns the contents of data.pkl, 64 MiB at most.
  std::vector<std::byte> pickle() const;
  /// A member of the zip archive, which must be stored uncompressed.
  struct Member {
    u64 index = 0;
    i64 bytes = 0;
  };
  Member storage(const std::string& key) const;
  /// Fills `into` with the member's bytes from `offset` on. Thread-safe.
  void read(const Member& member, i64 offset, std::span<std::byte> into) const;

 private:
  void open(std::optional<Range> range);
  Member member(const std::string& name) const;
  const std::filesystem::path path_;
  i64 bytes_ = 0;
  zip* zip_ = nullptr;
  std::string folder_;        // name of the folder within the archive that holds all members, such as "archive/"
  mutable std::mutex mutex_;  // The lock of the libzip archive, which must be used by one thread at a time.
};

}  // namespace spillway::data
