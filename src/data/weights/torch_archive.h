// TorchArchive is the zip archive that torch.save writes, read through libzip: its member data.pkl, and its storages by key. Errors as in
// torch_file.h.
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

/// Throws Error(data), "[torch] <path>: <why>".
[[noreturn]] void reject_torch(const std::filesystem::path& path, const std::string& why);

class TorchArchive {
 public:
  /// The part of a file in which the archive lies. Without a Range the archive is the whole file.
  struct Range {
    i64 begin = 0, bytes = 0;
  };
  explicit TorchArchive(std::filesystem::path path, std::optional<Range> range = {});
  ~TorchArchive();
  TorchArchive(const TorchArchive&) = delete;
  TorchArchive& operator=(const TorchArchive&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Returns the size of the archive: of the file, or of the given part of it.
  i64 bytes() const { return bytes_; }
  /// Returns the contents of data.pkl, 64 MiB at most.
  std::vector<std::byte> pickle() const;
  /// A member of the archive, stored uncompressed.
  struct Member {
    u64 index = 0;
    i64 bytes = 0;
  };
  Member storage(const std::string& key) const;
  /// Fills `into` from byte `offset` of a member. Thread-safe.
  void read(const Member& member, i64 offset, std::span<std::byte> into) const;

 private:
  void open(std::optional<Range> range);
  Member member(const std::string& name) const;
  const std::filesystem::path path_;
  i64 bytes_ = 0;
  zip* zip_ = nullptr;
  std::string folder_;        // folder of all members, such as "archive/"
  mutable std::mutex mutex_;  // because a libzip archive must be used by one thread at a time
};

}  // namespace spillway::data
