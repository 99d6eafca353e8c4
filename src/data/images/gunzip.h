// What is packed in a gzip file, from its beginning. One thread at a time.
#pragma once
#include <memory>
#include <span>

#include "data/file.h"

namespace spillway::data {

class Gunzip {
 public:
  /// `file` outlives it.
  explicit Gunzip(const File& file);
  ~Gunzip();
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  /// The next bytes, as many as fit. Error(data): there are not as many, or they are damaged.
  void read(std::span<u8> into);
  /// Error(data) unless all was read and gzip's checksum agrees.
  void finish();

 private:
  struct State;
  size_t some(std::span<u8> into);
  const File& file_;
  std::unique_ptr<State> state_;
};

/// As many bytes as deflate can make of one (1032), so that sizes a packed header claims are checked before memory is taken for them.
constexpr i64 kMostUnpacked = 1032;

}  // namespace spillway::data
