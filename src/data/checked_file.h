// Files whose bytes are known by their checksums: CRC32C of blocks of 256 KiB. Whoever writes one sums up what he writes, in pieces of any
// order and by several processes; whoever reads one gets no byte of a block that differs from what was written.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/file.h"

namespace spillway::data {

constexpr i64 kChecksumBlockBytes = 256 * kKiB;

/// Of a file of `bytes`: one checksum of each block, the last one shorter.
struct FileChecksums {
  i64 bytes = 0;
  std::vector<u32> blocks;
  static i64 block_count(i64 bytes) { return (bytes + kChecksumBlockBytes - 1) / kChecksumBlockBytes; }
};

/// Sums over what is written to a file of `bytes`. Thread-safe.
class ChecksumSums {
 public:
  explicit ChecksumSums(i64 bytes);
  /// Bytes of the file from `offset`, each once over all who write.
  void add(i64 offset, std::span<const std::byte> written);
  /// What was added here; those of several writers go together by XOR.
  std::vector<u32> sums() const;
  /// Of the file whose sums these are, over all writers.
  static FileChecksums checksums(i64 bytes, std::span<const u32> sums);

 private:
  i64 bytes_;
  std::vector<std::atomic<u32>> sums_;
};

/// What a file holds is not what was written. Error(data).
class Damaged : public Error {
 public:
  /// Bytes [begin, end) of the file; `within` names what they are.
  Damaged(const std::filesystem::path& path, i64 begin, i64 end, const std::string& within = "");
  /// Of a file that cannot even be taken apart: `wrong` in words.
  explicit Damaged(const std::filesystem::path& folder, const std::string& wrong);
  /// What is wrong, without what to do about it.
  const std::string& wrong() const { return wrong_; }
  i64 begin() const { return begin_; }
  i64 end() const { return end_; }

 private:
  std::string wrong_;
  i64 begin_ = 0, end_ = 0;
};

/// A file read through its checksums; without them as it is. Holds a few blocks. Thread-safe.
class CheckedFile {
 public:
  /// Error(data): it cannot be opened. Damaged: it has another size.
  explicit CheckedFile(const std::filesystem::path& path, std::optional<FileChecksums> checksums = {});
  CheckedFile(CheckedFile&&) noexcept;
  ~CheckedFile();

  const std::filesystem::path& path() const;
  i64 size_bytes() const;
  /// Throws Damaged, naming the block in bytes of the file.
  void read(i64 offset, std::span<std::byte> into) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
