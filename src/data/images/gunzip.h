// Gunzip decompresses a gzip file from its beginning to its end. An object is used by one thread at a time.
#pragma once
#include <memory>
#include <span>

#include "data/files/file.h"

namespace spillway::data {

class Gunzip {
 public:
  /// Begins to decompress `file`, which must outlive the object.
  explicit Gunzip(const File& file);
  ~Gunzip();
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  /// Fills `into` with the next decompressed bytes. Throws Error(data) if
  /// fewer bytes are left than `into` holds, or if the data are damaged.
  void read(std::span<u8> into);
  /// Checks the end of the file. Throws Error(data) if decompressed bytes
  /// remain that were not read, or if gzip's checksum does not match.
  void finish();

 private:
  struct State;
  size_t some(std::span<u8> into);
  const File& file_;
  std::unique_ptr<State> state_;
};

/// The largest number of bytes that deflate can produce from one byte. If a header in compressed
/// data claims a size, the size is checked against this limit before memory is allocated.
constexpr i64 kMostUnpacked = 1032;

}  // namespace spillway::data
