// The zip archive that torch.save writes, through libzip: its data.pkl, and its storages by their keys. Errors as torch_file.h's.
#pragma once
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

struct zip;  // libzip's zip_t

namespace spillway::data {

/// Throws Error(data), "[torch] <path>: <why>".
[[noreturn]] void reject_torch(const std::filesystem::path& path, const std::string& why);

class TorchArchive {
 public:
  /// Where it lies in the file; none: it is the file.
  struct Range {
    i64 begin = 0, bytes = 0;
  };
  explicit TorchArchive(std::filesystem::path path, std::optional<Range> range = {});
  ~TorchArchive();
  TorchArchive(const TorchArchive&) = delete;
  TorchArchive& operator=(const TorchArchive&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Of the file, or of the part of it.
  i64 bytes() const { return bytes_; }
  /// data.pkl, 64 MiB at most.
  std::vector<std::byte> pickle() const;
  /// A member that is stored as it is.
  struct Member {
    u64 index = 0;
    i64 bytes = 0;
  };
  Member storage(const std::string& key) const;
  /// Thread-safe.
  void read(const Member& member, i64 offset, std::span<std::byte> into) const;

 private:
  void open(std::optional<Range> range);
  Member member(const std::string& name) const;
  const std::filesystem::path path_;
  i64 bytes_ = 0;
  zip* zip_ = nullptr;
  std::string folder_;        // of all members: "archive/"
  mutable std::mutex mutex_;  // libzip's archives are one thread's at a time
};

}  // namespace spillway::data
