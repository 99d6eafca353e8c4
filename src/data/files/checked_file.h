// Reads and writes files that are verified against checksums. Each block of 256 KiB has one CRC32C. Writers
// accumulate the checksums of what they write. They may write the file in pieces of any size and order, and several
// processes may write parts of it. A reader never receives a byte of a block whose checksum does not match.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/files/file.h"

namespace spillway::data {

constexpr i64 kChecksumBlockBytes = 256 * kKiB;

/// The checksums of a file of `bytes` bytes, one for each block. The last block may be shorter than the others.
struct FileChecksums {
  i64 bytes = 0;
  std::vector<u32> blocks;
  static i64 block_count(i64 bytes) { return (bytes + kChecksumBlockBytes - 1) / kChecksumBlockBytes; }
};

/// Accumulates the block checksums of a file of `bytes` bytes while it is written. Thread-safe.
class ChecksumSums {
 public:
  explicit ChecksumSums(i64 bytes);
  /// Adds the checksums of `written`, the file's bytes from `offset` on. Over all writers together, every byte of the file must be added
  /// exactly once.
  void add(i64 offset, std::span<const std::byte> written);
  /// Returns the partial checksums of the bytes that were added to this object, one for each block. The results of several writers are
  /// combined by XOR.
  std::vector<u32> sums() const;
  /// Returns the checksums of a file, given the XOR of the sums() of all its writers.
  static FileChecksums checksums(i64 bytes, std::span<const u32> sums);

 private:
  i64 bytes_;
  std::vector<std::atomic<u32>> sums_;
};

/// The error that a file does not contain what was written to it. Damaged is an Error(data).
class Damaged : public Error {
 public:
  /// Makes the error that bytes [begin, end) of a file are damaged. `within` names what these bytes hold, for example a tensor.
  Damaged(const std::filesystem::path& path, i64 begin, i64 end, const std::string& within = "");
  /// Makes the error that a checkpoint folder's file cannot even be parsed. `wrong` says in words what is wrong.
  explicit Damaged(const std::filesystem::path& folder, const std::string& wrong);
  /// Returns the part of the error message that says what is wrong. what() returns the whole message, which also gives advice.
  const std::string& wrong() const { return wrong_; }
  i64 begin() const { return begin_; }
  i64 end() const { return end_; }

 private:
  std::string wrong_;
  i64 begin_ = 0, end_ = 0;
};

/// A file whose bytes are verified against checksums when they are read. A CheckedFile
/// without checksums is read unverified. A few blocks are cached. Thread-safe.
class CheckedFile {
 public:
  /// Opens the file. Throws Error(data) if the file cannot be opened, and Damaged if its size differs from the size in `checksums`.
  explicit CheckedFile(const std::filesystem::path& path, std::optional<FileChecksums> checksums = {});
  CheckedFile(CheckedFile&&) noexcept;
  ~CheckedFile();

  const std::filesystem::path& path() const;
  i64 size_bytes() const;
  /// Fills `into` with the file's bytes from `offset` on. If the checksum of a
  /// block does not match, throws a Damaged with the byte range of that block.
  void read(i64 offset, std::span<std::byte> into) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
