// Gunzip decompresses a gzip file from its beginning. An object is used by one thread at a time.
#pragma once
#include <memory>
#include <span>

#include "data/file.h"

namespace spillway::data {

class Gunzip {
 public:
  /// `file` must outlive the object.
  explicit Gunzip(const File& file);
  ~Gunzip();
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  /// Fills `into` with the next decompressed bytes. Throws Error(data) if there are fewer, or if the data are damaged.
  void read(std::span<u8> into);
  /// Throws Error(data) unless all data were read and gzip's checksum matches.
  void finish();

 private:
  struct State;
  size_t some(std::span<u8> into);
  const File& file_;
  std::unique_ptr<State> state_;
};

/// The most bytes that deflate can produce from one byte. Sizes claimed by a compressed header are checked against it before memory is
/// allocated.
constexpr i64 kMostUnpacked = 1032;

}  // namespace spillway::data
